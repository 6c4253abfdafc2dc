package nodelabels

import (
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Maximum sizes of facts: longer strings, lists and maps are cut. The size of a string is in characters.
const (
	maxName       = 253
	maxLabelKey   = 317
	maxLabelValue = 63
	maxAnnotation = 4096
	maxText       = 1024
	maxElements   = 512
)

// Variables that an expression can use.
const (
	hostVariable    = "host"
	machineVariable = "machine"
	clusterVariable = "cluster"
)

// variables are the declared types of the variables. No field is required: an unknown fact is missing.
var variables = map[string]*apiservercel.DeclType{
	hostVariable: newObjectType("poolboot.Host", withMetadata(fields{
		"uid": newTextType(maxName),
		"hardware": newObjectType("poolboot.Hardware", fields{
			"vendor":          newTextType(maxText),
			"product":         newTextType(maxText),
			"serial":          newTextType(maxText),
			"hostname":        newTextType(maxText),
			"memoryMebibytes": apiservercel.IntType,
			"cpu": newObjectType("poolboot.CPU", fields{
				"arch":           newTextType(maxText),
				"model":          newTextType(maxText),
				"clockMegahertz": apiservercel.DoubleType,
				"count":          apiservercel.IntType,
				"flags":          newListType(newTextType(maxText)),
			}),
			"bios": newObjectType("poolboot.BIOS", fields{
				"vendor":  newTextType(maxText),
				"version": newTextType(maxText),
				"date":    newTextType(maxText),
			}),
			"nics": newListType(newObjectType("poolboot.NIC", fields{
				"name":      newTextType(maxText),
				"model":     newTextType(maxText),
				"mac":       newTextType(maxText),
				"ip":        newTextType(maxText),
				"speedGbps": apiservercel.IntType,
				"vlanID":    apiservercel.IntType,
				"pxe":       apiservercel.BoolType,
				"lldp": newObjectType("poolboot.LLDP", fields{
					"switchID":         newTextType(maxText),
					"portID":           newTextType(maxText),
					"switchSystemName": newTextType(maxText),
				}),
			})),
			"disks": newListType(newObjectType("poolboot.Disk", fields{
				"name":       newTextType(maxText),
				"type":       newTextType(maxText),
				"rotational": apiservercel.BoolType,
				"sizeBytes":  apiservercel.IntType,
				"vendor":     newTextType(maxText),
				"model":      newTextType(maxText),
				"serial":     newTextType(maxText),
				"wwn":        newTextType(maxText),
				"hctl":       newTextType(maxText),
			})),
		}),
	})),
	machineVariable: newObjectType("poolboot.Machine", withMetadata(fields{
		"version":       newTextType(maxName),
		"failureDomain": newTextType(maxName),
	})),
	clusterVariable: newObjectType("poolboot.Cluster", withMetadata(fields{})),
}

type fields map[string]*apiservercel.DeclType

// withMetadata adds the fields that every Kubernetes object has.
func withMetadata(own fields) fields {
	own["name"], own["namespace"] = newTextType(maxName), newTextType(maxName)
	own["labels"] = apiservercel.NewMapType(newTextType(maxLabelKey), newTextType(maxLabelValue), maxElements)
	own["annotations"] = apiservercel.NewMapType(newTextType(maxLabelKey), newTextType(maxAnnotation), maxElements)
	return own
}

func newObjectType(name string, of fields) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(of))
	for field, t := range of {
		declared[field] = apiservercel.NewDeclField(field, t, false, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

func newListType(of *apiservercel.DeclType) *apiservercel.DeclType {
	return apiservercel.NewListType(of, maxElements)
}

func newTextType(size int64) *apiservercel.DeclType {
	t := *apiservercel.StringType
	t.MaxElements = size
	return &t
}
