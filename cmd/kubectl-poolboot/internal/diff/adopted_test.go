package diff

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("diff --node", func() {
	next := strings.Repeat("a", 64)
	// run runs the command for a Node whose agent reports a preview, or that can't be read if that is "-", and whose
	// PoolbootConfig has a condition Updated with a message.
	run := func(preview, message string, args ...string) clitest.Result {
		GinkgoHelper()
		to := clitest.NewFakeConnection(nil, clitest.AdoptedConfig("edge-7", bootstrapv1.AdoptionPreviewReason, message), clitest.PoolbootConfig("infra", "infra-x7k2m", "host-1"))
		if preview != "-" {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", Annotations: map[string]string{
				agentv1.ReportVersionAnnotation: "1", agentv1.NextAnnotation: next, agentv1.PreviewAnnotation: preview}}}
			to.Own = clitest.NewFakeClientBuilder(node).Build()
		}
		return clitest.RunOn(to, New, append([]string{"diff"}, args...)...)
	}
	of := []string{"--node", "edge-7"}

	It("prints what the agent of an adopted host reports, with its effect, and exits as diff does", func() {
		r := run(next+" Reboot\n/etc/a: Content\n/etc/b: Missing", "", of...)
		Expect(r.Out).To(Equal("Node edge-7 (PoolbootConfig edge/edge-7), as it was found -> pool infra\n  effect: Reboot\n  ~ /etc/a: Content\n  ~ /etc/b: Missing\n"))
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Code).To(Equal(1))
	})

	It("leaves an adopted host that is as it was found out of what files change", func() {
		to := clitest.NewFakeConnection([]string{clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra")}, clitest.AdoptedConfig("edge-7", bootstrapv1.AdoptionPreviewReason, ""))
		r := clitest.RunOn(to, New, "diff", "-f", clitest.WriteFile("motd.yaml", clitest.Config("motd", "infra", clitest.Motd("a"))))
		Expect(r.Out).To(ContainSubstring("  machines: 0\n"))
	})

	It("prints nothing if the pool changes nothing", func() {
		Expect(clitest.ExpectSuccess(run(next+" None", "", of...))).To(BeEmpty())
		r := run("-", rollout.PreviewNothing+". To follow it, …", of...)
		Expect(r.Out).To(BeEmpty())
		Expect(r.Code).To(BeZero())
	})

	It("prints why the host can't follow its pool", func() {
		r := run(next+" Unreconcilable\nfips: a running host can't change it", "", of...)
		Expect(r.Out).To(ContainSubstring("  effect: Unreconcilable\n  ~ fips: a running host can't change it\n"))
		Expect(r.Code).To(Equal(1))
	})

	DescribeTable("prints the condition, and says so, if the Node can't be read", func(message string) {
		r := run("-", "Node edge-7 is as it was found. "+message, of...)
		Expect(r.Out).To(Equal("Node edge-7 is as it was found. " + message + "\n"))
		Expect(r.ErrOut).To(And(HavePrefix("note: "), ContainSubstring("condition Updated of PoolbootConfig edge/edge-7"), ContainSubstring("secrets is forbidden")))
		Expect(r.Code).To(Equal(1))
	},
		Entry("with changes", rollout.PreviewChanges+" Reboot: /etc/a: Content."),
		Entry("with an obstacle", rollout.PreviewImpossible+": fips."),
	)

	DescribeTable("says why there is nothing to compare", func(why, preview, message string, args ...string) {
		clitest.ExpectError(run(preview, message, args...), 2, why)
	},
		Entry("the agent has not compared yet", "Its agent compares it with its pool", "", "Its agent compares it with its pool", "--node", "edge-7"),
		Entry("it compared with what the pool handed out before", "Its agent compares it with its pool", strings.Repeat("b", 64)+" Reboot\n/etc/a: Content", "Its agent compares it with its pool", "--node", "edge-7"),
		Entry("nothing is reported and the Node can't be read", "the host runs no agent yet", "-", "the host runs no agent yet", "--node", "edge-7"),
		Entry("Poolboot booted the host", "adopts the Node host-1", "", "", "--node", "host-1"),
		Entry("no such Node", "adopts the Node edge-9: correct the name", "", "", "--node", "edge-9"),
		Entry("files too", "--filename and --node exclude each other", "", "", "--node", "edge-7", "-f", "-"),
		Entry("neither", "set --filename or --node", "", ""),
	)
})
