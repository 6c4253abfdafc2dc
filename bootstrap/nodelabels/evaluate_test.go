package nodelabels

import (
	"errors"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
)

var _ = Describe("A rule", func() {
	DescribeTable("sets its label from",
		func(expression, value string) {
			result := given(theFacts(), expression)
			Expect(result.Outcome).To(Equal(Set), result.Why)
			Expect(result.Value).To(Equal(value))
		},
		Entry("the name of the host", `host.name.substring(0, 4).lowerAscii()`, "dlls"),
		Entry("a map in the expression", `{"DLLSTX": "dallas", "HSTNTX": "houston"}[host.name.substring(0, 6)]`, "dallas"),
		Entry("the namespace and UID of the host", `host.namespace + "-" + host.uid`, "metal-3f2c"),
		Entry("the labels of the host", `host.labels["rack"] + "-" + host.labels.row`, "r7-12"),
		Entry("an empty label", `host.labels["empty"]`, ""),
		Entry("the annotations of the host", `host.annotations["note"].split(" ")[0]`, "left"),
		Entry("vendor, product and serial", `host.hardware.vendor.find("^[A-Za-z]+") + "." + host.hardware.product.split(" ")[1] + "." + host.hardware.serial`, "Dell.R750.7XK2P"),
		Entry("CPU and memory", `host.hardware.memoryMebibytes >= 512 * 1024 && host.hardware.cpu.count >= 96 ? "large" : "small"`, "large"),
		Entry("numbers", `string(host.hardware.cpu.count) + "x" + string(host.hardware.cpu.clockMegahertz)`, "128x2200"),
		Entry("CPU flags", `"vmx" in host.hardware.cpu.flags ? "yes" : "no"`, "yes"),
		Entry("NICs", `string(host.hardware.nics.map(n, has(n.speedGbps) ? n.speedGbps : 0).max())`, "25"),
		Entry("the switch that a NIC is connected to", `host.hardware.nics.filter(n, n.pxe)[0].lldp.switchSystemName`, "leaf-r7"),
		Entry("disks", `host.hardware.disks.filter(d, !d.rotational && d.sizeBytes > 1000000000000).size() > 0 ? "nvme" : "hdd"`, "nvme"),
		Entry("types of disks", `host.hardware.disks.map(d, d.type).join("-")`, "HDD-NVME"),
		Entry("the BIOS", `host.hardware.bios.version`, "1.9.2"),
		Entry("the Machine", `machine.name + "." + machine.labels["tier"] + "." + machine.version + "." + machine.failureDomain`, "infra-x7k2p.gold.v1.36.3.fd-1"),
		Entry("the Cluster", `cluster.name + "." + cluster.labels["site"]`, "edge.dallas-1"),
		Entry("an optional fact that exists", `host.?hardware.?serial`, "7XK2P"),
		Entry("a default", `host.labels[?"zone"].orValue("none")`, "none"),
	)

	Describe("that reads something that does not exist", func() {
		nothing := NewFacts(&bmov1alpha1.BareMetalHost{}, nil, nil, nil)
		DescribeTable("skips its label or blocks the host, as onMissing specifies",
			func(facts Facts, expression, what string) {
				skipped := given(facts, expression)
				Expect(skipped.Outcome).To(Equal(Skipped), skipped.Why)
				Expect(skipped.Why).To(HavePrefix(what))
				blocked := given(facts, expression, block)
				Expect(blocked.Outcome).To(Equal(Blocked))
				Expect(blocked.Why).To(And(HavePrefix(what+": "), MatchRegexp(`(add this fact to the (BareMetalHost|Machine|Cluster)|correct valueExpression or the fact), or set onMissing: Skip`)))
			},
			Entry("a label", theFacts(), `host.labels["zone"]`, `host.labels["zone"] is missing`),
			Entry("a label, read as a field", theFacts(), `host.labels.zone`, `host.labels.zone is missing`),
			Entry("an annotation", theFacts(), `host.annotations["zone"]`, `host.annotations["zone"] is missing`),
			Entry("all hardware", nothing, `host.hardware.vendor`, `host.hardware.vendor is missing`),
			Entry("part of the hardware", nothingKnown(), `host.hardware.cpu.model`, `host.hardware.cpu.model is missing`),
			Entry("an empty vendor", nothingKnown(), `host.hardware.vendor`, `host.hardware.vendor is missing`),
			Entry("unknown memory", nothingKnown(), `host.hardware.memoryMebibytes > 5 ? "a" : "b"`, `host.hardware.memoryMebibytes is missing`),
			Entry("a NIC", nothingKnown(), `host.hardware.nics[0].mac`, `host.hardware.nics[0].mac is missing`),
			Entry("an item of an empty list", theFacts(), `host.hardware.nics.filter(n, n.name == "ib0")[0].mac`, `index out of bounds: 0`),
			Entry("an entry of a map in the expression", theFacts(), `{"HSTNTX": "houston"}[host.name.substring(0, 6)]`, `no such key: DLLSTX`),
			Entry("the Machine", nothing, `machine.name`, `machine.name is missing`),
			Entry("the Cluster", nothing, `cluster.labels["site"]`, `cluster.labels["site"] is missing`),
			Entry("an empty optional", theFacts(), `host.?labels["zone"]`, `host.labels["zone"] is missing`),
			Entry("the value of an empty optional", theFacts(), `host.labels[?"zone"].value()`, `host.labels["zone"] is missing`),
			Entry("a name that does not match", theFacts(), `host.name.matches("^r[0-9]+$") ? optional.of(host.name) : optional.none()`, `the expression returned optional.none()`),
		)
	})

	DescribeTable("never sets an invalid label value",
		func(hardware func(*bmov1alpha1.HardwareDetails), expression, sanitized, why string) {
			h := theHardware()
			hardware(h)
			facts := NewFacts(theHost(), h, nil, nil)
			refused := given(facts, expression)
			Expect(refused.Outcome).To(Equal(Invalid))
			Expect(refused.Value).To(BeEmpty())
			Expect(refused.Why).To(And(ContainSubstring(why), ContainSubstring("onInvalid: Sanitize")))
			Expect(len(refused.Why)).To(BeNumerically("<", 700))
			result := given(facts, expression, sanitizing)
			Expect(result.Outcome).To(Equal(Set), result.Why)
			Expect(result.Value).To(Equal(sanitized))
			Expect(result.Why).To(ContainSubstring("sanitized from "))
		},
		Entry("a space, and a period at the end", func(*bmov1alpha1.HardwareDetails) {}, `host.hardware.vendor`, "Dell-Inc", `"Dell Inc." is not a valid label value`),
		Entry("brackets and other punctuation", func(*bmov1alpha1.HardwareDetails) {}, `host.hardware.cpu.model`, "Intel-R-Xeon-R-Gold-6338N-CPU-2.20GHz", `Gold 6338N`),
		Entry("a serial number with control characters", func(h *bmov1alpha1.HardwareDetails) {
			h.SystemVendor.SerialNumber = "\x1b[2J\x00A1\r\n\x07B2\u202e"
		}, `host.hardware.serial`, "2J-A1-B2", `"\x1b[2J\x00A1\r\n\aB2\u202e" is not a valid label value`),
		Entry("a vendor of 10,000 characters", func(h *bmov1alpha1.HardwareDetails) {
			h.SystemVendor.Manufacturer = strings.Repeat("x", 10_000)
		}, `host.hardware.vendor`, strings.Repeat("x", 63), "…"),
		Entry("a cut that would end with a hyphen", func(h *bmov1alpha1.HardwareDetails) {
			h.SystemVendor.Manufacturer = strings.Repeat("x", 62) + " Inc"
		}, `host.hardware.vendor`, strings.Repeat("x", 62), "is not a valid label value"),
	)

	It("refuses a string without a valid character", func() {
		h := theHardware()
		h.SystemVendor.SerialNumber = "\x00\x01 ---"
		result := given(NewFacts(theHost(), h, nil, nil), `host.hardware.serial`, sanitizing)
		Expect(result).To(And(HaveField("Outcome", Invalid), HaveField("Value", ""), HaveField("Why", ContainSubstring("no characters that a label value can contain"))))
	})

	DescribeTable("that fails for a host is refused, whatever onMissing specifies",
		func(expression, why string) {
			result := given(theFacts(), expression)
			Expect(result.Outcome).To(Equal(Invalid))
			Expect(result.Why).To(And(ContainSubstring(why), ContainSubstring("optional.none()")))
		},
		Entry("a name that is too short", `host.name.substring(0, 40)`, `index out of range: 40, host.name = "DLLSTXNBW02"`),
		Entry("a division by zero", `100 / (host.hardware.cpu.count - 128) > 1 ? "a" : "b"`, "division by zero"),
		Entry("a string that is not a number", `int(host.labels["rack"]) > 1 ? "a" : "b"`, "type conversion error"),
	)

	It("reports the facts that it read, and no others", func() {
		result := given(theFacts(), `has(host.hardware.serial) ? host.labels["rack"] + "-" + host.hardware.serial : machine.name`)
		Expect(result.Facts).To(Equal([]Fact{
			{Path: "has(host.hardware.serial)", Value: "true"}, {Path: `host.labels["rack"]`, Value: `"r7"`}, {Path: "host.hardware.serial", Value: `"7XK2P"`}}))
		Expect(result.Why).To(Equal(`has(host.hardware.serial) = true, host.labels["rack"] = "r7", host.hardware.serial = "7XK2P"`))
		Expect(given(theFacts(), `"fixed"`).Why).To(Equal("the expression read no facts of the host"))
	})

	It("has the same result for the same facts, also in a loop over a map", func() {
		host := theHost()
		for i := range 100 {
			host.Labels[fmt.Sprintf("l%02d", i)] = "x"
		}
		facts := NewFacts(host, nil, nil, nil)
		for range 20 {
			filtered := given(facts, `host.labels.filter(k, k.startsWith("l")).join("").substring(0, 9)`)
			Expect(filtered.Value).To(Equal("l00l01l02"), filtered.Why)
			transformed := given(facts, `host.labels.transformList(k, v, k).join("").substring(0, 11)`)
			Expect(transformed.Value).To(Equal("emptyl00l01"), transformed.Why)
		}
	})
})

