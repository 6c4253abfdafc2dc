package nodelabels

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
)

func TestNodeLabelRules(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "label rules")
}

// theHost returns a host with many facts.
func theHost() *bmov1alpha1.BareMetalHost {
	return &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Name: "DLLSTXNBW02", Namespace: "metal", UID: "3f2c",
		Labels:      map[string]string{"rack": "r7", "row": "12", "empty": ""},
		Annotations: map[string]string{"note": "left door"},
	}}
}

func theHardware() *bmov1alpha1.HardwareDetails {
	return &bmov1alpha1.HardwareDetails{
		SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "Dell Inc.", ProductName: "PowerEdge R750", SerialNumber: "7XK2P"},
		Firmware:     bmov1alpha1.Firmware{BIOS: bmov1alpha1.BIOS{Vendor: "Dell Inc.", Version: "1.9.2", Date: "11/17/2025"}},
		Hostname:     "dllstxnbw02.example.com",
		RAMMebibytes: 524288,
		CPU:          bmov1alpha1.CPU{Arch: "x86_64", Model: "Intel(R) Xeon(R) Gold 6338N CPU @ 2.20GHz", ClockMegahertz: 2200, Flags: []string{"avx512f", "vmx"}, Count: 128},
		NIC: []bmov1alpha1.NIC{
			{Name: "eno1", Model: "0x8086 0x1572", MAC: "52:54:00:00:00:01", IP: "192.0.2.4", SpeedGbps: 25, VLANID: 7, PXE: true,
				LLDP: &bmov1alpha1.LLDP{SwitchID: "aa:bb", PortID: "et-0/0/7", SwitchSystemName: "leaf-r7"}},
			{Name: "eno2", MAC: "52:54:00:00:00:02"},
		},
		Storage: []bmov1alpha1.Storage{
			{Name: "/dev/sda", Type: bmov1alpha1.HDD, Rotational: true, SizeBytes: 4 * bmov1alpha1.TeraByte,
				Vendor: "Seagate", Model: "ST4000", SerialNumber: "Z1", WWN: "0x5000", HCTL: "0:0:0:0"},
			{Name: "/dev/nvme0n1", Type: bmov1alpha1.NVME, SizeBytes: 2 * bmov1alpha1.TeraByte},
		},
	}
}

// theFacts returns all facts about theHost.
func theFacts() Facts {
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "infra-x7k2p", Namespace: "metal", Labels: map[string]string{"tier": "gold"}},
		Spec: clusterv1.MachineSpec{Version: "v1.36.3", FailureDomain: "fd-1"}}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "edge", Namespace: "metal", Labels: map[string]string{"site": "dallas-1"}}}
	return NewFacts(theHost(), theHardware(), machine, cluster)
}

// given returns the result of one expression.
func given(facts Facts, expression string, edits ...func(*nodev1.NodeLabelRule)) Result {
	rule := nodev1.NodeLabelRule{Key: "example.com/it", ValueExpression: expression, OnMissing: nodev1.OnMissingSkip, OnInvalid: nodev1.OnInvalidBlock}
	for _, edit := range edits {
		edit(&rule)
	}
	return Evaluate(facts, Rules{From: "MachineConfigPool metal/infra spec.node.labelRules", Rules: []nodev1.NodeLabelRule{rule}})[0]
}

func block(rule *nodev1.NodeLabelRule)      { rule.OnMissing = nodev1.OnMissingBlock }
func sanitizing(rule *nodev1.NodeLabelRule) { rule.OnInvalid = nodev1.OnInvalidSanitize }
