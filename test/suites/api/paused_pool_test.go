package api

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The pausedConfiguration of a pool", func() {
	const pausedYAML = "pausedConfiguration: {name: rendered-edge-1}"
	// change creates a pool with one spec and applies a merge patch to it.
	change := func(ctx SpecContext, before, after string) error {
		pool := newObject("MachineConfigPool", `{metadata: {name: null, generateName: edge-}, spec: {`+before+`}}`)
		Expect(k8sClient.Create(ctx, pool)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8sClient.Delete(ctx, pool)).To(Succeed()) })
		return k8sClient.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{`+after+`}}`)))
	}
	const pausedJSON = `"pausedConfiguration":{"name":"rendered-edge-1"}`

	DescribeTable("is accepted", func(ctx SpecContext, before, after string) { Expect(change(ctx, before, after)).To(Succeed()) },
		Entry("together with paused", "poolRole: edge", `"paused":true,`+pausedJSON),
		Entry("while paused is true", "paused: true", pausedJSON),
		Entry("as another one while paused is true", "paused: true, "+pausedYAML, `"pausedConfiguration":{"name":"rendered-edge-2"}`),
		Entry("unchanged when paused becomes false, until Poolboot removes it", "paused: true, "+pausedYAML, `"paused":false`),
		Entry("unchanged when paused is removed", "paused: true, "+pausedYAML, `"paused":null`),
		Entry("unchanged when other fields are written", "paused: false, "+pausedYAML, `"nodeLabels":{"a":"b"}`),
		Entry("when it is removed", "paused: false, "+pausedYAML, `"pausedConfiguration":null`),
		Entry("as clusterctl move creates it", "paused: false, "+pausedYAML, `"paused":false`),
	)
	DescribeTable("is refused", func(ctx SpecContext, before, after, field string, words ...string) {
		Expect(change(ctx, before, after)).To(matchRefusal(field, words...))
	},
		Entry("when the pool is not paused", "poolRole: edge", pausedJSON, "spec.pausedConfiguration", "only while paused is true", "leave it out"),
		Entry("when paused becomes false in the same write", "paused: true", `"paused":false,`+pausedJSON, "spec.pausedConfiguration", "only while paused is true"),
		Entry("as another one when the pool is not paused", "paused: false, "+pausedYAML, `"pausedConfiguration":{"name":"rendered-edge-2"}`,
			"spec.pausedConfiguration", "only while paused is true"),
		Entry("without a name", "paused: true", `"pausedConfiguration":{}`, "spec.pausedConfiguration.name", "Required"),
	)
})