var _ = Describe("A host", func() {
	rules := func(of ...nodev1.NodeLabelRule) []Result {
		return Evaluate(theFacts(), Rules{From: "MachineConfigPool metal/infra spec.node.labelRules", Rules: of})
	}
	missing := nodev1.NodeLabelRule{Key: "zone", ValueExpression: `host.labels["zone"]`, OnMissing: nodev1.OnMissingBlock}
	invalid := nodev1.NodeLabelRule{Key: "vendor", ValueExpression: `host.hardware.vendor`}
	fine := nodev1.NodeLabelRule{Key: "rack", ValueExpression: `host.labels["rack"]`}

	It("is not blocked by a rule that sets or skips its label", func() {
		Expect(Blocking(rules(fine, nodev1.NodeLabelRule{Key: "zone", ValueExpression: `host.labels["zone"]`}))).To(Succeed())
	})
	It("waits when only facts are missing", func() {
		err := Blocking(rules(fine, missing))
		Expect(err).To(MatchError(`MachineConfigPool metal/infra spec.node.labelRules[zone]: host.labels["zone"] is missing: add this fact to the BareMetalHost, or set onMissing: Skip`))
		Expect(missingOnly(err)).To(BeTrue())
	})
	It("needs a correction when a value is refused", func() {
		err := Blocking(rules(missing, invalid))
		Expect(missingOnly(err)).To(BeFalse())
		Expect(err).To(MatchError(And(ContainSubstring("[zone]"), ContainSubstring("[vendor]"))))
	})
	It("has a message that fits into an event, however many rules block it", func() {
		var many []nodev1.NodeLabelRule
		for i := range 64 {
			many = append(many, nodev1.NodeLabelRule{Key: fmt.Sprintf("%s/k%d", strings.Repeat("x", 60), i), ValueExpression: `host.hardware.vendor + ` + strings.Repeat(`"x"+`, 300) + `"y z"`})
		}
		err := Blocking(rules(many...))
		Expect(err).To(MatchError(ContainSubstring("; and 61 more")))
		Expect(len(err.Error())).To(BeNumerically("<", 950))
	})
})

