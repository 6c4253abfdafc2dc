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

// patchStatus creates a valid object of a kind and merges a YAML patch into its status.
func patchStatus(ctx SpecContext, kind, patch string) error {
	GinkgoHelper()
	object := newObject(kind, `{}`)
	object.SetName("")
	object.SetGenerateName("status-")
	Expect(k8sClient.Create(ctx, object)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(k8sClient.Delete(ctx, object)).To(Succeed()) })
	document, err := yaml.YAMLToJSON([]byte(patch))
	Expect(err).NotTo(HaveOccurred(), patch)
	return k8sClient.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, document))
}

var _ = DescribeTable("A status is accepted with", func(ctx SpecContext, kind, status string) {
	Expect(patchStatus(ctx, kind, "status: "+status)).To(Succeed())
},
	Entry("counters of zero", "MachineConfigPool", `{hostCount: 0, updatedHostCount: 0, readyHostCount: 0, unavailableHostCount: 0, degradedHostCount: 0, agentlessHostCount: 0, outdatedDisksHostCount: 0}`),
	Entry("the maximum number of sources", "MachineConfigPool", fmt.Sprintf(`{configuration: {name: rendered-edge-1, source: [%s]}}`, newSources(1000))),
	Entry("a host and its addresses", "PoolbootConfig", `{hostRef: {name: edge-1, namespace: metal, uid: "1"}, hostAddresses: [192.0.2.7, "2001:db8::7"]}`),
)

var _ = DescribeTable("A status is refused with", func(ctx SpecContext, kind, status, field string, words ...string) {
	Expect(patchStatus(ctx, kind, "status: "+status)).To(matchRefusal(field, words...))
},
	Entry("a negative counter", "MachineConfigPool", `{hostCount: -1}`, "status.hostCount", "greater than or equal to 0"),
	Entry("more than the maximum number of sources", "MachineConfigPool", fmt.Sprintf(`{configuration: {name: rendered-edge-1, source: [%s]}}`, newSources(1001)),
		"status.configuration.source", "at most 1000 items"),
	Entry("a host without a UID", "PoolbootConfig", `{hostRef: {name: edge-1, namespace: metal}}`, "status.hostRef.uid", "Required"),
	Entry("an invalid Node name", "PoolbootConfig", `{nodeRef: {name: a..b, uid: "1"}}`, "status.nodeRef.name", "lowercase RFC 1123 subdomain"),
	Entry("an invalid address of a host", "PoolbootConfig", `{hostAddresses: [192.0.2.7, 192.0.2.256]}`, "status.hostAddresses", "IP address"),
	Entry("a reported address that is none", "PoolbootConfig", `{reportedAddresses: [{address: rack1-u12, firstUsedTime: "2026-01-01T00:00:00.000000Z"}]}`,
		"status.reportedAddresses[0].address", "must be an IP address"),
	Entry("a derived label whose value is too long", "PoolbootConfig", fmt.Sprintf(`{derivedNodeLabels: {a: %s}}`, strings.Repeat("a", 64)), "status.derivedNodeLabels", "a value at most 63"),
	Entry("a credential ID that is not the ID of a bootstrap token", "PoolbootConfig", `{boot: {credentialID: abc}}`, "status.boot.credentialID", "at least 6 chars"),
)

// newSources returns n MachineConfig names of the maximum length.
func newSources(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("{name: %s%04d}", strings.Repeat("a", 249), i)
	}
	return strings.Join(names, ", ")
}
