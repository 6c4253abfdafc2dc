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
	// of is the kind of the host. It is empty if the kind is unknown.
	of record.HostKind
}

// Host is the source of the facts about a host that boots.
type Host struct {
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
func (h Host) Facts() Facts {
	bmh := h.BareMetalHost
	if bmh == nil {
		bmh = &bmov1alpha1.BareMetalHost{}
		if record.IsMachineless(h.Config) {
			bmh.Name = h.Config.Spec.Host.NodeName
		}
	}
	facts := NewFacts(bmh, h.Hardware, h.Machine, h.Cluster)
	facts.of = record.HostKindOf(h.Config)
	return facts
}

// NewFacts returns the facts about a host. hardware is nil if it is unknown. machine and cluster are nil if the host
// has none.
func NewFacts(host *bmov1alpha1.BareMetalHost, hardware *bmov1alpha1.HardwareDetails, machine *clusterv1.Machine, cluster *clusterv1.Cluster) Facts {
	ofHost, ofMachine, ofCluster := known{}, known{}, known{}
	ofHost.object(host)
	ofHost.text("uid", string(host.UID), maxName)
	if hardware != nil {
		ofHost["hardware"] = factsOfHardware(hardware)
	}
	if machine != nil {
		ofMachine.object(machine)
		ofMachine.text("version", machine.Spec.Version, maxName)
		ofMachine.text("failureDomain", machine.Spec.FailureDomain, maxName)
	}
	if cluster != nil {
		ofCluster.object(cluster)
	}
	return Facts{values: map[string]any{hostVariable: map[string]any(ofHost), machineVariable: map[string]any(ofMachine), clusterVariable: map[string]any(ofCluster)}}
}

func factsOfHardware(h *bmov1alpha1.HardwareDetails) map[string]any {
	hardware, cpu, bios := known{}, known{}, known{}
	hardware.text("vendor", h.SystemVendor.Manufacturer, maxText)
	hardware.text("product", h.SystemVendor.ProductName, maxText)
	hardware.text("serial", h.SystemVendor.SerialNumber, maxText)
	hardware.text("hostname", h.Hostname, maxText)
	hardware.number("memoryMebibytes", int64(h.RAMMebibytes))

	cpu.text("arch", h.CPU.Arch, maxText)
	cpu.text("model", h.CPU.Model, maxText)
	if h.CPU.ClockMegahertz != 0 {
		cpu["clockMegahertz"] = float64(h.CPU.ClockMegahertz)
	}
	cpu.number("count", int64(h.CPU.Count))
	if len(h.CPU.Flags) > 0 {
		cpu["flags"] = each(h.CPU.Flags, func(flag string) string { return cut(flag, maxText) })
	}
	hardware.part("cpu", cpu)

	bios.text("vendor", h.Firmware.BIOS.Vendor, maxText)
	bios.text("version", h.Firmware.BIOS.Version, maxText)
	bios.text("date", h.Firmware.BIOS.Date, maxText)
	hardware.part("bios", bios)

	hardware["nics"] = each(h.NIC, factsOfNIC)
	hardware["disks"] = each(h.Storage, factsOfDisk)
	return hardware
}

func factsOfNIC(n bmov1alpha1.NIC) map[string]any {
	nic := known{"pxe": n.PXE}
	nic.text("name", n.Name, maxText)
	nic.text("model", n.Model, maxText)
	nic.text("mac", n.MAC, maxText)
	nic.text("ip", n.IP, maxText)
	nic.number("speedGbps", int64(n.SpeedGbps))
	nic.number("vlanID", int64(n.VLANID))
	if n.LLDP != nil {
		lldp := known{}
		lldp.text("switchID", n.LLDP.SwitchID, maxText)
		lldp.text("portID", n.LLDP.PortID, maxText)
		lldp.text("switchSystemName", n.LLDP.SwitchSystemName, maxText)
		nic.part("lldp", lldp)
	}
	return nic
}

func factsOfDisk(s bmov1alpha1.Storage) map[string]any {
	disk := known{"rotational": s.Rotational}
	disk.text("name", s.Name, maxText)
	disk.text("type", string(s.Type), maxText)
	disk.number("sizeBytes", int64(s.SizeBytes))
	disk.text("vendor", s.Vendor, maxText)
	disk.text("model", s.Model, maxText)
	disk.text("serial", s.SerialNumber, maxText)
	disk.text("wwn", s.WWN, maxText)
	disk.text("hctl", s.HCTL, maxText)
	return disk
}

// known contains the fields of an object that are known.
type known map[string]any

func (k known) object(o metav1.Object) {
	k.text("name", o.GetName(), maxName)
	k.text("namespace", o.GetNamespace(), maxName)
	k["labels"] = entries(o.GetLabels(), maxLabelValue)
	k["annotations"] = entries(o.GetAnnotations(), maxAnnotation)
}

func (k known) text(field, value string, size int) {
	if value != "" {
		k[field] = cut(value, size)
	}
}

func (k known) number(field string, value int64) {
	if value != 0 {
		k[field] = value
	}
}

func (k known) part(field string, of known) {
	if len(of) > 0 {
		k[field] = map[string]any(of)
	}
}

// each converts the first maxElements items of a list to facts.
func each[in, out any](of []in, fact func(in) out) []out {
	facts := make([]out, 0, min(len(of), maxElements))
	for _, one := range of[:min(len(of), maxElements)] {
		facts = append(facts, fact(one))
	}
	return facts
}

// entries returns the first maxElements entries of a map, in the order of their keys.
func entries(of map[string]string, size int) orderedMap {
	facts := make(map[string]string, min(len(of), maxElements))
	keys := slices.Sorted(maps.Keys(of))[:min(len(of), maxElements)]
	for i, key := range keys {
		keys[i] = cut(key, maxLabelKey)
		facts[keys[i]] = cut(of[key], size)
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

// cut returns the first size characters of a string.
func cut(value string, size int) string {
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
