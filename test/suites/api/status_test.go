package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// report merges a patch in YAML into the status of a valid object of a kind.
func report(ctx SpecContext, kind, patch string) error {
	GinkgoHelper()
	object := with(kind, `{}`)
	object.SetName("")
	object.SetGenerateName("status-")
	Expect(c.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, object)).To(Succeed()) })
	document, err := yaml.YAMLToJSON([]byte(patch))
	Expect(err).NotTo(HaveOccurred(), patch)
	return c.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, document))
}

var _ = DescribeTable("A status is taken with", func(ctx SpecContext, kind, status string) {
	Expect(report(ctx, kind, "status: "+status)).To(Succeed())
},
	Entry("counters from zero on", "MachineConfigPool", `{machineCount: 0, updatedMachineCount: 0, readyMachineCount: 0, unavailableMachineCount: 0, degradedMachineCount: 0}`),
	Entry("as many sources as a pool may render", "MachineConfigPool", fmt.Sprintf(`{configuration: {name: rendered-edge-1, source: [%s]}}`, sources(1000))),
	Entry("a host and its addresses", "PoolbootConfig", `{hostRef: {name: edge-1, namespace: metal, uid: "1"}, hostAddresses: [192.0.2.7, "2001:db8::7"]}`),
)

var _ = DescribeTable("A status is refused with", func(ctx SpecContext, kind, status, field string, words ...string) {
	Expect(report(ctx, kind, "status: "+status)).To(refuse(field, words...))
},
	Entry("a counter below zero", "MachineConfigPool", `{machineCount: -1}`, "status.machineCount", "greater than or equal to 0"),
	Entry("more sources than a pool may render", "MachineConfigPool", fmt.Sprintf(`{configuration: {name: rendered-edge-1, source: [%s]}}`, sources(1001)),
		"status.configuration.source", "at most 1000 items"),
	Entry("a host without a UID", "PoolbootConfig", `{hostRef: {name: edge-1, namespace: metal}}`, "status.hostRef.uid", "Required"),
	Entry("a Node whose name can't be", "PoolbootConfig", `{nodeRef: {name: a..b, uid: "1"}}`, "status.nodeRef.name", "lowercase RFC 1123 subdomain"),
	Entry("an address of a host that is none", "PoolbootConfig", `{hostAddresses: [192.0.2.7, 192.0.2.256]}`, "status.hostAddresses", "IP address"),
	Entry("a derived label whose value is too long", "PoolbootConfig", fmt.Sprintf(`{derivedNodeLabels: {a: %s}}`, strings.Repeat("a", 64)), "status.derivedNodeLabels", "a value at most 63"),
	Entry("a credential whose ID is no bootstrap token's", "PoolbootConfig", `{boot: {credentialID: abc}}`, "status.boot.credentialID", "at least 6 chars"),
)

// sources are the names of MachineConfigs, each as long as it may be.
func sources(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("{name: %s%04d}", strings.Repeat("a", 249), i)
	}
	return strings.Join(names, ", ")
}
