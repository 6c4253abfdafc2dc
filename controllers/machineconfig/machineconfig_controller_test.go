package machineconfig

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

const (
	valid   = `{"ignition":{"version":"3.5.0"}}`
	invalid = `{"ignition":{"version":"9.0.0"}}`
)

var _ = Describe("The status of a MachineConfig", func() {
	var (
		config *poolv1.MachineConfig
		writes int
		failed error
		r      *Reconciler
	)
	BeforeEach(func() {
		config = &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "50-a", Generation: 1}}
		config.Spec.Config = &runtime.RawExtension{Raw: []byte(valid)}
		writes, failed = 0, nil
		r = &Reconciler{}
	})
	start := func() {
		r.Client = interceptor.NewClient(fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(config).WithStatusSubresource(config).Build(),
			interceptor.Funcs{SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				writes++
				if failed != nil {
					return failed
				}
				return c.SubResource(sub).Patch(ctx, o, patch, options...)
			}})
	}
	reconcile := func(ctx context.Context) error {
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)})
		return err
	}
	status := func(ctx context.Context) poolv1.MachineConfigStatus {
		GinkgoHelper()
		Expect(reconcile(ctx)).To(Succeed())
		Expect(r.Client.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		return config.Status
	}
	change := func(ctx context.Context, raw string) {
		GinkgoHelper()
		config.Spec.Config.Raw = []byte(raw)
		config.Generation++
		Expect(r.Client.Update(ctx, config)).To(Succeed())
	}
	haveReady := func(value metav1.ConditionStatus, reason, words string) OmegaMatcher {
		return And(HaveField("ObservedGeneration", config.Generation), HaveField("Conditions", ContainElement(And(HaveField("Type", "Ready"), HaveField("Status", value),
			HaveField("Reason", reason), HaveField("Message", ContainSubstring(words)), HaveField("ObservedGeneration", config.Generation)))))
	}

	It("is Ready while it is valid, and is written once", func(ctx SpecContext) {
		start()
		Expect(status(ctx)).To(haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, "it is valid"))
		Expect(reconcile(ctx)).To(Succeed())
		Expect(writes).To(Equal(1))
	})

	It("is current for Flux and others with kstatus while it is valid, and has failed otherwise", func(ctx SpecContext) {
		start()
		for _, step := range []struct {
			raw    string
			health kstatus.Status
		}{{valid, kstatus.CurrentStatus}, {invalid, kstatus.FailedStatus}, {valid, kstatus.CurrentStatus}} {
			change(ctx, step.raw)
			if len(config.Status.Conditions) > 0 {
				health, _ := controllertest.Health(config)
				Expect(health).To(Equal(kstatus.InProgressStatus), "until the manager has seen it")
			}
			status(ctx)
			health, _ := controllertest.Health(config)
			Expect(health).To(Equal(step.health))
		}
	})

	createPools := func(ctx context.Context, names ...string) {
		for _, name := range names {
			p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "c1", PoolRole: name}}
			p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": name}}
			Expect(r.Client.Create(ctx, p)).To(Succeed())
		}
	}

	It("names the pools that render it, also those that inherit it, and says what pools select if none does", func(ctx SpecContext) {
		start()
		createPools(ctx, "worker", "infra")
		Expect(status(ctx)).To(And(HaveField("Pools", BeEmpty()), haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, "no pool selects them")))
		config.Labels = map[string]string{"role": "infra"}
		Expect(r.Client.Update(ctx, config)).To(Succeed())
		Expect(status(ctx)).To(And(HaveField("Pools", ConsistOf("infra")), haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, "it is valid")))
		Expect(r.configsOfNamespace(ctx, &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge"}})).To(ConsistOf(
			ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)}), "if a pool changes")
		config.Labels = map[string]string{"role": "worker"}
		Expect(r.Client.Update(ctx, config)).To(Succeed())
		Expect(status(ctx).Pools).To(Equal([]string{"infra", "worker"}))
	})

	It("is not Ready while a pool that renders it names it as a cause why it cannot be rendered", func(ctx SpecContext) {
		start()
		createPools(ctx, "worker", "infra", "storage")
		fail := func(name, reason, message string) {
			p := &poolv1.MachineConfigPool{}
			Expect(r.Client.Get(ctx, client.ObjectKey{Namespace: "edge", Name: name}, p)).To(Succeed())
			before := p.DeepCopy()
			meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionTrue, Reason: reason, Message: message})
			Expect(r.Client.Update(ctx, p)).To(Succeed())
			Expect(poolChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: p})).To(BeTrue())
			Expect(poolChanged(event.UpdateEvent{ObjectOld: p, ObjectNew: p})).To(BeFalse(), "not again")
		}
		config.Labels = map[string]string{"role": "infra"}
		Expect(r.Client.Update(ctx, config)).To(Succeed())
		fail("storage", poolv1.RenderFailedReason, `MachineConfig "50-a": it does not render this one`)
		fail("infra", poolv1.RenderFailedReason, `MachineConfig "50-ab": spec.fips: no`)
		Expect(status(ctx)).To(haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, "it is valid"))
		change(ctx, `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a"}]}}`)
		below := config.DeepCopy()
		below.Name, below.Spec.Config.Raw = "60-b", []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a/b"}]}}`)
		pools := &poolv1.MachineConfigPoolList{}
		Expect(r.Client.List(ctx, pools)).To(Succeed())
		_, why := pool.Render("infra", pools.Items, []poolv1.MachineConfig{*config, *below})
		Expect(why).To(MatchError(ContainSubstring("is below")))
		fail("infra", poolv1.RenderFailedReason, why.Error())
		Expect(status(ctx)).To(haveReady(metav1.ConditionFalse, poolv1.MachineConfigInvalidReason, "MachineConfigPool infra cannot be rendered: "+why.Error()))
		fail("infra", poolv1.PausedConfigurationInvalidReason, "annotation")
		Expect(status(ctx)).To(haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, "it is valid"))
	})

	It("follows a pool that selects others, and no other change of a pool", func() {
		before := &poolv1.MachineConfigPool{}
		after := before.DeepCopy()
		after.Generation, after.Spec.Paused = 2, ptr.To(true)
		after.Status.Conditions = []metav1.Condition{{Type: poolv1.RenderDegradedCondition, Status: metav1.ConditionFalse, Reason: poolv1.RenderedReason, Message: "rendered-infra-1"}}
		Expect(poolChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeFalse())
		after.Spec.MachineConfigSelector = &metav1.LabelSelector{}
		Expect(poolChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
	})

	It("names the field that is wrong until it is corrected, as the webhook does", func(ctx SpecContext) {
		config.Spec.Config.Raw = []byte(invalid)
		start()
		Expect(status(ctx)).To(haveReady(metav1.ConditionFalse, poolv1.MachineConfigInvalidReason, "spec.config.ignition.version"))
		change(ctx, valid)
		Expect(status(ctx)).To(haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, ""))
		Expect(writes).To(Equal(2))
	})

	It("observes a change that makes no other difference", func(ctx SpecContext) {
		start()
		status(ctx)
		change(ctx, `{"ignition":{"version":"3.4.0"}}`)
		Expect(status(ctx)).To(haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, ""))
	})

	DescribeTable("is not written", func(ctx SpecContext, prepare func()) {
		prepare()
		start()
		Expect(reconcile(ctx)).To(Succeed())
		Expect(writes).To(BeZero())
	},
		Entry("for a rendered config, which is valid by construction", func() { config.Name = "rendered-worker-0" }),
		Entry("for one that another manager observes", func() { r.WatchFilterValue = "other" }),
		Entry("for one that is being deleted", func() {
			config.Finalizers, config.DeletionTimestamp = []string{"example.com/a"}, &metav1.Time{Time: metav1.Now().Time}
		}),
	)

	It("is written again after an error", func(ctx SpecContext) {
		start()
		failed = errors.New("refused")
		Expect(reconcile(ctx)).To(MatchError(ContainSubstring("status of MachineConfig edge/50-a: refused")))
		failed = nil
		Expect(status(ctx)).To(haveReady(metav1.ConditionTrue, poolv1.MachineConfigValidReason, ""))
	})
})
