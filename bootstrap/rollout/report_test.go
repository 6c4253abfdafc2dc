package rollout_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var (
	oldRevision = strings.Repeat("0", 64)
	newRevision = strings.Repeat("1", 64)
)

var _ = DescribeTable("A report", func(current, target string, state agentv1.State, expected rollout.Progress) {
	r := rollout.Report{Current: current, Target: target, State: state}
	Expect(r.Progress(newRevision)).To(Equal(expected))
},
	Entry("of the revision is done", newRevision, newRevision, agentv1.Done, rollout.Done),
	Entry("of the revision with drift is done", newRevision, newRevision, agentv1.Degraded, rollout.Done),
	Entry("about another revision says nothing", oldRevision, oldRevision, agentv1.Done, rollout.Unknown),
	Entry("that is missing says nothing", "", "", agentv1.State(""), rollout.Unknown),
	Entry("with an unknown state says nothing", oldRevision, newRevision, agentv1.State("Dancing"), rollout.Unknown),
	Entry("that claims to be done and has another revision says nothing", oldRevision, newRevision, agentv1.Done, rollout.Unknown),
	Entry("of work on what the host has already says nothing", newRevision, newRevision, agentv1.Applying, rollout.Unknown),
	Entry("of a drain is in an update", oldRevision, newRevision, agentv1.Draining, rollout.InUpdate),
	Entry("of a change is in an update", oldRevision, newRevision, agentv1.Applying, rollout.InUpdate),
	Entry("of a reboot is in an update", oldRevision, newRevision, agentv1.Rebooting, rollout.InUpdate),
	Entry("of a verification is in an update", oldRevision, newRevision, agentv1.Verifying, rollout.InUpdate),
	Entry("of a failure has failed", oldRevision, newRevision, agentv1.Degraded, rollout.Failed),
	Entry("of an impossible update has failed", oldRevision, newRevision, agentv1.Unreconcilable, rollout.Failed),
)

var _ = DescribeTable("An agent", func(agentBoot, kubeletBoot string, state agentv1.State, failing, silence string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		agentv1.ReportVersionAnnotation: "1", agentv1.BootAnnotation: agentBoot, agentv1.StateAnnotation: string(state), agentv1.FailingUnitsAnnotation: failing,
	}}}
	node.Status.NodeInfo.BootID = kubeletBoot
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	Expect(rollout.ReportOf(node).Silence).To(Equal(silence))
},
	Entry("runs if the kubelet runs in the same boot", "2", "2", agentv1.Done, "", ""),
	Entry("that reported before the kubelet runs in a later boot has not started", "1", "2", agentv1.Done, "", "its agent does not run: it has not started since the host booted"),
	Entry("that reported a reboot before the kubelet runs in a later boot has not started", "1", "2", agentv1.Rebooting, "", "its agent does not run: it has not started since the host booted"),
	Entry("runs while it verifies a boot in which the kubelet has not reported", "2", "1", agentv1.Verifying, "", ""),
	Entry("runs if it reports that the kubelet of another boot fails", "2", "1", agentv1.Done, "kubelet.service: it failed", ""),
	Entry("that was stopped while it verified an update has stopped", agentv1.AgentStopped, "1", agentv1.Verifying, "", "its agent does not run: it has stopped"),
)

var _ = Describe("What a Node claims", func() {
	It("has a separator between the lines of what differs", func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{agentv1.ReportVersionAnnotation: "1", agentv1.DriftAnnotation: "/etc/a: Content\n/etc/b: Mode"}}}
		Expect(rollout.ReportOf(node).Drift).To(Equal("/etc/a: Content; /etc/b: Mode"))
	})

	It("is cut, and has no control characters, whatever root on the host writes", func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			agentv1.ReportVersionAnnotation: "1",
			agentv1.AgentAnnotation:         strings.Repeat("v", 1000),
			agentv1.ReasonAnnotation:        "line 1\nline 2\x1b[31m \u202eevil\xff" + strings.Repeat("ü", agentv1.MaxReason),
			agentv1.CurrentAnnotation:       "../../etc", agentv1.TargetAnnotation: strings.Repeat("F", 64),
		}}}
		r := rollout.ReportOf(node)
		Expect(len(r.Version)).To(BeNumerically("<=", rollout.MaxVersion))
		Expect(len(r.Reason)).To(BeNumerically("<=", agentv1.MaxReason))
		Expect(r.Reason).To(HavePrefix("line 1 line 2 [31m evil\uFFFD"))
		Expect(r.Current).To(BeEmpty())
		Expect(r.Target).To(BeEmpty())
	})
})

var _ = DescribeTable("A report is not understood, whatever else it says, if its version is", func(version *string, why ...string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		agentv1.AgentAnnotation: "v9", agentv1.CurrentAnnotation: newRevision, agentv1.TargetAnnotation: newRevision, agentv1.StateAnnotation: string(agentv1.Done),
		agentv1.DesiredAnnotation: newRevision,
	}}}
	if version != nil {
		node.Annotations[agentv1.ReportVersionAnnotation] = *version
	}
	r := rollout.ReportOf(node)
	Expect(r).To(Equal(rollout.Report{Version: "v9", NotUnderstood: r.NotUnderstood}))
	for _, part := range why {
		Expect(r.NotUnderstood).To(ContainSubstring(part))
	}
	h := rollout.Host{Config: &bootstrapv1.PoolbootConfig{}, Node: node, Report: r}
	Expect(h.Progress()).To(Equal(rollout.Unknown))
	Expect(h.HasAgent()).To(BeTrue())
	Expect(h.IsExcluded()).To(BeTrue())
	Expect(h.ForRollout(&poolv1.MachineConfigPool{}, newRevision, nil, rollout.Hold{}).IsExcluded).To(BeTrue())
},
	Entry("newer", ptr.To("2"), "version 2", "update Poolboot's manager"),
	Entry("older", ptr.To("0"), `"0"`, "restart poolboot-agent.service"),
	Entry("no number", ptr.To("one"), `"one"`, "restart poolboot-agent.service"),
	Entry("missing", nil, "without the annotation poolboot.io/report-version", "restart poolboot-agent.service"),
)

func FuzzClean(f *testing.F) {
	f.Add("a\nb\xff", 10)
	f.Add("üüüüüü", 5)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 8 || size > 4096 {
			return
		}
		cleaned := rollout.Clean(text, size)
		if len(cleaned) > size || !utf8.ValidString(cleaned) || strings.ContainsAny(cleaned, "\n\r\x00\x1b") {
			t.Errorf("Clean(%q, %d) = %q", text, size, cleaned)
		}
	})
}
