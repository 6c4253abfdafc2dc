package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

var _ = Describe("A MachineConfig", func() {
	DescribeTable("is taken with", takes("MachineConfig"),
		Entry("kernel arguments", `{}`),
		Entry("Ignition", `spec: {config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/motd, mode: 420}]}}}`),
		Entry("Butane", `spec: {butane: "variant: fcos"}`),
		Entry("nothing", `spec: null`),
		Entry("Butane of as many bytes as it may have", fmt.Sprintf("spec: {butane: %q}", strings.Repeat("é", 1<<19))),
		Entry("all else", `spec: {extensions: [usbguard], fips: true, kernelType: realtime, osImageURL: "quay.io/a/b:c", baseOSExtensionsContainerImage: "quay.io/a/d:c"}`),
	)
	DescribeTable("is refused with", refuses("MachineConfig"),
		Entry("Ignition and Butane", `spec: {config: {ignition: {version: 3.5.0}}, butane: "variant: fcos"}`, "spec.butane", "set config (Ignition) or butane, not both"),
		Entry("a spec that says nothing", `spec: {kernelArguments: null}`, "spec", "at least 1 properties"),
		Entry("Butane of more bytes than it may have, though not of more characters", fmt.Sprintf("spec: {butane: %q}", strings.Repeat("é", 1<<19+1)),
			"spec.butane", "1048576 bytes"),
		Entry("Ignition that is no object", `spec: {config: "{}"}`, "spec.config", "object"),
		Entry("empty Butane", `spec: {butane: ""}`, "spec.butane", "at least 1"),
		Entry("an empty kernel argument", `spec: {kernelArguments: [""]}`, "spec.kernelArguments[0]", "at least 1"),
		Entry("too many kernel arguments", `spec: {kernelArguments: [`+strings.Repeat("a,", 257)+`]}`, "spec.kernelArguments", "256"),
		Entry("a kernel of another type", `spec: {kernelType: fast}`, "spec.kernelType", `"realtime"`),
	)
})
