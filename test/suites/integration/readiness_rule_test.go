package integration

import (
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("The readiness rules of a workload cluster", Serial, func() {
	It("taint the Node that they select from its first version", func(ctx SpecContext) {
		definition := newRuleDefinition()
		_, err := envtest.InstallCRDs(lab.Workload.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{definition}})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) { Expect(lab.WorkloadClient.Delete(ctx, definition)).To(Succeed()) })

		t := tenant.New(ctx, lab, 1)
		for name, rack := range map[string]string{"selecting": "r7", "other": "r8"} {
			Expect(lab.WorkloadClient.Create(ctx, newRule(name, rack))).To(Succeed())
		}
		var mu sync.Mutex
		first := map[string][]corev1.Taint{}
		Expect(site.Follow(ctx, lab.WorkloadClient, &corev1.NodeList{}, func(kind watch.EventType, node *corev1.Node) {
			mu.Lock()
			defer mu.Unlock()
			if kind == watch.Added {
				first[node.Name] = node.Spec.Taints
			}
		})).To(Succeed())
		config, _ := bootHost(ctx, t, nil)
		Eventually(func() []corev1.Taint {
			mu.Lock()
			defer mu.Unlock()
			return first[config.Status.NodeRef.Name]
		}).Should(And(ContainElement(corev1.Taint{Key: "readiness.k8s.io/selecting", Value: "pending", Effect: corev1.TaintEffectNoSchedule}),
			Not(ContainElement(HaveField("Key", "readiness.k8s.io/other")))))

		By("leaving the taint to the node readiness controller afterwards")
		node := t.Node(ctx, config)
		before := node.DeepCopy()
		node.Spec.Taints = nil
		Expect(lab.WorkloadClient.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
		Consistently(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).ShouldNot(ContainElement(HaveField("Key", "readiness.k8s.io/selecting")))
	})
})

// newRule returns a readiness rule for the Nodes of a rack.
func newRule(name, rack string) *unstructured.Unstructured {
	rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"conditions":      []any{map[string]any{"type": "example.com/NetworkReady", "requiredStatus": "True"}},
		"enforcementMode": "bootstrap-only",
		"taint":           map[string]any{"key": "readiness.k8s.io/" + name, "value": "pending", "effect": "NoSchedule"},
		"nodeSelector":    map[string]any{"matchLabels": map[string]any{"rack.node.cluster.x-k8s.io/id": rack}},
	}}}
	rule.SetGroupVersionKind(registration.ReadinessGroupVersion.WithKind(registration.ReadinessRuleKind))
	rule.SetName(name)
	return rule
}

// newRuleDefinition returns a CustomResourceDefinition that serves readiness rules and accepts any fields.
func newRuleDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "nodereadinessrules." + registration.ReadinessGroupVersion.Group,
			Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, for a test"}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: registration.ReadinessGroupVersion.Group,
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: registration.ReadinessRuleKind, ListKind: registration.ReadinessRuleKind + "List",
				Plural: "nodereadinessrules", Singular: "nodereadinessrule"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: registration.ReadinessGroupVersion.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true)}}}},
		},
	}
}
