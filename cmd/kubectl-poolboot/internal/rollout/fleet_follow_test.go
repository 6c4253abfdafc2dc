package rollout

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("status --watch of all pools", func() {
	inPool := func(hosts ...*bootstrapv1.PoolbootConfig) []*bootstrapv1.PoolbootConfig {
		for _, h := range hosts {
			h.Status.Conditions = append(h.Status.Conditions, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: "NodeReadyInPool"})
		}
		return hosts
	}
	complete := func(c *bootstrapv1.PoolbootConfig) {
		setUpdated(c, metav1.ConditionTrue, "Done", "it runs it")
		c.Status.Boot.ServedConfiguration.Name = newConfig
		inPool(c)
	}
	// addPool adds the pool gpu in another namespace.
	addPool := func(ctx SpecContext, s *site, change func(*poolv1.MachineConfigPool)) {
		GinkgoHelper()
		p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "far", Name: "gpu"}, Spec: poolv1.MachineConfigPoolSpec{ClusterName: "c", PoolRole: "gpu"}}
		p.Status.Configuration.Name = "rendered-gpu-1"
		change(p)
		Expect(s.live.Create(ctx, p)).To(Succeed())
	}
	// watching runs the command until it has opened its watches.
	watching := func(s *site, args ...string) chan clitest.Result {
		GinkgoHelper()
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.run(append([]string{"status", "-w"}, args...)...) }()
		Eventually(s.watches.Load).Should(BeEquivalentTo(2))
		return ended
	}

	It("prints a line with the time for each pool that changes, until all hosts of all pools are updated", func(ctx SpecContext) {
		s := newSite(nil, inPool(done("a"), waits("b"))...)
		addPool(ctx, s, func(*poolv1.MachineConfigPool) {})
		ended := watching(s, "-A")
		s.change(ctx, "b", complete)
		var r clitest.Result
		Eventually(ended, "5s").Should(Receive(&r))
		line := func(rest string) OmegaMatcher { return MatchRegexp(`^\d\d:\d\d:\d\d ` + rest) }
		Expect(clitest.Rows(r.Out)).To(HaveExactElements(HavePrefix("TIME NAMESPACE POOL CONFIG"),
			line("edge infra rendered-infra-1 1/2"), line("far gpu rendered-gpu-1 0/0"), line("edge infra rendered-infra-1 2/2")))
		Expect(r.Code).To(BeZero())
	})

	It("ends with the exit code of the worst pool once no pool goes on", func(ctx SpecContext) {
		s := newSite(nil, inPool(failed("a", newConfig), applies("b"))...)
		addPool(ctx, s, func(p *poolv1.MachineConfigPool) {
			paused(p)
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: poolv1.RolloutPausedReason, Message: "it is paused"}}
		})
		Expect(s.run("status", "-w", "-n", "far").Code).To(Equal(2))
		r := s.run("status", "-w", "-n", "edge")
		Expect(clitest.Rows(r.Out)).To(ContainElement(ContainSubstring("the update of Node a failed: ")))
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Code).To(Equal(1))
	})

	It("names the pools that are not updated when --timeout expires", func() {
		r := newSite(nil, inPool(waits("a"))...).run("status", "-w", "--timeout", "100ms")
		Expect(r.ErrOut).To(Equal("error: --timeout 100ms expired: 1 of 1 pools are not updated: edge/infra\n"))
		Expect(r.Code).To(Equal(1))
	})

	DescribeTable("prints a document for each change", func(ctx SpecContext, format string, decode func(string) []PoolStatus) {
		s := newSite(nil, inPool(waits("a"))...)
		ended := watching(s, "-o", format)
		s.change(ctx, "a", complete)
		var r clitest.Result
		Eventually(ended, "5s").Should(Receive(&r))
		Expect(decode(r.Out)).To(HaveExactElements(HaveField("Updated", 0), HaveField("Updated", 1)))
	},
		Entry("in JSON, one a line", "json", func(out string) (all []PoolStatus) {
			for line := range strings.Lines(out) {
				var s PoolStatus
				Expect(json.Unmarshal([]byte(line), &s)).To(Succeed())
				all = append(all, s)
			}
			return all
		}),
		Entry("in YAML", "yaml", func(out string) (all []PoolStatus) {
			for _, document := range strings.Split(out, "---\n")[1:] {
				var s PoolStatus
				Expect(yaml.Unmarshal([]byte(document), &s)).To(Succeed())
				all = append(all, s)
			}
			return all
		}),
	)

	It("prints names with --output name", func() {
		Expect(newSite(nil, done("a")).run("status", "-o", "name").Out).To(Equal("machineconfigpool.poolboot.io/infra\n"))
		Expect(newSite(nil, done("a")).run("status", "infra", "-o", "name").Out).To(Equal("poolbootconfig.bootstrap.cluster.x-k8s.io/a-config\n"))
	})

	Describe("on a terminal", func() {
		BeforeEach(func() {
			GinkgoT().Setenv("NO_COLOR", "")
			GinkgoT().Setenv("TERM", "xterm")
		})
		// shown runs the command on a terminal of a number of lines while host a is updated.
		shown := func(ctx SpecContext, lines uint16, args ...string) (*gbytes.Buffer, int) {
			GinkgoHelper()
			s := newSite(nil, inPool(waits("a"))...)
			terminal, written := clitest.OpenTerminal(120, lines)
			ended := make(chan int, 1)
			go func() {
				ended <- clitest.RunIn(terminal, &clitest.FakeConnection{WithWatch: s.live, Own: s.nodes}, newCommand, append([]string{"rollout", "status", "-w"}, args...)...)
			}()
			Eventually(s.watches.Load).Should(BeEquivalentTo(2))
			s.change(ctx, "a", complete)
			var code int
			Eventually(ended, "5s").Should(Receive(&code))
			return written, code
		}

		It("prints the table again in its place, with colors", func(ctx SpecContext) {
			written, code := shown(ctx, 10)
			Expect(code).To(BeZero())
			Eventually(written).Should(gbytes.Say(`\x1b\[2A\r\x1b\[J`))
			Eventually(func() []string { return clitest.Screen(written) }).Should(Equal([]string{
				"POOL CONFIG UPDATED AWAY FAILED SINCE PROBLEM", "infra rendered-infra-1 <green>1/1 0 0 <none> <none>"}))
		})

		It("prints the hosts of a pool again in their place", func(ctx SpecContext) {
			written, _ := shown(ctx, 10, "infra")
			Eventually(func() []string { return clitest.Screen(written) }).Should(ContainElement(HavePrefix("bmh-a a <green>Done ")))
		})

		DescribeTable("prints lines", func(ctx SpecContext, lines uint16, variable string, hasColors bool, args ...string) {
			name, value, _ := strings.Cut(variable, "=")
			GinkgoT().Setenv(name, value)
			written, _ := shown(ctx, lines, args...)
			Eventually(func() string { return string(written.Contents()) }).Should(And(ContainSubstring("0/1"), ContainSubstring("1/1")))
			Consistently(written, "100ms").ShouldNot(gbytes.Say(`\x1b\[J`))
			Expect(strings.Contains(string(written.Contents()), "\x1b[32m")).To(Equal(hasColors))
		},
			Entry("where the table does not fit", uint16(2), "TERM=xterm", true),
			Entry("without control characters on a dumb terminal", uint16(10), "TERM=dumb", false),
		)

		It("has no colors with NO_COLOR, and none in JSON", func(ctx SpecContext) {
			GinkgoT().Setenv("NO_COLOR", "1")
			written, _ := shown(ctx, 10)
			Eventually(written).Should(gbytes.Say("1/1"))
			Expect(string(written.Contents())).NotTo(ContainSubstring("\x1b[32m"))
			GinkgoT().Setenv("NO_COLOR", "")
			written, _ = shown(ctx, 10, "-o", "json")
			Eventually(written).Should(gbytes.Say(`"updated":1`))
			Expect(string(written.Contents())).NotTo(ContainSubstring("\x1b"))
		})
	})
})
