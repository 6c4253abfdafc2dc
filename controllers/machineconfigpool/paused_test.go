package machineconfigpool

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A paused pool", func() {
	var (
		infra *poolv1.MachineConfig
		s     *fixture
	)
	BeforeEach(func() {
		infra = config("50-infra", "infra", "0")
		s = newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour), infra)
	})
	handsOut := func() string {
		GinkgoHelper()
		c := s.reconcile("infra").Status.Configuration
		if !c.IsDefined() {
			return ""
		}
		return c.Name
	}
	// change changes the pool's MachineConfig and returns what the pool hands out afterwards.
	change := func(content string) string {
		GinkgoHelper()
		s.set(infra, content)
		return handsOut()
	}
	annotation := func(p *poolv1.MachineConfigPool) string { return p.Annotations[poolv1.PausedConfigurationAnnotation] }
	setAnnotation := func(p *poolv1.MachineConfigPool, name string) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.PausedConfigurationAnnotation, name)
	}
	// move drops the status, as clusterctl move does.
	move := func(machines ...*bootstrapv1.PoolbootConfig) {
		GinkgoHelper()
		p := s.pool("infra")
		p.Status = poolv1.MachineConfigPoolStatus{}
		Expect(s.Status().Update(ctx(), p)).To(Succeed())
		for _, m := range machines {
			m.Status = bootstrapv1.PoolbootConfigStatus{}
			Expect(s.Status().Update(ctx(), m)).To(Succeed())
		}
	}

	It("continues to render but hands out what it had, until it is no longer paused", func() {
		old := s.reconcile("infra").Status.Configuration
		s.pause(true)
		s.set(infra, "changed")

		p := s.reconcile("infra")
		Expect(p.Status.Configuration).To(Equal(old))
		Expect(p.Status.RenderedConfiguration).NotTo(Equal(old.Name), "the one that updatedHostCount counts")
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason, "rollout resume", old.Name, p.Status.RenderedConfiguration+" waits"))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, no, poolv1.RolloutPausedReason))
		rendered := &poolv1.MachineConfigList{}
		Expect(s.List(ctx(), rendered, client.HasLabels{poolv1.RenderedForLabel})).To(Succeed())
		Expect(rendered.Items).To(HaveLen(2))

		s.pause(false)
		p = s.reconcile("infra")
		Expect(p.Status.Configuration.Name).NotTo(Equal(old.Name))
		Expect(annotation(p)).To(BeEmpty())
	})

	It("records what it handed out, in this order, and not what a pause holds back", func() {
		var handedOut []string
		for i := range poolv1.MaxHistory + 2 {
			s.set(infra, fmt.Sprintf("change-%d", i))
			handedOut = append(handedOut, s.reconcile("infra").Status.Configuration.Name)
		}
		s.pause(true)
		s.set(infra, "held-back")
		var recorded []string
		for _, h := range s.reconcile("infra").Status.History {
			recorded = append(recorded, h.Name)
			Expect(h.StartTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
		}
		Expect(recorded).To(Equal(handedOut[2:]))
	})

	It("records what each config changed, also if the one before it is deleted", func() {
		s.reconciler.RenderedHistory = 0
		s.reconcile("infra")
		for i := range 2 {
			s.set(infra, fmt.Sprintf("change-%d", i))
			s.reconcile("infra")
		}
		files := func(count int) string {
			text := `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/0"}`
			for i := 1; i < count; i++ {
				text += fmt.Sprintf(`,{"path":"/etc/%s%02d"}`, strings.Repeat("long/", 100), i)
			}
			return text + `]}}`
		}
		infra.Spec.Config.Raw = []byte(files(30))
		Expect(s.Update(ctx(), infra)).To(Succeed())
		history := s.reconcile("infra").Status.History
		Expect(history).To(HaveLen(4))
		Expect(history[0].ChangeCount).To(BeNil(), "nothing was handed out before it")
		for _, h := range history[1:3] {
			Expect(h).To(And(HaveField("Changes", ConsistOf("~ file /etc/50-infra")), HaveField("ChangeCount", HaveValue(BeEquivalentTo(1)))))
		}
		Expect(history[3]).To(And(HaveField("Changes", And(HaveLen(poolv1.MaxHistoryChanges), HaveEach(WithTransform(func(s string) int { return len(s) }, BeNumerically("<=", 253))))),
			HaveField("ChangeCount", HaveValue(BeEquivalentTo(31)))))
	})

	It("keeps what it handed out, and since when, in clusterctl move, which drops the status", func() {
		for i := range poolv1.MaxHistory + 2 {
			change(fmt.Sprintf("change-%d", i))
		}
		before := s.pool("infra").Status.History
		Expect(before).To(HaveLen(poolv1.MaxHistory))
		for i := range before {
			before[i].Changes, before[i].ChangeCount = nil, nil
		}
		move()
		Expect(s.reconcile("infra").Status.History).To(BeComparableTo(before))
		change("later")
		Expect(s.pool("infra").Status.History[:poolv1.MaxHistory-1]).To(BeComparableTo(before[1:]))
	})

	It("records which MachineConfigs were added and removed, besides the entries that change with them", func() {
		s.reconcile("infra")
		added := infra.DeepCopy()
		added.ObjectMeta = metav1.ObjectMeta{Namespace: infra.Namespace, Name: "51-added", Labels: infra.Labels}
		added.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/added"}]}}`)
		Expect(s.Create(ctx(), added)).To(Succeed())
		s.reconcile("infra")
		Expect(s.Delete(ctx(), added)).To(Succeed())
		history := s.reconcile("infra").Status.History
		Expect(history).To(HaveLen(3))
		Expect(history[1]).To(And(HaveField("Changes", HaveExactElements("+ MachineConfig 51-added", "+ file /etc/added")), HaveField("ChangeCount", HaveValue(BeEquivalentTo(2)))))
		Expect(history[2].Changes).To(HaveExactElements("- MachineConfig 51-added", "- file /etc/added"))
	})

	It("writes nothing if nothing changed", func() {
		s.pause(true)
		s.reconcile("infra")
		s.set(infra, "changed")
		s.reconcile("infra")
		before := s.writes
		s.reconcile("infra", "infra")
		Expect(s.writes).To(Equal(before))
	})

	It("reports if what it hands out was deleted and can no longer be rendered", func() {
		old := s.rendered(s.reconcile("infra"))
		s.pause(true)
		s.set(infra, "changed")
		Expect(s.Delete(ctx(), old)).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.PausedConfigurationInvalidReason, old.Name, "backup", "rollout resume"))
	})

	Describe("whose annotation a user sets", func() {
		var old, current string
		BeforeEach(func() {
			old, current = change("old"), change("current")
		})
		pin := func(name string) *poolv1.MachineConfigPool {
			GinkgoHelper()
			p := s.pool("infra")
			p.Spec.Paused = new(true)
			setAnnotation(p, name)
			Expect(s.Update(ctx(), p)).To(Succeed())
			return s.reconcile("infra")
		}

		It("hands that out, and keeps the annotation until the pool is no longer paused", func() {
			p := pin(old)
			Expect(p.Status.Configuration.Name).To(Equal(old))
			Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason, old, current+" waits"))
			Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
			Expect(change("later")).To(Equal(old))
			Expect(annotation(s.pool("infra"))).To(Equal(old))
			s.pause(false)
			Expect(handsOut()).NotTo(BeElementOf(old, current))
			Expect(annotation(s.pool("infra"))).To(BeEmpty())
		})

		It("hands out another one as soon as the annotation names it", func() {
			pin(old)
			Expect(pin(current).Status.Configuration.Name).To(Equal(current))
		})

		It("sets the annotation again when it is removed, with the same value", func() {
			pin(old)
			p := pin("")
			Expect(annotation(p)).To(Equal(old))
			Expect(p.Status.Configuration.Name).To(Equal(old))
		})

		It("keeps a rendered config from when the annotation names it, even before it is handed out", func() {
			s.reconciler.RenderedHistory = 0
			p := s.pool("infra")
			p.Spec.Paused = new(true)
			setAnnotation(p, old)
			s.stalePool = s.pool("infra")
			Expect(s.Update(ctx(), p)).To(Succeed())
			s.reconcile("infra")
			Expect(s.Get(ctx(), client.ObjectKey{Namespace: namespace, Name: old}, &poolv1.MachineConfig{})).To(Succeed())
		})

		DescribeTable("reports an error in the annotation, and hands out what it had,", func(name func() string, words ...string) {
			p := pin(name())
			Expect(p.Status.Configuration.Name).To(Equal(current))
			Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.PausedConfigurationInvalidReason,
				append(words, "annotation poolboot.io/paused-configuration: MachineConfig "+name(), "kubectl poolboot rollout history infra", "kubectl poolboot rollout resume infra")...))
			Expect(annotation(p)).To(Equal(name()), "a user set it")
			writes := s.writes
			s.reconcile("infra")
			Expect(s.writes).To(Equal(writes))

			Expect(pin(old)).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
		},
			Entry("when it does not exist", func() string { return "rendered-infra-0" }, "does not exist"),
			Entry("when it is not a name", func() string { return "a/../b" }, "does not exist"),
			Entry("when another pool rendered it", func() string { return s.reconcile("worker").Status.Configuration.Name }, "is not a rendered config of this pool"),
			Entry("when no pool rendered it", func() string { return "50-infra" }, "is not a rendered config of this pool"),
		)

		It("finds a rendered config that the cache does not contain yet, as just after a move", func() {
			s.hidesRendered = true
			p := pin(old)
			Expect(p.Status.Configuration.Name).To(Equal(old))
			Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
		})

		It("hands out what it had while the pool cannot be rendered either", func() {
			infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.0.0"}}`)
			Expect(s.Get(ctx(), client.ObjectKeyFromObject(infra), &poolv1.MachineConfig{})).To(Succeed())
			Expect(s.Update(ctx(), infra)).To(Succeed())
			p := pin("rendered-infra-0")
			Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.RenderFailedReason))
			Expect(p.Status.Configuration.Name).To(Equal(current))
			Expect(pin(old).Status.Configuration.Name).To(Equal(old))
		})
	})

	It("records what it hands out before it hands it out, at whichever write the manager stops", func() {
		runs := change("runs")
		Expect(s.Create(ctx(), joined(machine("m1", "infra", runs, true)))).To(Succeed())
		change("nobodys")
		s.pause(true)
		s.crash = func(verb string) bool { return verb == "patch status" }
		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(s.pool("infra"))})
		Expect(err).To(MatchError(errCrash))
		Expect(annotation(s.pool("infra"))).To(Equal(runs))
		s.crash = func(string) bool { return false }
		Expect(handsOut()).To(Equal(runs))
	})

	It("is not overwritten from a stale cache after a user named a configuration", func() {
		old := change("old")
		change("current")
		s.pause(true)
		s.stalePool = s.pool("infra")
		p := s.pool("infra")
		setAnnotation(p, old)
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(annotation(s.reconcile("infra"))).To(Equal(old))
		s.stalePool = nil
		Expect(handsOut()).To(Equal(old))
	})

	It("renders its first configuration", func() {
		s.pause(true)
		Expect(handsOut()).NotTo(BeEmpty())
	})

	It("hands out what its Nodes run if no Machine booted with the latest configuration", func() {
		runs, ran := change("runs"), change("ran")
		for name, configuration := range map[string]string{"a": runs, "b": runs, "c": ran} {
			Expect(s.Create(ctx(), joined(machine(name, "infra", configuration, true)))).To(Succeed())
		}
		Expect(change("nobodys")).NotTo(Equal(ran))
		s.pause(true)
		Expect(handsOut()).To(Equal(runs))

		By("keeping it, whatever happens to those Machines")
		for _, name := range []string{"a", "b"} {
			Expect(s.Delete(ctx(), machine(name, "infra", "", false))).To(Succeed())
		}
		Expect(change("again")).To(Equal(runs))
	})

	It("hands out the latest configuration if a Machine has booted with it, however many run others", func() {
		old := change("old")
		for _, name := range []string{"a", "b"} {
			Expect(s.Create(ctx(), joined(machine(name, "infra", old, true)))).To(Succeed())
		}
		current := change("current")
		Expect(s.Create(ctx(), machine("c", "infra", current, false))).To(Succeed())
		s.pause(true)
		Expect(handsOut()).To(Equal(current))
	})

	DescribeTable("in the middle of a rollout that no host has completed", func(reason string, keeps bool) {
		runs := change("runs")
		begun, waits := joined(machine("begun", "infra", runs, true)), joined(machine("waits", "infra", runs, true))
		Expect(s.Create(ctx(), begun)).To(Succeed())
		Expect(s.Create(ctx(), waits)).To(Succeed())
		current := change("current")
		begun.Status.Update.Desired.Name, begun.Status.Update.DesiredRevision = current, strings.Repeat("1", 64)
		if reason != "" {
			withProblem(begun, bootstrapv1.UpdatedCondition, reason, "")
		}
		Expect(s.Status().Update(ctx(), begun)).To(Succeed())
		s.pause(true)
		if !keeps {
			current = runs
		}
		Expect(handsOut()).To(Equal(current))
	},
		Entry("hands out what a host was just told, which completes it", "", true),
		Entry("hands out what a host is drained for", bootstrapv1.UpdateDrainingReason, true),
		Entry("hands out what a host reboots for", bootstrapv1.UpdateRebootingReason, true),
		Entry("hands out what its Nodes run if the update failed", bootstrapv1.UpdateDegradedReason, false),
		Entry("hands out what its Nodes run if the update is not possible", bootstrapv1.UpdateUnreconcilableReason, false),
	)

	It("hands out what a host is drained for although another config was rendered just before the pause", func() {
		runs := change("runs")
		begun := joined(machine("begun", "infra", runs, true))
		for _, m := range []*bootstrapv1.PoolbootConfig{begun, joined(machine("waits", "infra", runs, true)), joined(machine("other", "infra", runs, true))} {
			Expect(s.Create(ctx(), m)).To(Succeed())
		}
		current := change("current")
		begun.Status.Update.Desired.Name, begun.Status.Update.DesiredRevision = current, strings.Repeat("1", 64)
		Expect(s.Status().Update(ctx(), withProblem(begun, bootstrapv1.UpdatedCondition, bootstrapv1.UpdateDrainingReason, ""))).To(Succeed())
		Expect(change("nobodys")).NotTo(Equal(current))
		s.pause(true)
		Expect(handsOut()).To(Equal(current), "otherwise the host that is drained is called back")
	})

	It("hands out what a host has just been told, also if the cache does not have that yet", func() {
		runs := change("runs")
		Expect(s.Create(ctx(), joined(machine("waits", "infra", runs, true)))).To(Succeed())
		begun := joined(machine("begun", "infra", runs, true))
		Expect(s.Create(ctx(), begun)).To(Succeed())
		current := change("current")
		s.staleConfigs = &bootstrapv1.PoolbootConfigList{}
		Expect(s.List(ctx(), s.staleConfigs)).To(Succeed())
		begun.Status.Update.Desired.Name, begun.Status.Update.DesiredRevision = current, strings.Repeat("1", 64)
		Expect(s.Status().Update(ctx(), begun)).To(Succeed())
		s.pause(true)
		Expect(handsOut()).To(Equal(current))
		Expect(change("later")).To(Equal(current))
	})

	It("never hands out what another pool rendered, even if a Node that moved to this pool runs it", func() {
		worker := s.reconcile("worker").Status.Configuration.Name
		Expect(s.Create(ctx(), joined(machine("moved", "infra", worker, true)))).To(Succeed())
		current := handsOut()
		s.pause(true)
		Expect(handsOut()).To(Equal(current))
	})

	Describe("after clusterctl move, which drops the status", func() {
		It("hands out the same as before, immediately and without any Machine", func() {
			old := s.reconcile("infra").Status.Configuration.Name
			s.pause(true)
			waits := change("waits")
			Expect(waits).To(Equal(old))
			move()
			p := s.reconcile("infra")
			Expect(p.Status.Configuration.Name).To(Equal(old))
			Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason, old))
		})

		It("waits until it knows what its Nodes run if that was not recorded, and then hands it out", func() {
			old := s.reconcile("infra").Status.Configuration.Name
			m := joined(machine("m1", "infra", old, true))
			Expect(s.Create(ctx(), m)).To(Succeed())
			s.pause(true)
			s.set(infra, "waits")
			move(m) // before the controller sees the pause
			p := s.reconcile("infra")
			Expect(p.Status.Configuration).To(BeZero())
			Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason, "not known yet", "run kubectl poolboot rollout resume infra -n "))

			m.Status.PoolRole, m.Status.Boot.ServedConfiguration.Name = "infra", old
			Expect(s.Status().Update(ctx(), m)).To(Succeed())
			Expect(handsOut()).To(Equal(old))
		})
	})
})
