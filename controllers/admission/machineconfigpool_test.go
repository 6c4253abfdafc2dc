package admission

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// aPool returns a pool of the Cluster c1 that selects the MachineConfigs labelled role=<role> and is changed by edits.
func aPool(name, role string, edits ...func(*poolv1.MachineConfigPoolSpec)) *poolv1.MachineConfigPool {
	p := &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "site"},
		Spec: poolv1.MachineConfigPoolSpec{
			ClusterName: "c1", PoolRole: role,
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}},
		},
	}
	for _, edit := range edits {
		edit(&p.Spec)
	}
	return p
}

func nodeSelector(labels map[string]string, expressions ...metav1.LabelSelectorRequirement) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) {
		s.NodeSelector = &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: expressions}
	}
}

func nodeLabels(labels map[string]string) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) { s.NodeLabels = labels }
}

func nodeLabelRules(rules ...nodev1.NodeLabelRule) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) { s.NodeLabelRules = rules }
}

func nodeTaints(taints ...nodev1.Taint) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) { s.NodeTaints = taints }
}

// webhookWith is the webhook of a management cluster with the Cluster c1 and these objects.
func webhookWith(objects ...client.Object) *MachineConfigPool {
	scheme := runtime.NewScheme()
	Expect(poolv1.AddToScheme(scheme)).To(Succeed())
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	objects = append(objects, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "site"}})
	return &MachineConfigPool{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

var _ = Describe("MachineConfigPool webhook", func() {
	config := func(name string, labels map[string]string) *poolv1.MachineConfig {
		return &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "site", Labels: labels}}
	}

	DescribeTable("takes pools that Nodes can be registered in",
		func(p *poolv1.MachineConfigPool) {
			warnings, err := webhookWith(aPool("worker", "worker"), config("50-infra", map[string]string{"role": "infra"})).ValidateCreate(ctx(), p)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(BeEmpty())
		},
		Entry("by default", aPool("infra", "infra")),
		Entry("with rules over hosts", aPool("infra", "infra", nodeLabelRules(rack))),
		Entry("with labels and taints", aPool("infra", "infra", nodeLabels(map[string]string{"node.cluster.x-k8s.io/pool": "infra", "example.com/rack": "r1"}),
			nodeTaints(nodev1.Taint{Key: "node-role.kubernetes.io/infra", Effect: corev1.TaintEffectNoSchedule}))),
		Entry("what Nodes must not have, beside what they must", aPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/infra": ""},
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/worker", Operator: metav1.LabelSelectorOpDoesNotExist},
			metav1.LabelSelectorRequirement{Key: "node-restriction.kubernetes.io/site", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}}))),
		Entry("several values beside the one that it is", aPool("infra", "infra", nodeSelector(map[string]string{"node-restriction.kubernetes.io/size": "small"},
			metav1.LabelSelectorRequirement{Key: "node-restriction.kubernetes.io/size", Operator: metav1.LabelSelectorOpIn, Values: []string{"small", "big"}}))),
		Entry("Exists, and In with one value", aPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/infra", Operator: metav1.LabelSelectorOpExists},
			metav1.LabelSelectorRequirement{Key: "node-restriction.kubernetes.io/site", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}))),
	)

	DescribeTable("refuses pools that can't work and names the field and the cure",
		func(p *poolv1.MachineConfigPool, fieldPath string, words ...string) {
			others := []client.Object{aPool("worker", "worker"), aPool("gpu", "gpu", nodeLabels(map[string]string{"example.com/site": "a"}))}
			_, err := webhookWith(others...).ValidateCreate(ctx(), p)
			Expect(err).To(refuse(fieldPath, words...))
		},
		Entry("a selector that no labels can be derived from", aPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/infra", Operator: metav1.LabelSelectorOpDoesNotExist})),
			"spec.nodeSelector.matchExpressions[0]", "Exists"),
		Entry("In with two values", aPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "example.com/site", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}})),
			"spec.nodeSelector.matchExpressions[0]", "example.com/site In [a, b]", "spec.nodeLabels"),
		Entry("an empty selector", aPool("infra", "infra", nodeSelector(nil)), "spec.nodeSelector", "leave it out"),
		Entry("a malformed MachineConfig selector", aPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) {
			s.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "role", Operator: "Like"}}}
		}), "spec.machineConfigSelector.matchExpressions[0].operator"),
		Entry("labels that contradict the selector", aPool("infra", "infra", nodeLabels(map[string]string{"node-role.kubernetes.io/infra": "no"})),
			"spec.nodeLabels", "nodeSelector"),
		Entry("selecting by the label of another pool", aPool("infra", "infra", nodeSelector(map[string]string{"node.cluster.x-k8s.io/pool": "gpu"})),
			"spec.nodeSelector[node.cluster.x-k8s.io/pool]", "leave it out"),
		Entry("a role that is taken", aPool("gpu-2", "gpu"), "spec.poolRole", "MachineConfigPool gpu", "another role"),
		Entry("labels of another pool", aPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/gpu": ""})),
			"spec.nodeSelector", "gpu"),
		Entry("labels that another pool's Nodes have", aPool("infra", "infra", nodeSelector(map[string]string{"example.com/site": "a"})),
			"spec.nodeSelector", "MachineConfigPool gpu"),
		Entry("labels of another pool and one more", aPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/gpu": "", "example.com/x": ""})),
			"spec.nodeSelector", "gpu"),
		Entry("some of the labels that another pool selects by", aPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "example.com/site", Operator: metav1.LabelSelectorOpExists})), "spec.nodeSelector", "MachineConfigPool gpu"),
		Entry("labels of the worker pool's Nodes", aPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/worker": ""})),
			"spec.nodeSelector", "MachineConfigPool worker"),
		Entry("a label rule whose expression does not compile", aPool("infra", "infra", nodeLabelRules(rack, nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.nmae"})),
			"spec.nodeLabelRules[1].valueExpression", "1:5: undefined field 'nmae'"),
		Entry("a label rule that nodeLabels sets", aPool("infra", "infra", nodeLabels(map[string]string{rack.Key: "r1"}), nodeLabelRules(rack)),
			"spec.nodeLabelRules[0].key", "spec.nodeSelector or spec.nodeLabels gives it a value"),
	)

	It("refuses a label rule by which another pool selects its Nodes", func() {
		gpu := aPool("gpu", "gpu", nodeSelector(map[string]string{"example.com/site": "a"}))
		infra := aPool("infra", "infra", nodeLabelRules(nodev1.NodeLabelRule{Key: "example.com/site", ValueExpression: `"a"`}))
		Expect(webhookWith(gpu).ValidateCreate(ctx(), infra)).Error().To(refuse("spec.nodeLabelRules[0].key", "MachineConfigPool gpu selects its Nodes by it"))
	})

	It("knows the pools of other Clusters and namespaces apart", func() {
		elsewhere := aPool("infra-2", "infra", func(s *poolv1.MachineConfigPoolSpec) { s.ClusterName = "c2" })
		otherNamespace := aPool("infra-3", "infra")
		otherNamespace.Namespace = "other"
		_, err := webhookWith(elsewhere, otherNamespace).ValidateCreate(ctx(), aPool("infra", "infra"))
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("warns of what is seldom meant",
		func(p *poolv1.MachineConfigPool, words ...string) {
			rendered := config("rendered-infra-0", map[string]string{"role": "infra", poolv1.RenderedForLabel: "infra"})
			warnings, err := webhookWith(config("50-gpu", map[string]string{"role": "gpu"}), rendered).ValidateCreate(ctx(), p)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveLen(1))
			for _, word := range words {
				Expect(warnings[0]).To(ContainSubstring(word))
			}
		},
		Entry("no MachineConfig is selected", aPool("infra", "infra"), "spec.machineConfigSelector", "site"),
		Entry("no selector, which selects nothing", aPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) { s.MachineConfigSelector = nil }),
			"spec.machineConfigSelector"),
		Entry("a kubelet may set what selects its Node", aPool("gpu", "gpu", nodeSelector(map[string]string{"example.com/site": "a"})),
			"spec.nodeSelector", "example.com/site", "node-restriction.kubernetes.io/"),
		Entry("a Cluster that does not exist, or is in another namespace", aPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) { s.ClusterName = "c2" }),
			"spec.clusterName", "site/c2", "does not exist now", "in the namespace of its Cluster"),
		Entry("what a paused pool hands out, of one that is not paused", aPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) {
			s.PausedConfiguration.Name = "rendered-gpu-0"
		}), "spec.pausedConfiguration", "not paused", "leave it out"),
	)

	Describe("warns of a Node that could be in two custom pools", func() {
		restricted := func(key string) string { return "node-restriction.kubernetes.io/" + key }
		warn := func(p *poolv1.MachineConfigPool) []string {
			GinkgoHelper()
			warnings, err := webhookWith(aPool("worker", "worker"), aPool("gpu", "gpu"),
				aPool("far", "far", nodeSelector(map[string]string{restricted("site"): "far"})),
				config("50", map[string]string{"role": p.Spec.PoolRole})).ValidateCreate(ctx(), p)
			Expect(err).NotTo(HaveOccurred())
			return warnings
		}
		DescribeTable("and names the other pools",
			func(p *poolv1.MachineConfigPool, names, cure string) {
				Expect(warn(p)).To(ConsistOf(And(ContainSubstring("MachineConfigPool(s) "+names+", and can be in one custom pool only"),
					ContainSubstring(cure))))
			},
			Entry("a role beside a site", aPool("infra", "infra"), "far", "Have them select by their own node-role.kubernetes.io/ label alone"),
			Entry("a rack beside a role and a site", aPool("rack", "rack", nodeSelector(map[string]string{restricted("rack"): "1"})), "far, gpu", "Select by node-role.kubernetes.io/rack alone"),
			Entry("a site that a Node needs beside another label", aPool("infra", "infra", nodeSelector(map[string]string{restricted("site"): "near", "node-role.kubernetes.io/infra": ""})), "gpu", "Select by node-role.kubernetes.io/infra alone"),
		)
		It("but not of one that would need two values of a label, of two roles, or of the worker pool", func() {
			Expect(warn(aPool("near", "near", nodeSelector(map[string]string{restricted("site"): "near", "node-role.kubernetes.io/near": ""})))).To(ConsistOf(
				And(ContainSubstring("gpu"), Not(ContainSubstring("far")))))
			far := aPool("far", "far", nodeSelector(map[string]string{restricted("site"): "far"}))
			Expect(overlapping(*aPool("infra", "infra"), []poolv1.MachineConfigPool{*aPool("gpu", "gpu"), *aPool("worker", "worker")})).To(BeEmpty())
			Expect(overlapping(*aPool("worker", "worker"), []poolv1.MachineConfigPool{*far})).To(BeEmpty())
		})
	})

	It("looks at an update only when the spec changed", func() {
		webhook := webhookWith(aPool("gpu", "gpu"))
		before := aPool("gpu-2", "gpu")
		after := before.DeepCopy()
		after.Labels = map[string]string{"a": "b"}
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		after.Spec.Paused = new(true)
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().To(refuse("spec.poolRole"))
	})

	It("does not take a pool unseen when the others can't be read", func() {
		scheme := runtime.NewScheme()
		Expect(poolv1.AddToScheme(scheme)).To(Succeed())
		broken := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("down")
			},
		}).Build()
		_, err := (&MachineConfigPool{Reader: broken}).ValidateCreate(ctx(), aPool("infra", "infra"))
		Expect(apierrors.IsInternalError(err)).To(BeTrue())
	})
})
