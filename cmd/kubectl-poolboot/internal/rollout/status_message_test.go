package rollout

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("The messages of status", func() {
	It("have a failure that is retried, which is not counted as failed, and for which --watch waits", func(ctx SpecContext) {
		s := newSite(nil, newHost("a", oldConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UpdateFailingReason, "it can't download web, which it retries"))
		r := s.run("status")
		Expect(clitest.Rows(r.Out)[1]).To(Equal("infra rendered-infra-1 0/1 1 0 <none> host a: UpdateFailing: it can't download web, which it retries"))
		Expect(r.Code).To(BeZero())
		r = s.run("status", "infra", "--watch", "--timeout", "200ms")
		Expect(r.ErrOut).To(HaveSuffix("0 of 1 hosts run rendered-infra-1; host a: UpdateFailing: see kubectl poolboot explain node a -n edge\n"))
		Expect(r.Code).To(Equal(1))
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run("status", "infra", "--watch") }()
		Consistently(ended, "200ms").ShouldNot(Receive())
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) {
			setUpdated(c, metav1.ConditionTrue, "Done", "it runs it")
			c.Status.Boot.ServedConfiguration.Name = newConfig
		})
		Eventually(ended).Should(Receive(HaveField("Code", 0)))
	})

	It("lack only what columns have, also if they look like those of others", func() {
		long := "the update of Node other to x failed and was undone, so it runs y: disk full"
		s := newSite(nil, newHost("a", oldConfig, newConfig, metav1.ConditionFalse, "Degraded", "Node a runs "+oldConfig+", and its agent reports: "+long))
		Expect(clitest.Rows(s.run("status", "infra").Out)[1]).To(HaveSuffix(" 15m its agent reports: " + long))
		Expect(clitest.Rows(s.run("status").Out)[1]).To(HaveSuffix(" host a: Degraded: its agent reports: " + long))
	})

	It("name the first hosts for which another one waits", func() {
		waiting := newHost("w", oldConfig, oldConfig, metav1.ConditionFalse, "Waiting", "Node w waits for other hosts of the pool before its update")
		ready := func(config *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
			config.Status.Conditions = append(config.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool"})
			return config
		}
		var change func(*poolv1.MachineConfigPool)
		messages := func(hosts ...*bootstrapv1.PoolbootConfig) []string {
			rows := clitest.Rows(newSite(change, append(hosts, ready(waiting.DeepCopy()))...).run("status", "infra").Out)
			return rows[len(rows)-1:]
		}
		Expect(messages(ready(done("a")))).To(ConsistOf(HaveSuffix("waits for other hosts of the pool before its update")))
		Expect(messages(ready(applies("b")), ready(failed("c", newConfig)))).To(ConsistOf(HaveSuffix("waits for other hosts of the pool (b, c) before its update")))
		Expect(messages(applies("b"), applies("c"), applies("d"), applies("e"))).To(ConsistOf(HaveSuffix("of the pool (b, c, d and 1 more) before its update")))
		change = func(p *poolv1.MachineConfigPool) { p.Status.CapacityHostCount = 2 }
		Expect(messages()).To(ConsistOf(HaveSuffix("of the pool (1 that are gone and whose replacements have not joined) before its update")))
		change = func(p *poolv1.MachineConfigPool) {
			p.Status.Staging = []poolv1.StagingHost{{Host: waits("a").Name, Revision: "next", StartTime: ptr.To(metav1.Now())}}
		}
		Expect(messages(ready(waits("a")))).To(ConsistOf(HaveSuffix("of the pool (a, which stages its update) before its update")))
	})
})
