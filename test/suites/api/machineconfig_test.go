package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

var _ = Describe("A MachineConfig", func() {
	DescribeTable("is accepted with", expectAccepted("MachineConfig"),
		Entry("kernel arguments", `{}`),
		Entry("Ignition", `spec: {config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/motd, mode: 420}]}}}`),
		Entry("Butane", `spec: {butane: "variant: fcos"}`),
		Entry("no spec", `spec: null`),
		Entry("Butane of the maximum size in bytes", fmt.Sprintf("spec: {butane: %q}", strings.Repeat("é", 1<<19))),
		Entry("all other fields", `spec: {extensions: [usbguard], fips: true, kernelType: realtime, osImageURL: "quay.io/a/b:c", baseOSExtensionsContainerImage: "quay.io/a/d:c"}`),
	)
	DescribeTable("is refused with", expectRefused("MachineConfig"),
		Entry("Ignition and Butane", `spec: {config: {ignition: {version: 3.5.0}}, butane: "variant: fcos"}`, "spec.butane", "set config (Ignition) or butane, not both"),
		Entry("an empty spec", `spec: {kernelArguments: null}`, "spec", "at least 1 properties"),
		Entry("Butane with too many bytes, but not too many characters", fmt.Sprintf("spec: {butane: %q}", strings.Repeat("é", 1<<19+1)),
			"spec.butane", "1048576 bytes"),
		Entry("Ignition that is not an object", `spec: {config: "{}"}`, "spec.config", "object"),
		Entry("empty Butane", `spec: {butane: ""}`, "spec.butane", "at least 1"),
		Entry("an empty kernel argument", `spec: {kernelArguments: [""]}`, "spec.kernelArguments[0]", "at least 1"),
		Entry("too many kernel arguments", `spec: {kernelArguments: [`+strings.Repeat("a,", 257)+`]}`, "spec.kernelArguments", "256"),
		Entry("an unknown kernel type", `spec: {kernelType: fast}`, "spec.kernelType", `"realtime"`),
	)
})
