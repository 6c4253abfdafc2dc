package admission

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

// newPool returns a pool of the Cluster c1 that selects MachineConfigs with the label role=<role>.
func newPool(name, role string, edits ...func(*poolv1.MachineConfigPoolSpec)) *poolv1.MachineConfigPool {
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
	return func(s *poolv1.MachineConfigPoolSpec) { s.Node.Labels = labels }
}

func nodeLabelRules(rules ...nodev1.NodeLabelRule) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) { s.Node.LabelRules = rules }
}

func nodeTaints(taints ...nodev1.Taint) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) { s.Node.Taints = taints }
}

// newWebhook returns the webhook of a management cluster with the Cluster c1 and these objects.
func newWebhook(objects ...client.Object) *MachineConfigPool {
	scheme := controllertest.Scheme()
	objects = append(objects, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "site"}})
	return &MachineConfigPool{Reader: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

var _ = Describe("MachineConfigPool webhook", func() {
	config := func(name string, labels map[string]string) *poolv1.MachineConfig {
		return &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "site", Labels: labels}}
	}

	DescribeTable("accepts pools in which Nodes can register",
		func(p *poolv1.MachineConfigPool) {
			warnings, err := newWebhook(newPool("worker", "worker"), config("50-infra", map[string]string{"role": "infra"})).ValidateCreate(ctx(), p)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(BeEmpty())
		},
		Entry("by default", newPool("infra", "infra")),
		Entry("with disruption policies for defaults, and beside them", newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) {
			s.Updates.DisruptionPolicy.Files = []poolv1.PathDisruptionPolicy{{Path: "/etc/containers/policy.json"}, {Path: "/etc/cont"}}
		})),
		Entry("with rules over hosts", newPool("infra", "infra", nodeLabelRules(rack))),
		Entry("with labels and taints", newPool("infra", "infra", nodeLabels(map[string]string{"poolboot.io/pool": "infra", "example.com/rack": "r1"}),
			nodeTaints(nodev1.Taint{Key: "node-role.kubernetes.io/infra", Effect: corev1.TaintEffectNoSchedule}))),
		Entry("what Nodes must not have, beside what they must", newPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/infra": ""},
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/worker", Operator: metav1.LabelSelectorOpDoesNotExist},
			metav1.LabelSelectorRequirement{Key: "node-restriction.kubernetes.io/site", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}}))),
		Entry("several values beside the one that it is", newPool("infra", "infra", nodeSelector(map[string]string{"node-restriction.kubernetes.io/size": "small"},
			metav1.LabelSelectorRequirement{Key: "node-restriction.kubernetes.io/size", Operator: metav1.LabelSelectorOpIn, Values: []string{"small", "big"}}))),
		Entry("Exists, and In with one value", newPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/infra", Operator: metav1.LabelSelectorOpExists},
			metav1.LabelSelectorRequirement{Key: "node-restriction.kubernetes.io/site", Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}))),
	)

	DescribeTable("refuses pools that cannot work, and names the field and the remedy",
		func(p *poolv1.MachineConfigPool, fieldPath string, words ...string) {
			others := []client.Object{newPool("worker", "worker"), newPool("gpu", "gpu", nodeLabels(map[string]string{"example.com/site": "a"}))}
			_, err := newWebhook(others...).ValidateCreate(ctx(), p)
			Expect(err).To(beRefusedAt(fieldPath, words...))
		},
		Entry("a selector that no labels can be derived from", newPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "node-role.kubernetes.io/infra", Operator: metav1.LabelSelectorOpDoesNotExist})),
			"spec.nodeSelector.matchExpressions[0]", "Exists"),
		Entry("In with two values", newPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "example.com/site", Operator: metav1.LabelSelectorOpIn, Values: []string{"a", "b"}})),
			"spec.nodeSelector.matchExpressions[0]", "example.com/site In [a, b]", "spec.node.labels"),
		Entry("an empty selector", newPool("infra", "infra", nodeSelector(nil)), "spec.nodeSelector", "set node-role.kubernetes.io/infra"),
		Entry("a malformed MachineConfig selector", newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) {
			s.MachineConfigSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "role", Operator: "Like"}}}
		}), "spec.machineConfigSelector.matchExpressions[0].operator"),
		Entry("labels that contradict the selector", newPool("infra", "infra", nodeLabels(map[string]string{"node-role.kubernetes.io/infra": "no"})),
			"spec.node.labels", "nodeSelector"),
		Entry("selecting by the label of another pool", newPool("infra", "infra", nodeSelector(map[string]string{"poolboot.io/pool": "gpu"})),
			"spec.nodeSelector[poolboot.io/pool]", "leave it out"),
		Entry("a role that another pool has", newPool("gpu-2", "gpu"), "spec.poolRole", "MachineConfigPool gpu", "another role"),
		Entry("labels of another pool", newPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/gpu": ""})),
			"spec.nodeSelector", "gpu"),
		Entry("labels that the Nodes of another pool have", newPool("infra", "infra", nodeSelector(map[string]string{"example.com/site": "a"})),
			"spec.nodeSelector", "MachineConfigPool gpu"),
		Entry("labels of another pool and one more", newPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/gpu": "", "example.com/x": ""})),
			"spec.nodeSelector", "gpu"),
		Entry("some of the labels that another pool selects by", newPool("infra", "infra", nodeSelector(nil,
			metav1.LabelSelectorRequirement{Key: "example.com/site", Operator: metav1.LabelSelectorOpExists})), "spec.nodeSelector", "MachineConfigPool gpu"),
		Entry("labels of the Nodes of the worker pool", newPool("infra", "infra", nodeSelector(map[string]string{"node-role.kubernetes.io/worker": ""})),
			"spec.nodeSelector", "MachineConfigPool worker"),
		Entry("a maintenance window that never opens", newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) {
			s.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: "0 25 * * 6", DurationMinutes: 60}
		}), "spec.updates.maintenanceWindow.schedule", "Saturdays at 22:00"),
		Entry("an update gate whose expression is not true or false", newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) {
			s.Updates.Gates = []poolv1.UpdateGate{{Name: "storage", ObjectRef: poolv1.UpdateGateObjectReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}, Expression: "object.data"}}
		}), "spec.updates.gates[0].expression", "1:1: the result is of type dyn"),
		Entry("a label rule whose expression does not compile", newPool("infra", "infra", nodeLabelRules(rack, nodev1.NodeLabelRule{Key: "zone", ValueExpression: "host.nmae"})),
			"spec.node.labelRules[1].valueExpression", "1:5: undefined field 'nmae'"),
		Entry("a label rule for a label that node.labels sets", newPool("infra", "infra", nodeLabels(map[string]string{rack.Key: "r1"}), nodeLabelRules(rack)),
			"spec.node.labelRules[0].key", "spec.nodeSelector or spec.node.labels gives it a value"),
	)

	It("refuses that a paused pool hands out what can't be a rendered config of it", func() {
		const annotation, hash = poolv1.PausedConfigurationAnnotation, "6db67f471f5b8ea1b6a6ed0ff73d6a3e"
		before := newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) { s.Paused = new(true) })
		for _, name := range []string{"blah", "infra@6db67f47", "rendered-infra-x", "rendered-infra-gpu-" + hash, "rendered-infra-" + strings.ToUpper(hash)} {
			p := before.DeepCopy()
			p.Annotations = map[string]string{annotation: name}
			Expect(newWebhook().ValidateUpdate(ctx(), before, p)).Error().To(beRefusedAt("metadata.annotations["+annotation+"]", name, "rollout history infra"))
			Expect(newWebhook().ValidateCreate(ctx(), p)).Error().To(beRefusedAt("metadata.annotations[" + annotation + "]"))
			resumed := p.DeepCopy()
			resumed.Spec.Paused = nil
			Expect(newWebhook().ValidateUpdate(ctx(), p, resumed)).Error().NotTo(HaveOccurred())
		}
		p := before.DeepCopy()
		p.Annotations = map[string]string{annotation: "rendered-infra-" + hash}
		Expect(newWebhook().ValidateUpdate(ctx(), before, p)).Error().NotTo(HaveOccurred())
	})

	It("refuses that a pool is to hand out what is no rendered config of it, or does not exist", func() {
		const hash = "6db67f471f5b8ea1b6a6ed0ff73d6a3e"
		before := newPool("infra", "infra")
		pinned := func(name string) *poolv1.MachineConfigPool {
			p := before.DeepCopy()
			p.Spec.ConfigurationName = name
			return p
		}
		own := config("rendered-infra-"+hash, map[string]string{poolv1.RenderedForLabel: "infra"})
		for _, name := range []string{"blah", "infra@6db67f47", "rendered-infra-x", "rendered-infra-gpu-" + hash} {
			Expect(newWebhook(own).ValidateUpdate(ctx(), before, pinned(name))).Error().To(beRefusedAt("spec.configurationName", name, "rollout history infra", "leave it out"))
			Expect(newWebhook(own).ValidateCreate(ctx(), pinned(name))).Error().To(beRefusedAt("spec.configurationName"))
		}
		foreign := config(own.Name, map[string]string{poolv1.RenderedForLabel: "gpu"})
		for _, w := range []*MachineConfigPool{newWebhook(), newWebhook(foreign)} {
			Expect(w.ValidateUpdate(ctx(), before, pinned(own.Name))).Error().To(beRefusedAt("spec.configurationName", own.Name, "that exists"))
			Expect(w.ValidateCreate(ctx(), pinned(own.Name))).Error().NotTo(HaveOccurred(), "clusterctl move creates the pool first")
			changed := pinned(own.Name)
			changed.Spec.Paused = new(true)
			Expect(w.ValidateUpdate(ctx(), pinned(own.Name), changed)).Error().NotTo(HaveOccurred(), "the condition reports it")
			Expect(w.ValidateUpdate(ctx(), pinned(own.Name), before)).Error().NotTo(HaveOccurred())
		}
		Expect(newWebhook(own).ValidateUpdate(ctx(), before, pinned(own.Name))).Error().NotTo(HaveOccurred())
	})

	It("refuses a label rule for a label by which another pool selects its Nodes", func() {
		gpu := newPool("gpu", "gpu", nodeSelector(map[string]string{"example.com/site": "a"}))
		infra := newPool("infra", "infra", nodeLabelRules(nodev1.NodeLabelRule{Key: "example.com/site", ValueExpression: `"a"`}))
		Expect(newWebhook(gpu).ValidateCreate(ctx(), infra)).Error().To(beRefusedAt("spec.node.labelRules[0].key", "MachineConfigPool gpu selects its Nodes by it"))
	})

	It("ignores the pools of other Clusters and namespaces", func() {
		elsewhere := newPool("infra-2", "infra", func(s *poolv1.MachineConfigPoolSpec) { s.ClusterName = "c2" })
		otherNamespace := newPool("infra-3", "infra")
		otherNamespace.Namespace = "other"
		_, err := newWebhook(elsewhere, otherNamespace).ValidateCreate(ctx(), newPool("infra", "infra"))
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("returns a warning about a probable mistake",
		func(p *poolv1.MachineConfigPool, words ...string) {
			rendered := config("rendered-infra-0", map[string]string{"role": "infra", poolv1.RenderedForLabel: "infra"})
			warnings, err := newWebhook(config("50-gpu", map[string]string{"role": "gpu"}), rendered).ValidateCreate(ctx(), p)
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveLen(1))
			for _, word := range words {
				Expect(warnings[0]).To(ContainSubstring(word))
			}
		},
		Entry("a selector that selects no MachineConfig", newPool("infra", "infra"), "spec.machineConfigSelector", "site"),
		Entry("no selector, which selects nothing", newPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) { s.MachineConfigSelector = nil }),
			"spec.machineConfigSelector is not set"),
		Entry("a selector with a label that kubelets can set", newPool("gpu", "gpu", nodeSelector(map[string]string{"example.com/site": "a"})),
			"spec.nodeSelector", "example.com/site", "node-restriction.kubernetes.io/"),
		Entry("a Cluster that does not exist, or is in another namespace", newPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) { s.ClusterName = "c2" }),
			"spec.clusterName", "site/c2", "does not exist now", "in the namespace of its Cluster"),
		Entry("what a paused pool hands out, for a pool that is not paused", func() *poolv1.MachineConfigPool {
			p := newPool("gpu", "gpu")
			p.Annotations = map[string]string{poolv1.PausedConfigurationAnnotation: "rendered-gpu-0"}
			return p
		}(), poolv1.PausedConfigurationAnnotation, "not paused", "leave it out"),
		Entry("an exception that has expired, but not one that ends later", newPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) {
			s.Updates.Exceptions = []poolv1.UpdateException{
				{Node: "a", Action: poolv1.ExceptionSkip, Until: ptr.To(metav1.NewTime(time.Now().Add(-time.Second))), Reason: "x"},
				{Node: "b", Action: poolv1.ExceptionSkip, Until: ptr.To(metav1.NewTime(time.Now().Add(time.Hour))), Reason: "x"}}
		}), "spec.updates.exceptions: these have expired and do nothing", "set a later time in until: a"),
		Entry("a policy for a directory that contains the paths of defaults", newPool("gpu", "gpu", func(s *poolv1.MachineConfigPoolSpec) {
			s.Updates.DisruptionPolicy.Files = []poolv1.PathDisruptionPolicy{{Path: "/etc/containers"}, {Path: "/etc/containers/policy.json"}}
		}), "spec.updates.disruptionPolicy.files: the defaults for /etc/containers/registries.conf, /etc/containers/registries.conf.d, /etc/containers/registries.d apply instead", "add policies for these paths"),
	)

	Describe("returns a warning if a Node can be in two custom pools", func() {
		restricted := func(key string) string { return "node-restriction.kubernetes.io/" + key }
		warningsFor := func(p *poolv1.MachineConfigPool) []string {
			GinkgoHelper()
			warnings, err := newWebhook(newPool("worker", "worker"), newPool("gpu", "gpu"),
				newPool("far", "far", nodeSelector(map[string]string{restricted("site"): "far"})),
				config("50", map[string]string{"role": p.Spec.PoolRole})).ValidateCreate(ctx(), p)
			Expect(err).NotTo(HaveOccurred())
			return warnings
		}
		DescribeTable("that names the other pools",
			func(p *poolv1.MachineConfigPool, names, remedy string) {
				Expect(warningsFor(p)).To(ConsistOf(And(ContainSubstring("MachineConfigPool(s) "+names+", but can be in only one custom pool"),
					ContainSubstring(remedy))))
			},
			Entry("a role beside a site", newPool("infra", "infra"), "far", "Change these pools to select only by their node-role.kubernetes.io/ label"),
			Entry("a rack beside a role and a site", newPool("rack", "rack", nodeSelector(map[string]string{restricted("rack"): "1"})), "far, gpu", "Select only by node-role.kubernetes.io/rack"),
			Entry("a site that a Node needs beside another label", newPool("infra", "infra", nodeSelector(map[string]string{restricted("site"): "near", "node-role.kubernetes.io/infra": ""})), "gpu", "Select only by node-role.kubernetes.io/infra"),
		)
		It("but not if the Node would need two values of a label or two roles, or if one of them is the worker pool", func() {
			Expect(warningsFor(newPool("near", "near", nodeSelector(map[string]string{restricted("site"): "near", "node-role.kubernetes.io/near": ""})))).To(ConsistOf(
				And(ContainSubstring("gpu"), Not(ContainSubstring("far")))))
			far := newPool("far", "far", nodeSelector(map[string]string{restricted("site"): "far"}))
			Expect(validation.PoolWarnings(newPool("infra", "infra"), []poolv1.MachineConfigPool{*newPool("gpu", "gpu"), *newPool("worker", "worker")}, true)).To(BeEmpty())
			Expect(validation.PoolWarnings(newPool("worker", "worker"), []poolv1.MachineConfigPool{*far}, true)).To(BeEmpty())
		})
	})

	It("validates an update only if the spec changes", func() {
		webhook := newWebhook(newPool("gpu", "gpu"))
		before := newPool("gpu-2", "gpu")
		after := before.DeepCopy()
		after.Labels = map[string]string{"a": "b"}
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().NotTo(HaveOccurred())
		after.Spec.Paused = new(true)
		Expect(webhook.ValidateUpdate(ctx(), before, after)).Error().To(beRefusedAt("spec.poolRole"))
	})

	It("refuses a pool while the other pools cannot be read", func() {
		scheme := controllertest.Scheme()
		broken := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("down")
			},
		}).Build()
		_, err := (&MachineConfigPool{Reader: broken}).ValidateCreate(ctx(), newPool("infra", "infra"))
		Expect(apierrors.IsInternalError(err)).To(BeTrue())
	})
})
