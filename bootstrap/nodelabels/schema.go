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
	hostVariable: object("poolboot.Host", named(fields{
		"uid": text(maxName),
		"hardware": object("poolboot.Hardware", fields{
			"vendor":          text(maxText),
			"product":         text(maxText),
			"serial":          text(maxText),
			"hostname":        text(maxText),
			"memoryMebibytes": apiservercel.IntType,
			"cpu": object("poolboot.CPU", fields{
				"arch":           text(maxText),
				"model":          text(maxText),
				"clockMegahertz": apiservercel.DoubleType,
				"count":          apiservercel.IntType,
				"flags":          list(text(maxText)),
			}),
			"bios": object("poolboot.BIOS", fields{
				"vendor":  text(maxText),
				"version": text(maxText),
				"date":    text(maxText),
			}),
			"nics": list(object("poolboot.NIC", fields{
				"name":      text(maxText),
				"model":     text(maxText),
				"mac":       text(maxText),
				"ip":        text(maxText),
				"speedGbps": apiservercel.IntType,
				"vlanID":    apiservercel.IntType,
				"pxe":       apiservercel.BoolType,
				"lldp": object("poolboot.LLDP", fields{
					"switchID":         text(maxText),
					"portID":           text(maxText),
					"switchSystemName": text(maxText),
				}),
			})),
			"disks": list(object("poolboot.Disk", fields{
				"name":       text(maxText),
				"type":       text(maxText),
				"rotational": apiservercel.BoolType,
				"sizeBytes":  apiservercel.IntType,
				"vendor":     text(maxText),
				"model":      text(maxText),
				"serial":     text(maxText),
				"wwn":        text(maxText),
				"hctl":       text(maxText),
			})),
		}),
	})),
	machineVariable: object("poolboot.Machine", named(fields{
		"version":       text(maxName),
		"failureDomain": text(maxName),
	})),
	clusterVariable: object("poolboot.Cluster", named(fields{})),
}

type fields map[string]*apiservercel.DeclType

// named adds the fields that every Kubernetes object has.
func named(own fields) fields {
	own["name"], own["namespace"] = text(maxName), text(maxName)
	own["labels"] = apiservercel.NewMapType(text(maxLabelKey), text(maxLabelValue), maxElements)
	own["annotations"] = apiservercel.NewMapType(text(maxLabelKey), text(maxAnnotation), maxElements)
	return own
}

func object(name string, of fields) *apiservercel.DeclType {
	declared := make(map[string]*apiservercel.DeclField, len(of))
	for field, t := range of {
		declared[field] = apiservercel.NewDeclField(field, t, false, nil, nil)
	}
	return apiservercel.NewObjectType(name, declared)
}

func list(of *apiservercel.DeclType) *apiservercel.DeclType {
	return apiservercel.NewListType(of, maxElements)
}

func text(size int64) *apiservercel.DeclType {
	t := *apiservercel.StringType
	t.MaxElements = size
	return &t
}
