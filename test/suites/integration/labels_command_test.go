package integration

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("kubectl poolboot labels", func() {
	It("prints the labels and taints of a Machine's pre-registered Node, and exits with 2 if the pool can't have Nodes", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		before := infra.DeepCopy()
		infra.Spec.Node.Labels = map[string]string{"example.com/tier": "infra"}
		infra.Spec.Node.Taints = []nodev1.Taint{{Key: "example.com/quiet", Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule}}
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())

		shell := &terminal{dir: GinkgoT().TempDir()}
		output := shell.run(ctx, "kubectl get pbpool -o yaml -n "+t.Namespace+" > pools.yaml; kubectl poolboot labels -f pools.yaml --pool infra -o json")
		Expect(shell.code).To(BeZero(), output)
		var answer struct{ Labels, Taints []struct{ Text string } }
		Expect(json.Unmarshal([]byte(output), &answer)).To(Succeed(), output)
		Expect(answer.Labels).To(ConsistOf(HaveField("Text", "node-role.kubernetes.io/infra="), HaveField("Text", "poolboot.io/pool=infra"),
			HaveField("Text", "example.com/tier=infra"), HaveField("Text", corev1.LabelOSStable+"=linux")))
		Expect(answer.Taints).To(HaveLen(3))

		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		node := t.Node(ctx, config)
		for _, label := range answer.Labels {
			key, value, _ := strings.Cut(label.Text, "=")
			Expect(node.Labels).To(HaveKeyWithValue(key, value))
		}
		var taints []string
		for i := range node.Spec.Taints {
			taints = append(taints, node.Spec.Taints[i].ToString())
		}
		for _, taint := range answer.Taints {
			if !strings.HasPrefix(taint.Text, clusterv1.NodeUninitializedTaint.Key) { // Cluster API removes it
				Expect(taints).To(ContainElement(taint.Text))
			}
		}

		shell.write("bad.yaml", formatPool("bad", "edge", "bad", "  nodeSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}\n"))
		Expect(unwrap(shell.run(ctx, "kubectl poolboot labels -f bad.yaml --pool bad -o json"))).To(
			Equal("error: bad.yaml: document 1: line 8: MachineConfigPool \"bad\": spec.nodeSelector.matchExpressions[0]: a NotIn [b] only excludes labels: " +
				"add a label that a Node must have, by matchLabels, Exists or In"))
		Expect(shell.code).To(Equal(2))
	})
})
