package rollout_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("A host that Poolboot did not boot, and of which nothing is recorded", func() {
	DescribeTable("counts in a rollout", func(inPool, hasNode bool, want int) {
		pools := []poolv1.MachineConfigPool{{Spec: poolv1.MachineConfigPoolSpec{PoolRole: poolv1.RoleWorker}}}
		config := bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge-7"}}
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionPreview}
		config.Status.PoolRole = poolv1.RoleWorker
		record.RevokeToken(&config)
		var nodes []corev1.Node
		if hasNode {
			node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Labels: map[string]string{poolv1.NodeRoleLabelPrefix + poolv1.RoleWorker: ""},
				Annotations: map[string]string{poolv1.NodeConfigAnnotation: "metal/edge-7"}}}
			if inPool {
				node.Labels[poolv1.NodePoolLabel] = poolv1.RoleWorker
			}
			nodes = append(nodes, node)
		}
		Expect(rollout.HostsOfPool(poolv1.RoleWorker, pools, []bootstrapv1.PoolbootConfig{config}, nil, nodes)).To(HaveLen(want))
	},
		Entry("if its Node is in the pool, as after clusterctl move", true, true, 1),
		Entry("not if its Node is as it was found", false, true, 0),
		Entry("not if its Node does not exist yet", false, false, 0),
	)
})
