package api

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("What a paused pool hands out", func() {
	const held = "pausedConfiguration: {name: rendered-edge-1}"
	// change creates a pool with one spec and merges another over it.
	change := func(ctx SpecContext, before, after string) error {
		pool := with("MachineConfigPool", `{metadata: {name: null, generateName: edge-}, spec: {`+before+`}}`)
		Expect(c.Create(ctx, pool)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, pool)).To(Succeed()) })
		return c.Patch(ctx, pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{`+after+`}}`)))
	}
	const json = `"pausedConfiguration":{"name":"rendered-edge-1"}`

	DescribeTable("is taken", func(ctx SpecContext, before, after string) { Expect(change(ctx, before, after)).To(Succeed()) },
		Entry("with the pause", "poolRole: edge", `"paused":true,`+json),
		Entry("in a pause", "paused: true", json),
		Entry("another one in a pause", "paused: true, "+held, `"pausedConfiguration":{"name":"rendered-edge-2"}`),
		Entry("unchanged when the pause ends, until Poolboot removes it", "paused: true, "+held, `"paused":false`),
		Entry("unchanged when the pause is taken out", "paused: true, "+held, `"paused":null`),
		Entry("unchanged by whoever writes something else then", "paused: false, "+held, `"nodeLabels":{"a":"b"}`),
		Entry("as it is removed", "paused: false, "+held, `"pausedConfiguration":null`),
		Entry("as clusterctl move creates it", "paused: false, "+held, `"paused":false`),
	)
	DescribeTable("is refused", func(ctx SpecContext, before, after, field string, words ...string) {
		Expect(change(ctx, before, after)).To(refuse(field, words...))
	},
		Entry("when the pool is not paused", "poolRole: edge", json, "spec.pausedConfiguration", "only while paused is true", "leave it out"),
		Entry("when the pause ends in the same write", "paused: true", `"paused":false,`+json, "spec.pausedConfiguration", "only while paused is true"),
		Entry("as another one when the pool is not paused", "paused: false, "+held, `"pausedConfiguration":{"name":"rendered-edge-2"}`,
			"spec.pausedConfiguration", "only while paused is true"),
		Entry("without a name", "paused: true", `"pausedConfiguration":{}`, "spec.pausedConfiguration.name", "Required"),
	)
})
