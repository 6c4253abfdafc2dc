package boot

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

var _ = Describe("The Node of a Machine", func() {
	It("is never an existing Node that was not pre-registered for this Machine", func(ctx SpecContext) {
		w := newSetting().world()
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machineName,
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: namespace + "/another"}}}
		Expect(w.workload.Create(ctx, foreign)).To(Succeed())
		of := func(outcome string) map[string]string { return map[string]string{"pool": "infra", "outcome": outcome} }
		taken, created := scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", of("Taken")), scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", of("Created"))
		_, err := w.sendRequest(ctx)
		Expect(err).To(HaveOccurred())
		Expect(scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", of("Taken")) - taken).To(Equal(1.0))
		Expect(scrape.Sum(metrics.Registry, "poolboot_preregistrations_total", of("Created"))).To(Equal(created))
		expectNotPrepared(ctx, w, bootstrapv1.NodeNameTakenReason, "Node "+machineName, "delete the Node")
		Expect(w.node(ctx)).To(Equal(foreign))
		Expect(w.config(ctx).Status.NodeRef).To(BeZero())
		Expect(w.workload.Delete(ctx, foreign)).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	network := HaveField("Key", "readiness.k8s.io/network")
	createRule := func(ctx context.Context, w *world) {
		GinkgoHelper()
		rule := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"conditions":   []any{map[string]any{"type": "example.com/NetworkReady", "requiredStatus": "True"}},
			"taint":        map[string]any{"key": "readiness.k8s.io/network", "effect": "NoSchedule"},
			"nodeSelector": map[string]any{"matchLabels": map[string]any{infraLabel: ""}},
		}}}
		rule.SetGroupVersionKind(registration.ReadinessGroupVersion.WithKind(registration.ReadinessRuleKind))
		rule.SetName("network")
		Expect(w.workload.Create(ctx, rule)).To(Succeed())
	}

	It("has the taints of the cluster's readiness rules only when it is created", func(ctx SpecContext) {
		w := newSetting().world()
		createRule(ctx, w)
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).Spec.Taints).To(ContainElement(network))

		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) { n.Spec.Taints = nil })
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).Spec.Taints).To(And(Not(BeEmpty()), Not(ContainElement(network))))
	})

	It("has the taints of the cluster's readiness rules also if it replaces the Node of another host", func(ctx SpecContext) {
		w := newSetting().world()
		createRule(ctx, w)
		Expect(w.sendRequest(ctx)).To(BeZero())
		before := w.node(ctx)
		change(ctx, w.workload, before, func(n *corev1.Node) { n.Spec.ProviderID = "metal3://metal/another/one" })
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).UID).NotTo(Equal(before.UID))
		Expect(w.node(ctx).Spec.Taints).To(ContainElement(network))
	})

	It("has the taint of external cloud providers when it is created, if its kubelet has one, and not again when the taint was removed", func(ctx SpecContext) {
		setting := newSetting()
		setting.config.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Butane: "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n" +
			"  - path: /etc/default/kubelet\n    contents: {inline: KUBELET_EXTRA_ARGS=--cloud-provider=external}\n"}
		w := setting.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		uninitialized := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
		Expect(w.node(ctx).Spec.Taints).To(ContainElement(uninitialized))

		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) { n.Spec.Taints = nil })
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).Spec.Taints).To(And(Not(BeEmpty()), Not(ContainElement(uninitialized))))
	})

	It("has the taint of external cloud providers if the rendered config has the flag", func(ctx SpecContext) {
		setting := newSetting()
		w := setting.world()
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: setting.infra.Status.Configuration.Name}}
		Expect(w.management.Delete(ctx, rendered)).To(Succeed())
		_, err := w.sendRequest(ctx)
		Expect(err).To(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.PoolNotRenderedReason, rendered.Name, "does not exist")

		rendered.Spec.KernelArguments = []string{"systemd.setenv=KUBELET_EXTRA_ARGS=--cloud-provider=external"}
		rendered.ResourceVersion = ""
		Expect(w.management.Create(ctx, rendered)).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.node(ctx).Spec.Taints).To(ContainElement(HaveField("Key", "node.cloudprovider.kubernetes.io/uninitialized")))
	})

	It("is never created with the name of the control plane endpoint", func(ctx SpecContext) {
		setting := newSetting()
		setting.cluster.Spec.ControlPlaneEndpoint.Host = machineName
		w := setting.world()
		_, err := w.sendRequest(ctx)
		Expect(err).To(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.NodeNameReservedReason, machineName, "control plane endpoint")
		Expect(w.workload.Get(ctx, client.ObjectKey{Name: machineName}, &corev1.Node{})).To(MatchError(ContainSubstring("not found")))
	})

	It("is not given to the Machine on another host once a kubelet has registered", func(ctx SpecContext) {
		w := newSetting().world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		n := w.node(ctx)
		change(ctx, w.workload, n, func(n *corev1.Node) {
			n.Spec.ProviderID = "metal3://metal/another/one"
			n.Status.NodeInfo.KubeletVersion = "v1.36.3"
		})
		_, err := w.sendRequest(ctx)
		Expect(err).To(MatchError(ContainSubstring("spec.providerID")))
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(Equal(bootstrapv1.NodeNameTakenReason))
	})

	It("gets back what it lost before its kubelet registers, and keeps what a user added or set", func(ctx SpecContext) {
		w := newSetting().world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) {
			delete(n.Labels, poolv1.NodePoolLabel)
			n.Labels["example.com/owner"] = "ops"
			n.Labels["example.com/rack"] = "set by a person"
			n.Labels[poolv1.NodeMetal3UUIDLabel] = "that of the host before a move"
			delete(n.Annotations, agentv1.DesiredConfigAnnotation)
			n.Spec.Taints = []corev1.Taint{{Key: "example.com/mine", Effect: corev1.TaintEffectNoExecute}}
			n.Spec.ProviderID = ""
		})
		Expect(w.sendRequest(ctx)).To(BeZero())
		n := w.node(ctx)
		Expect(n.Labels).To(And(
			HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
			HaveKeyWithValue("example.com/owner", "ops"),
			HaveKeyWithValue("example.com/rack", "set by a person"),
			HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-of-the-host"),
		))
		Expect(n.Annotations).To(HaveKey(agentv1.DesiredConfigAnnotation))
		Expect(n.Spec.ProviderID).NotTo(BeEmpty())
		Expect(n.Spec.Taints).To(ContainElements(
			HaveField("Key", "example.com/mine"),
			HaveField("Key", poolv1.NodeUnassignedTaint),
		))
	})

	It("is left to its kubelet and its users once the kubelet has registered", func(ctx SpecContext) {
		w := newSetting().world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) {
			n.Spec.Taints = nil
			n.Status.NodeInfo.KubeletVersion = "v1.36.3"
		})
		before := w.node(ctx)
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx)).To(Equal(before))
	})

	It("keeps its host waiting while its labels name another pool", func(ctx SpecContext) {
		w := newSetting().world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) {
			delete(n.Labels, infraLabel)
			n.Labels[poolv1.NodeRoleLabelPrefix+poolv1.RoleWorker] = ""
			n.Status.NodeInfo.KubeletVersion = "v1.36.3"
		})
		_, err := w.sendRequest(ctx)
		Expect(err).To(MatchError(And(ContainSubstring(`"worker"`), ContainSubstring(`"infra"`))))
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(Equal(bootstrapv1.LabelConflictReason))
	})
})
