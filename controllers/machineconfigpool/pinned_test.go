package machineconfigpool

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("A pool with spec.configurationName", func() {
	var (
		infra        *poolv1.MachineConfig
		s            *fixture
		old, current string
	)
	// change changes the pool's MachineConfig and returns what the pool hands out afterwards.
	change := func(content string) string {
		GinkgoHelper()
		s.set(infra, content)
		return s.reconcile("infra").Status.Configuration.Name
	}
	pin := func(name string) *poolv1.MachineConfigPool {
		GinkgoHelper()
		p := s.pool("infra")
		p.Spec.ConfigurationName = name
		Expect(s.Update(ctx(), p)).To(Succeed())
		return s.reconcile("infra")
	}
	BeforeEach(func() {
		infra = config("50-infra", "infra", "0")
		s = newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour), infra, config("60-infra", "infra", "0"))
		old, current = change("old"), change("current")
		Expect(old).NotTo(Equal(current))
		controllertest.Events(s.events)
	})

	It("hands it out instead of what it renders, and says so, and which MachineConfigs no longer fit", func() {
		p := pin(old)
		Expect(p.Status.Configuration).To(Equal(poolv1.PoolConfiguration{Name: old, Source: []poolv1.MachineConfigSource{{Name: "50-infra"}, {Name: "60-infra"}}}))
		Expect(p.Status.RenderedConfiguration).To(Equal(current))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, yes, poolv1.ConfigurationDiffersReason, "hands out "+old, "renders "+current,
			"what no longer fits is MachineConfig 50-infra (changed): change or revert that, then run kubectl poolboot rollout resume infra -n site"))
		Expect(p).To(haveCondition(poolv1.ReadyCondition, yes, poolv1.AllHostsUpdatedReason, old, "spec.configurationName names it"))
		Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason, current))
		Expect(p.Status.History[len(p.Status.History)-1]).To(And(HaveField("Name", old), HaveField("Changes", HaveExactElements("~ file /etc/50-infra"))))
		Expect(controllertest.Events(s.events)).To(ConsistOf(And(HavePrefix("Normal Pinned"), ContainSubstring(old))))

		By("rendering what changes")
		Expect(change("later")).To(Equal(old))
		Expect(s.Delete(ctx(), config("60-infra", "infra", ""))).To(Succeed())
		p = s.reconcile("infra")
		Expect(p.Status.RenderedConfiguration).NotTo(BeElementOf(old, current))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, yes, poolv1.ConfigurationDiffersReason, "MachineConfig 50-infra (changed), MachineConfig 60-infra (removed)"))

		By("returning to what it renders")
		p = pin("")
		Expect(p.Status.Configuration.Name).To(Equal(p.Status.RenderedConfiguration))
		Expect(p.Status.Conditions).NotTo(ContainElement(HaveField("Type", poolv1.PinnedCondition)))
	})

	It("counts the hosts that run it, and predicts the changes of the others to it", func() {
		for name, runs := range map[string]string{"m1": old, "m2": current} {
			m := follower(name, bootstrapv1.UpdateDoneReason)
			m.Status.Boot.ServedConfiguration.Name, m.Status.Update.Desired.Name, m.Status.Update.RunningRevision = runs, runs, m.Status.Update.DesiredRevision
			Expect(s.Create(ctx(), m)).To(Succeed())
		}
		p := pin(old)
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p.Status.Prediction).To(And(HaveField("Configuration", old), HaveField("Reboot", HaveValue(BeEquivalentTo(1)))))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason, "m2"))
		s.becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.ReadyCondition, yes, poolv1.AllHostsUpdatedReason, "2 of 2 hosts run "+old))
	})

	It("says when the pool renders it again", func() {
		pin(old)
		change("old")
		Expect(s.pool("infra")).To(haveCondition(poolv1.PinnedCondition, yes, poolv1.ConfigurationSameReason, "run kubectl poolboot rollout resume infra -n site"))
	})

	It("hands it out also while the pool can't be rendered", func() {
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.0.0"}}`)
		Expect(s.Update(ctx(), infra)).To(Succeed())
		p := pin(old)
		Expect(p.Status.Configuration.Name).To(Equal(old))
		Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.RenderFailedReason, "50-infra"))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, yes, poolv1.ConfigurationDiffersReason, "can't be rendered"))
	})

	It("hands out what an earlier version of Poolboot rendered, whatever that recorded", func() {
		c := &poolv1.MachineConfig{}
		Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: old}, c)).To(Succeed())
		c.Annotations = nil
		Expect(s.Update(ctx(), c)).To(Succeed())
		p := pin(old)
		Expect(p.Status.Configuration).To(Equal(poolv1.PoolConfiguration{Name: old}))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, yes, poolv1.ConfigurationDiffersReason, "which MachineConfigs no longer fit is not known", "rollout history infra"))
	})

	It("waits for the end of a pause, which holds what was handed out", func() {
		s.pause(true)
		s.reconcile("infra")
		p := pin(old)
		Expect(p.Status.Configuration.Name).To(Equal(current))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, no, poolv1.RolloutPausedReason, old+" (spec.configurationName) waits"))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason, "hands out "+current, old+" waits"))
		s.pause(false)
		Expect(s.reconcile("infra").Status.Configuration.Name).To(Equal(old))

		By("pausing the pool while it hands it out")
		s.pause(true)
		p = s.reconcile("infra")
		Expect(p.Status.Configuration.Name).To(Equal(old))
		Expect(p.Annotations).To(HaveKeyWithValue(poolv1.PausedConfigurationAnnotation, old))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, yes, poolv1.ConfigurationDiffersReason))
	})

	DescribeTable("reports what can't be handed out, and hands out what it had,", func(name func() string, words ...string) {
		p := pin(name())
		Expect(p.Status.Configuration.Name).To(Equal(current))
		message := append(words, "spec.configurationName: MachineConfig "+name(), "kubectl poolboot rollout undo infra", "kubectl poolboot rollout resume infra")
		Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.PinnedConfigurationInvalidReason, message...))
		Expect(p).To(haveCondition(poolv1.PinnedCondition, no, poolv1.PinnedConfigurationInvalidReason, message...))
		Expect(change("later")).To(Equal(current), "the user asked for something else than what the pool renders")
		writes := s.writes
		s.reconcile("infra")
		Expect(s.writes).To(Equal(writes))
		Expect(pin(old)).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
	},
		Entry("when it does not exist", func() string { return "rendered-infra-0" }, "does not exist"),
		Entry("when another pool rendered it", func() string { return s.reconcile("worker").Status.Configuration.Name }, "is not a rendered config of this pool"),
		Entry("when its content was changed while the webhook did not run", func() string {
			c := &poolv1.MachineConfig{}
			Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: old}, c)).To(Succeed())
			c.Spec.KernelArguments = []string{"debug"}
			c.ResourceVersion, c.Name = "", "rendered-infra-0123456789abcdef0123456789abcdef"
			Expect(client.IgnoreAlreadyExists(s.Create(ctx(), c))).To(Succeed())
			return c.Name
		}, "has content that does not match its name"),
	)

	It("keeps what it handed out while it is not known whether it exists", func() {
		s.reconciler.APIReader = failingReader{s.Client}
		s.hidesRendered = true
		p := s.pool("infra")
		p.Spec.ConfigurationName = old
		Expect(s.Update(ctx(), p)).To(Succeed())
		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "infra"}})
		Expect(err).To(MatchError(ContainSubstring(old)))
		Expect(s.pool("infra").Status.Configuration.Name).NotTo(Equal(old))
	})

	It("hands it out after clusterctl move, which drops the status, also if the cache does not have it yet", func() {
		p := pin(old)
		p.Status = poolv1.MachineConfigPoolStatus{}
		Expect(s.Status().Update(ctx(), p)).To(Succeed())
		s.hidesRendered = true
		Expect(s.reconcile("infra").Status.Configuration.Name).To(Equal(old))
	})

	It("writes nothing if nothing changed", func() {
		pin(old)
		s.reconcile("infra")
		writes := s.writes
		s.reconcile("infra")
		Expect(s.writes).To(Equal(writes))
	})
})

// failingReader is an API server that answers no request for a single object.
type failingReader struct{ client.Reader }

func (failingReader) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("connection refused")
}
