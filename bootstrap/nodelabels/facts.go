package nodelabels

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Facts are the input of an expression. An empty fact is missing.
type Facts struct {
	// values are the values of the variables, by name.
	values map[string]any
	// hostKind is the kind of the host. It is empty if the kind is unknown.
	hostKind record.HostKind
}

// Source is the source of the facts about a host that boots.
type Source struct {
	// Config is the PoolbootConfig of the host.
	Config *bootstrapv1.PoolbootConfig
	// BareMetalHost is nil for an enrolled host, of which only the name is known, and for a host of another
	// infrastructure provider, of which nothing is known. Hardware is nil if it is unknown.
	BareMetalHost *bmov1alpha1.BareMetalHost
	Hardware      *bmov1alpha1.HardwareDetails
	// Machine is nil for a host without a Machine.
	Machine *clusterv1.Machine
	Cluster *clusterv1.Cluster
}

// Facts returns the facts with which the rules of the pool and of the PoolbootConfig are evaluated when the host boots.
func (h Source) Facts() Facts {
	bmh := h.BareMetalHost
	if bmh == nil {
		bmh = &bmov1alpha1.BareMetalHost{}
		if record.IsMachineless(h.Config) {
			bmh.Name = h.Config.Spec.Host.NodeName
		}
	}
	facts := NewFacts(bmh, h.Hardware, h.Machine, h.Cluster)
	facts.hostKind = record.HostKindOf(h.Config)
	return facts
}

// NewFacts returns the facts about a host. hardware is nil if it is unknown. machine and cluster are nil if the host
// has none.
func NewFacts(host *bmov1alpha1.BareMetalHost, hardware *bmov1alpha1.HardwareDetails, machine *clusterv1.Machine, cluster *clusterv1.Cluster) Facts {
	ofHost, ofMachine, ofCluster := fieldValues{}, fieldValues{}, fieldValues{}
	ofHost.addObject(host)
	ofHost.addText("uid", string(host.UID), maxName)
	if hardware != nil {
		ofHost["hardware"] = factsOfHardware(hardware)
	}
	if machine != nil {
		ofMachine.addObject(machine)
		ofMachine.addText("version", machine.Spec.Version, maxName)
		ofMachine.addText("failureDomain", machine.Spec.FailureDomain, maxName)
	}
	if cluster != nil {
		ofCluster.addObject(cluster)
	}
	return Facts{values: map[string]any{hostVariable: map[string]any(ofHost), machineVariable: map[string]any(ofMachine), clusterVariable: map[string]any(ofCluster)}}
}

func factsOfHardware(h *bmov1alpha1.HardwareDetails) map[string]any {
	hardware, cpu, bios := fieldValues{}, fieldValues{}, fieldValues{}
	hardware.addText("vendor", h.SystemVendor.Manufacturer, maxText)
	hardware.addText("product", h.SystemVendor.ProductName, maxText)
	hardware.addText("serial", h.SystemVendor.SerialNumber, maxText)
	hardware.addText("hostname", h.Hostname, maxText)
	hardware.addNumber("memoryMebibytes", int64(h.RAMMebibytes))

	cpu.addText("arch", h.CPU.Arch, maxText)
	cpu.addText("model", h.CPU.Model, maxText)
	if h.CPU.ClockMegahertz != 0 {
		cpu["clockMegahertz"] = float64(h.CPU.ClockMegahertz)
	}
	cpu.addNumber("count", int64(h.CPU.Count))
	if len(h.CPU.Flags) > 0 {
		cpu["flags"] = convertItems(h.CPU.Flags, func(flag string) string { return truncate(flag, maxText) })
	}
	hardware.addPart("cpu", cpu)

	bios.addText("vendor", h.Firmware.BIOS.Vendor, maxText)
	bios.addText("version", h.Firmware.BIOS.Version, maxText)
	bios.addText("date", h.Firmware.BIOS.Date, maxText)
	hardware.addPart("bios", bios)

	hardware["nics"] = convertItems(h.NIC, factsOfNIC)
	hardware["disks"] = convertItems(h.Storage, factsOfDisk)
	return hardware
}

