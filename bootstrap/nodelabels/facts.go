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

// Facts are what an expression is evaluated over. What is empty is not there.
type Facts struct {
	// values are those of the variables, by name.
	values map[string]any
	// of is what the host is; empty when that is not known.
	of record.HostKind
}

// Host is what is known of the host of a boot.
type Host struct {
	// Config is the PoolbootConfig that the host boots by.
	Config *bootstrapv1.PoolbootConfig
	// BareMetalHost is nil for a host that enrolled, of which the name is known, and for one of another infrastructure
	// provider, of which nothing is. Hardware is nil when nothing is known of it.
	BareMetalHost *bmov1alpha1.BareMetalHost
	Hardware      *bmov1alpha1.HardwareDetails
	// Machine is nil for a host without a Machine.
	Machine *clusterv1.Machine
	Cluster *clusterv1.Cluster
}

// Facts are those over which the rules of a pool and of a config are evaluated when the host boots.
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

// NewFacts gathers the facts of a host. hardware is nil when nothing is known of it, machine and cluster are when the
// host serves none.
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

// known are the fields of an object that are known.
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

// each makes a list of at most maxElements facts.
func each[in, out any](of []in, fact func(in) out) []out {
	facts := make([]out, 0, min(len(of), maxElements))
	for _, one := range of[:min(len(of), maxElements)] {
		facts = append(facts, fact(one))
	}
	return facts
}

// entries are the first maxElements entries of a map, in the order of their keys.
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

// orderedMap is a map over which a loop goes in the order of the keys, so that it gives the same result every time.
type orderedMap struct {
	traits.Mapper
	keys traits.Lister
}

// Iterator goes over the keys in their order.
func (m orderedMap) Iterator() traits.Iterator { return m.keys.Iterator() }

// cut returns the first size characters of a text.
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