// missingOnly reports whether only missing facts block a host.
func missingOnly(err error) bool {
	var blocked *BlockedError
	return errors.As(err, &blocked) && blocked.Missing()
}

// nothingKnown returns the facts about a host whose inspection found nothing.
func nothingKnown() Facts {
	return NewFacts(&bmov1alpha1.BareMetalHost{}, &bmov1alpha1.HardwareDetails{}, nil, nil)
}

var _ = DescribeTable("A missing fact that blocks a host is reported with a remedy that is possible",
	func(host bootstrapv1.HostWithoutMachine, expression, remedy string) {
		config := &bootstrapv1.PoolbootConfig{Spec: bootstrapv1.PoolbootConfigSpec{Host: host}}
		results := Evaluate(Source{Config: config}.Facts(), Rules{Rules: []nodev1.NodeLabelRule{{Key: "a", ValueExpression: expression, OnMissing: nodev1.OnMissingBlock}}})
		Expect(results).To(HaveExactElements(And(HaveField("Outcome", Blocked), HaveField("Why", HaveSuffix(remedy)))))
	},
	Entry("of the host of a Machine", nil, `host.labels["rack"]`, "is missing: add this fact to the BareMetalHost, or set onMissing: Skip"),
	Entry("of a Machine", nil, `machine.labels["rack"]`, "is missing: add this fact to the Machine, or set onMissing: Skip"),
	Entry("of a BareMetalHost", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "a", BareMetalHostName: "a"}, `host.labels["rack"]`, "is missing: add this fact to the BareMetalHost, or set onMissing: Skip"),
	Entry("of the Machine of a BareMetalHost", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "a", BareMetalHostName: "a"}, `machine.labels["rack"]`, "is missing: the host has no Machine: set onMissing: Skip"),
	Entry("of a host that enrolled", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "a", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}, `host.labels["rack"]`,
		"is missing: the host enrolled and has no BareMetalHost, so host.name is its only fact: set onMissing: Skip"),
	Entry("of the Cluster of a host that enrolled", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "a", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}, `cluster.labels["site"]`, "is missing: add this fact to the Cluster, or set onMissing: Skip"),
)
