package machineconfigpool

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// overlay returns the overlay of a host that boots with a rendered config.
func overlay(uid, configuration string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "poolboot-system", Name: bootstrapv1.OverlayNamePrefix + uid,
		Labels:      map[string]string{bootstrapv1.OverlayLabel: uid},
		Annotations: map[string]string{bootstrapv1.OverlayConfigurationAnnotation: configuration}}}
}

var _ = Describe("Rendered configs", func() {
	var (
		infra         *poolv1.MachineConfig
		s             *fixture
		renderedNames []string // the names of what the pool infra rendered, in order
	)
	// render changes the pool's MachineConfig and returns the name of what the pool hands out afterwards.
	render := func(content string) string {
		GinkgoHelper()
		s.set(infra, content)
		return s.reconcile("infra").Status.Configuration.Name
	}
	existingNames := func() []string {
		GinkgoHelper()
		list := &poolv1.MachineConfigList{}
		Expect(s.List(ctx(), list, client.MatchingLabels{poolv1.RenderedForLabel: "infra"})).To(Succeed())
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		return names
	}
	reconcile := func() error {
		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "infra"}})
		return err
	}

	BeforeEach(func() {
		infra = config("50-infra", "infra", "0")
		s = newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour), infra)
		// There are eight rendered configs, created one minute apart. The pool hands out the last one.
		renderedNames = nil
		s.reconciler.RenderedHistory = 100
		for i := range 8 {
			name := render(fmt.Sprint(i))
			rendered := &poolv1.MachineConfig{}
			Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: name}, rendered)).To(Succeed())
			rendered.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC))
			Expect(s.Update(ctx(), rendered)).To(Succeed())
			renderedNames = append(renderedNames, name)
		}
		s.reconciler.RenderedHistory = 2
	})

	It("that nothing uses are deleted, except the newest of them", func() {
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[5:]))
		s.reconciler.RenderedHistory = 0
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[7]))
	})

	DescribeTable("stay while something refers to them",
		func(refers func(name string)) {
			refers(renderedNames[1])
			s.reconcile("infra")
			Expect(existingNames()).To(ConsistOf(renderedNames[1], renderedNames[5], renderedNames[6], renderedNames[7]))
		},
		Entry("a Machine that booted with it, and so its Node", func(name string) {
			Expect(s.Create(ctx(), machine("m1", "infra", name, true))).To(Succeed())
		}),
		Entry("a Machine that booted with it and is now recorded in another pool", func(name string) {
			Expect(s.Create(ctx(), machine("m1", "worker", name, true))).To(Succeed())
		}),
		Entry("a Machine that is being deleted", func(name string) {
			m := machine("m1", "infra", name, true)
			m.Finalizers = []string{bootstrapv1.Finalizer}
			Expect(s.Create(ctx(), m)).To(Succeed())
			Expect(s.Delete(ctx(), m)).To(Succeed())
		}),
		Entry("the overlay of a host that can be requesting it now", func(name string) {
			m := machine("m1", "infra", renderedNames[7], false)
			m.UID = "m1"
			Expect(s.Create(ctx(), m)).To(Succeed())
			Expect(s.Create(ctx(), overlay("m1", name))).To(Succeed())
		}),
		Entry("an inline data Secret that is not recorded yet", func(name string) {
			Expect(s.Create(ctx(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m1",
				Labels:      map[string]string{clusterv1.ClusterNameLabel: "c1"},
				Annotations: map[string]string{bootstrapv1.OverlayConfigurationAnnotation: name}}})).To(Succeed())
		}),
		Entry("a running host that is updated to it", func(name string) {
			m := machine("m1", "infra", renderedNames[7], true)
			m.Status.Update.Desired.Name = name
			Expect(s.Create(ctx(), m)).To(Succeed())
		}),
		Entry("a pool that is to hand it out instead of what it renders, also if it can't", func(name string) {
			p := newPool("other", "other", 0)
			p.Spec.ConfigurationName = name
			Expect(s.Create(ctx(), p)).To(Succeed())
		}),
		Entry("a pool that hands it out", func(name string) {
			p := newPool("other", "other", 0)
			p.Status.Configuration = poolv1.PoolConfiguration{Name: name}
			Expect(s.Create(ctx(), p)).To(Succeed())
		}),
	)

	It("stay while a paused pool hands them out, and so does the one that waits", func() {
		p := s.pool("infra")
		p.Spec.Paused = new(true)
		Expect(s.Update(ctx(), p)).To(Succeed())
		s.set(infra, "waits")
		s.reconciler.RenderedHistory = 0
		s.reconcile("infra", "infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[7], HavePrefix("rendered-infra-")))
		Expect(s.pool("infra").Status.Configuration.Name).To(Equal(renderedNames[7]))
	})

	It("all stay while it is unknown what a Machine that has joined runs, as just after a move", func() {
		moved := machine("m1", "infra", "", false)
		moved.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		Expect(s.Create(ctx(), moved)).To(Succeed())
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames))
		moved.Status.Boot.ServedConfiguration.Name = renderedNames[0]
		Expect(s.Status().Update(ctx(), moved)).To(Succeed())
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[0], renderedNames[5], renderedNames[6], renderedNames[7]))
	})

	It("do not stay for a host that Poolboot did not boot, and that is in no pool", func() {
		waiting := machine("m1", "infra", "", false)
		waiting.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: "edge-7", Adoption: bootstrapv1.AdoptionPreview}
		waiting.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		Expect(s.Create(ctx(), waiting)).To(Succeed())
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[5], renderedNames[6], renderedNames[7]))
	})

	It("all stay while the pool cannot be rendered", func() {
		infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.0.0"}}`)
		Expect(s.Update(ctx(), infra)).To(Succeed())
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames))
	})

	It("are deleted if only a Machine in another namespace has one with that name", func() {
		elsewhere := machine("m1", "infra", renderedNames[1], true)
		elsewhere.Namespace, elsewhere.UID = "elsewhere", "m2"
		Expect(s.Create(ctx(), elsewhere)).To(Succeed())
		Expect(s.Create(ctx(), overlay("m2", renderedNames[1]))).To(Succeed())
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[5:]))
	})

	It("of other pools, and MachineConfigs of users, stay", func() {
		foreign := config("rendered-like", "gpu", "")
		foreign.Labels[poolv1.RenderedForLabel] = "infra"
		Expect(s.Create(ctx(), foreign)).To(Succeed())
		worker := s.reconcile("worker").Status.Configuration.Name
		s.reconciler.RenderedHistory = 0
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[7], foreign.Name))
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: worker}, &poolv1.MachineConfig{})).To(Succeed())
	})

	It("of a deleted pool stay while a Machine runs them, and are deleted with the last one", func() {
		s.reconcile("worker")
		moved := machine("m1", "worker", renderedNames[3], true)
		Expect(s.Create(ctx(), moved)).To(Succeed())
		rendered := &poolv1.MachineConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: renderedNames[3]}, rendered)).To(Succeed())
		Expect(rendered.OwnerReferences).To(ContainElement(And(HaveField("Kind", "Cluster"), HaveField("Controller", BeNil()))),
			"Kubernetes does not collect it with the pool")
		Expect(s.Delete(ctx(), s.pool("infra"))).To(Succeed())
		s.reconcile("worker")
		Expect(existingNames()).To(ConsistOf(renderedNames[3]))
		Expect(s.Delete(ctx(), moved)).To(Succeed())
		s.reconcile("worker")
		Expect(existingNames()).To(BeEmpty())
	})

	It("are created again with the same name and bytes if a change is undone after they were deleted", func() {
		first := &poolv1.MachineConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: renderedNames[0]}, first)).To(Succeed())
		s.reconcile("infra")
		Expect(existingNames()).NotTo(ContainElement(renderedNames[0]))
		Expect(render("0")).To(Equal(renderedNames[0]))
		again := &poolv1.MachineConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: renderedNames[0]}, again)).To(Succeed())
		Expect(again.Spec).To(Equal(first.Spec))
		Expect(s.pool("infra")).To(haveCondition(poolv1.DegradedCondition, no, poolv1.AsExpectedReason))
	})

	It("are not deleted before the status is written, and the whole surplus is deleted in the end, whichever write fails", func() {
		s.set(infra, "8")
		s.crash = func(verb string) bool { return verb == "patch status" }
		Expect(reconcile()).To(MatchError(errCrash))
		Expect(existingNames()).To(HaveLen(9))

		deletions := 0
		s.crash = func(verb string) bool {
			if verb == "delete" {
				deletions++
			}
			return deletions == 3
		}
		Expect(reconcile()).To(MatchError(errCrash))
		Expect(existingNames()).To(HaveLen(7))
		Expect(reconcile()).To(Succeed())
		Expect(existingNames()).To(ConsistOf(renderedNames[6], renderedNames[7], s.pool("infra").Status.Configuration.Name))
	})

	It("are not deleted if the cache does not contain their users yet", func() {
		Expect(s.Create(ctx(), machine("m1", "infra", renderedNames[1], true))).To(Succeed())
		s.staleConfigs = &bootstrapv1.PoolbootConfigList{}
		s.reconcile("infra")
		Expect(existingNames()).To(ConsistOf(renderedNames[1], renderedNames[5], renderedNames[6], renderedNames[7]))
	})
})
