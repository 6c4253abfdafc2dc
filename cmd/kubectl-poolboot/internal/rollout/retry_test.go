package rollout

import (
	"context"
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("retry", func() {
	forced := func(ctx context.Context, s *site) (names []string) {
		configs := &bootstrapv1.PoolbootConfigList{}
		Expect(s.live.List(ctx, configs)).To(Succeed())
		for _, c := range configs.Items {
			if c.Annotations[bootstrapv1.ForceUpdateAnnotation] != "" {
				names = append(names, c.Name)
			}
		}
		return names
	}

	It("forces the hosts whose update failed, with another value each time", func(ctx SpecContext) {
		s := newSite(nil, failed("a", newConfig), waits("b"), done("c"), failed("d", newConfig))
		Expect(clitest.ExpectSuccess(s.run("retry", "infra"))).To(Equal("host a applies its configuration again\n" +
			"host d applies its configuration again\n" +
			"Each host waits for its turn, and is drained and rebooted if the disruption policy says so for an entry that changes or\ndiffers.\n"))
		Expect(forced(ctx, s)).To(ConsistOf("a-config", "d-config"))
		value := func() string {
			config := &bootstrapv1.PoolbootConfig{}
			Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "a-config"}, config)).To(Succeed())
			return config.Annotations[bootstrapv1.ForceUpdateAnnotation]
		}
		first := value()
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Update.Force = first }) // it failed again
		Expect(s.run("retry", "infra").Code).To(BeZero())
		Expect(value()).NotTo(Equal(first))
	})

	It("is followed by status, which does not fail because of the update before it", func(ctx SpecContext) {
		s := newSite(nil, failed("a", newConfig))
		Expect(s.run("retry", "infra").Code).To(BeZero())
		r := s.run("status", "infra")
		Expect(r.Code).To(BeZero())
		Expect(clitest.Rows(r.Out)[1]).To(HaveSuffix("Waiting rendered-infra-0 rendered-infra-1 <none> has not been told yet to apply its configuration again"))
		config := &bootstrapv1.PoolbootConfig{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "a-config"}, config)).To(Succeed())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Update.Force = config.Annotations[bootstrapv1.ForceUpdateAnnotation]
		})
		Expect(s.run("status", "infra")).To(And(HaveField("Code", 1), HaveField("ErrOut", ContainSubstring("host a: Degraded: see"))))
	})

	It("says, as status and plan do after it, that a paused pool lets no host begin", func() {
		s := newSite(paused, newHost("a", newConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UpdateDegradedReason, "the host differs from it: run kubectl poolboot rollout retry infra -n edge --host a"))
		Expect(clitest.ExpectSuccess(s.run("retry", "infra"))).To(HavePrefix("host a is to apply its configuration again\nNone begins yet: the pool is paused: run kubectl poolboot rollout resume infra -n edge"))
		status := s.run("status", "infra")
		Expect(clitest.Rows(status.Out)[1]).To(And(ContainSubstring(" Degraded "), ContainSubstring(" has not been told yet to apply its configuration again: the pool is paused: run kubectl poolboot rollout resume")))
		Expect(status.Code).To(Equal(1), "the host differs until somebody resumes the pool")
		Expect(clitest.Rows(s.run("status").Out)[1]).To(ContainSubstring("infra rendered-infra-1 1/1, paused 1 1 "), "FAILED counts it")
		Expect(clitest.ExpectSuccess(s.run("plan", "infra"))).To(ContainSubstring("\nNo host of the pool infra is next: the pool is paused: run"))
	})

	It("changes nothing if no update failed", func(ctx SpecContext) {
		s := newSite(nil, waits("a"), done("b"), failed("c", "rendered-infra-bad"))
		Expect(clitest.ExpectSuccess(s.run("retry", "infra"))).To(Equal("MachineConfigPool edge/infra: no host is to apply its configuration again\n"))
		Expect(forced(ctx, s)).To(BeEmpty())
	})

	It("forces only hosts that it can correct, and says of the others what to do", func(ctx SpecContext) {
		wrong := func(name, reason, message string) *bootstrapv1.PoolbootConfig {
			return newHost(name, newConfig, newConfig, metav1.ConditionFalse, reason, message)
		}
		s := newSite(nil, failed("a", newConfig),
			wrong("c", bootstrapv1.UnitsFailingReason, "web.service: it failed. Correct the configuration or the host"),
			wrong("d", bootstrapv1.UpdateUnreconcilableReason, "disks changed. Correct the configuration, then run kubectl poolboot rollout retry"),
			wrong("e", bootstrapv1.UpdateDegradedReason, "/etc/x: it was changed: restore it"),
			wrong("f", bootstrapv1.UpdateFailingReason, "it is retried"))
		out := strings.Join(strings.Fields(clitest.ExpectSuccess(s.run("retry", "infra"))), " ")
		Expect(forced(ctx, s)).To(ConsistOf("a-config", "e-config"))
		const why = " is left out, because applying its configuration again does not correct it: "
		Expect(out).To(HavePrefix("host c" + why + "UnitsFailing: web.service: it failed. Correct the configuration or the host host d" + why + "Unreconcilable: disks changed. Correct the configuration, then run kubectl poolboot rollout retry host a applies"))
	})

	It("fails with the cause if it retries nothing, and a host or the pool needs a person", func() {
		fails := newHost("a", newConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UnitsFailingReason, "web.service: it failed")
		r := newSite(nil, fails).run("retry", "infra")
		Expect(r.Out).To(HavePrefix("host a is left out"))
		Expect(r.ErrOut).To(Equal("error: MachineConfigPool edge/infra: no host is to apply its configuration again, and hosts need you to act: see the output\n"))
		Expect(r.Code).To(Equal(2))
		conditioned := func(kind, reason, message string, status metav1.ConditionStatus) func(*poolv1.MachineConfigPool) {
			return func(p *poolv1.MachineConfigPool) {
				p.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "ceph"}}
				p.Status.Conditions = []metav1.Condition{{Type: kind, Status: status, Reason: reason, Message: message}}
			}
		}
		const none = "error: MachineConfigPool edge/infra: no host is to apply its configuration again. MachineConfigPool edge/infra: "
		Expect(newSite(conditioned(poolv1.RenderDegradedCondition, poolv1.RenderFailedReason, "MachineConfig x is wrong", metav1.ConditionTrue), done("a")).run("retry", "infra")).To(Equal(
			clitest.Result{ErrOut: none + "MachineConfig x is wrong\n", Code: 2}))
		Expect(newSite(conditioned(poolv1.UpdateGatesOpenCondition, poolv1.GateUnreadableReason, "the gate ceph can't be read", metav1.ConditionFalse), waits("a")).run("retry", "infra")).To(Equal(
			clitest.Result{ErrOut: none + "the gate ceph can't be read\n", Code: 2}))
	})

	DescribeTable("forces a host in any state", func(ctx SpecContext, name string) {
		s := newSite(nil, failed("a", newConfig), done("b"))
		Expect(s.run("retry", "infra", "--host", name).Code).To(BeZero())
		Expect(forced(ctx, s)).To(ConsistOf("b-config"))
	},
		Entry("by its Node", "b"),
		Entry("by its BareMetalHost", "bmh-b"),
		Entry("by its PoolbootConfig", "b-config"),
	)

	It("forces no host if one of them is not in the pool", func(ctx SpecContext) {
		other := done("other")
		other.Status.PoolRole = "gpu"
		s := newSite(nil, done("a"), other)
		clitest.ExpectError(s.run("retry", "infra", "--host", "a,other"), 1, "--host: MachineConfigPool edge/infra has no running host other: see kubectl poolboot rollout status infra -n edge")
		Expect(forced(ctx, s)).To(BeEmpty())
	})

	It("reports what could not be written", func() {
		s := newSite(nil, failed("a", newConfig))
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("forbidden")
		}})
		clitest.ExpectError(s.run("retry", "infra"), 1, "patch the annotation poolboot.io/force-update of PoolbootConfig edge/a-config: forbidden")
	})
})