func factsOfNIC(n bmov1alpha1.NIC) map[string]any {
	nic := fieldValues{"pxe": n.PXE}
	nic.addText("name", n.Name, maxText)
	nic.addText("model", n.Model, maxText)
	nic.addText("mac", n.MAC, maxText)
	nic.addText("ip", n.IP, maxText)
	nic.addNumber("speedGbps", int64(n.SpeedGbps))
	nic.addNumber("vlanID", int64(n.VLANID))
	if n.LLDP != nil {
		lldp := fieldValues{}
		lldp.addText("switchID", n.LLDP.SwitchID, maxText)
		lldp.addText("portID", n.LLDP.PortID, maxText)
		lldp.addText("switchSystemName", n.LLDP.SwitchSystemName, maxText)
		nic.addPart("lldp", lldp)
	}
	return nic
}

func factsOfDisk(s bmov1alpha1.Storage) map[string]any {
	disk := fieldValues{"rotational": s.Rotational}
	disk.addText("name", s.Name, maxText)
	disk.addText("type", string(s.Type), maxText)
	disk.addNumber("sizeBytes", int64(s.SizeBytes))
	disk.addText("vendor", s.Vendor, maxText)
	disk.addText("model", s.Model, maxText)
	disk.addText("serial", s.SerialNumber, maxText)
	disk.addText("wwn", s.WWN, maxText)
	disk.addText("hctl", s.HCTL, maxText)
	return disk
}

// fieldValues contains the fields of an object that are known.
type fieldValues map[string]any

func (k fieldValues) addObject(o metav1.Object) {
	k.addText("name", o.GetName(), maxName)
	k.addText("namespace", o.GetNamespace(), maxName)
	k["labels"] = convertMap(o.GetLabels(), maxLabelValue)
	k["annotations"] = convertMap(o.GetAnnotations(), maxAnnotation)
}

func (k fieldValues) addText(field, value string, size int) {
	if value != "" {
		k[field] = truncate(value, size)
	}
}

func (k fieldValues) addNumber(field string, value int64) {
	if value != 0 {
		k[field] = value
	}
}

func (k fieldValues) addPart(field string, of fieldValues) {
	if len(of) > 0 {
		k[field] = map[string]any(of)
	}
}

// convertItems converts the first maxElements items of a list to facts.
func convertItems[in, out any](of []in, fact func(in) out) []out {
	facts := make([]out, 0, min(len(of), maxElements))
	for _, one := range of[:min(len(of), maxElements)] {
		facts = append(facts, fact(one))
	}
	return facts
}

// convertMap returns the first maxElements entries of a map, in the order of their keys.
func convertMap(of map[string]string, size int) orderedMap {
	facts := make(map[string]string, min(len(of), maxElements))
	keys := slices.Sorted(maps.Keys(of))[:min(len(of), maxElements)]
	for i, key := range keys {
		keys[i] = truncate(key, maxLabelKey)
		facts[keys[i]] = truncate(of[key], size)
	}
	return orderedMap{
		Mapper: types.NewStringStringMap(types.DefaultTypeAdapter, facts),
		keys:   types.NewStringList(types.DefaultTypeAdapter, slices.Compact(keys)),
	}
}

// orderedMap is a map that a loop iterates in the order of the keys. The result of the loop is therefore always the
// same.
type orderedMap struct {
	traits.Mapper
	keys traits.Lister
}

// Iterator iterates over the keys in their order.
func (m orderedMap) Iterator() traits.Iterator { return m.keys.Iterator() }

// truncate returns the first size characters of a string.
func truncate(value string, size int) string {
	if len(value) <= size {
		return value
	}
	for i := range value {
		if size == 0 {
			return value[:i]
		}
		size--
	}
	return value
}
