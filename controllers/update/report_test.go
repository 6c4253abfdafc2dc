package update

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	r := report{current: current, target: target, state: state}
	Expect(r.progress(newRevision)).To(Equal(expected))
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

var _ = Describe("What a Node claims", func() {
	It("is cut, and has no control characters, whatever root on the host writes", func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
			agentv1.AgentAnnotation:   strings.Repeat("v", 1000),
			agentv1.ReasonAnnotation:  "line 1\nline 2\x1b[31m \u202eevil\xff" + strings.Repeat("ü", agentv1.MaxReason),
			agentv1.CurrentAnnotation: "../../etc", agentv1.TargetAnnotation: strings.Repeat("F", 64),
		}}}
		r := reportOf(node)
		Expect(len(r.version)).To(BeNumerically("<=", maxVersion))
		Expect(len(r.reason)).To(BeNumerically("<=", agentv1.MaxReason))
		Expect(r.reason).To(HavePrefix("line 1 line 2 [31m evil\uFFFD"))
		Expect(r.current).To(BeEmpty())
		Expect(r.target).To(BeEmpty())
	})

	It("has the states of the API as reasons of the condition", func() {
		Expect([]string{
			bootstrapv1.UpdateDoneReason, bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason, bootstrapv1.UpdateRebootingReason,
			bootstrapv1.UpdateVerifyingReason, bootstrapv1.UpdateDegradedReason, bootstrapv1.UpdateUnreconcilableReason,
		}).To(Equal([]string{
			string(agentv1.Done), string(agentv1.Draining), string(agentv1.Applying), string(agentv1.Rebooting),
			string(agentv1.Verifying), string(agentv1.Degraded), string(agentv1.Unreconcilable),
		}))
	})
})

func FuzzClean(f *testing.F) {
	f.Add("a\nb\xff", 10)
	f.Add("üüüüüü", 5)
	f.Fuzz(func(t *testing.T, text string, size int) {
		if size < 8 || size > 4096 {
			return
		}
		cleaned := clean(text, size)
		if len(cleaned) > size || !utf8.ValidString(cleaned) || strings.ContainsAny(cleaned, "\n\r\x00\x1b") {
			t.Errorf("clean(%q, %d) = %q", text, size, cleaned)
		}
	})
}

var _ = DescribeTable("The condition Updated says what is, why, and what to do:",
	func(change func(h *host, o *outcome), status metav1.ConditionStatus, reason string, parts ...string) {
		config, machine, node := newObjects(hostName(0))
		config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = "rendered-worker-2", newRevision
		node.Annotations[agentv1.DesiredAnnotation] = newRevision
		h := newHost(config, machine, node)
		h.report.current, h.report.target, h.report.state = newRevision, newRevision, agentv1.Done
		p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "worker"}}
		o := outcome{in: surroundings{pool: p}, revision: newRevision}
		change(h, &o)
		condition := h.updated(o)
		Expect(condition.Status).To(Equal(status))
		Expect(condition.Reason).To(Equal(reason))
		for _, part := range parts {
			Expect(condition.Message).To(ContainSubstring(part))
		}
	},
	Entry("done", func(*host, *outcome) {}, metav1.ConditionTrue, "Done", "Node host-0 runs rendered-worker-2"),
	Entry("no Node", func(h *host, _ *outcome) { h.node = nil }, metav1.ConditionUnknown, "NodeMissing", "NodeInPool"),
	Entry("no agent", func(h *host, _ *outcome) { h.report, h.config.Status.Update = report{}, bootstrapv1.UpdateStatus{} },
		metav1.ConditionUnknown, "NoAgent", "keeps the configuration"),
	Entry("no answer", func(h *host, _ *outcome) { h.report.target = oldRevision }, metav1.ConditionFalse, "Waiting", "poolboot-agent.service"),
	Entry("not told", func(h *host, _ *outcome) { h.node.Annotations[agentv1.DesiredAnnotation] = oldRevision },
		metav1.ConditionFalse, "Waiting", "spec.maxUnavailable of MachineConfigPool worker is 1"),
	Entry("other hosts first", func(_ *host, o *outcome) {
		o.revision, o.in.pool.Status.Configuration.Name = oldRevision, "rendered-worker-3"
	},
		metav1.ConditionFalse, "Waiting", "update to rendered-worker-3", "spec.maxUnavailable"),
	Entry("a paused pool", func(_ *host, o *outcome) {
		paused := true
		o.revision, o.in.pool.Spec.Paused = oldRevision, &paused
	}, metav1.ConditionFalse, "Waiting", "set spec.paused of MachineConfigPool worker to false"),
	Entry("draining", func(h *host, o *outcome) {
		h.report.current, h.report.state, o.remaining = oldRevision, agentv1.Draining, "Pod default/app"
	}, metav1.ConditionFalse, "Draining", "is drained to run rendered-worker-2", "Pod default/app"),
	Entry("applying", func(h *host, _ *outcome) {
		h.report.current, h.report.state, h.report.reason = oldRevision, agentv1.Applying, "restarting chronyd.service"
	}, metav1.ConditionFalse, "Applying", "restarting chronyd.service"),
	Entry("failed", func(h *host, _ *outcome) { h.report.current, h.report.state = oldRevision, agentv1.Degraded },
		metav1.ConditionFalse, "Degraded", "was undone", "force-update", "journal of poolboot-agent.service"),
	Entry("not possible", func(h *host, _ *outcome) {
		h.report.current, h.report.state, h.report.reason = oldRevision, agentv1.Unreconcilable, "disks changed"
	}, metav1.ConditionFalse, "Unreconcilable", "disks changed", "Correct the configuration"),
	Entry("drift", func(h *host, _ *outcome) {
		h.report.state, h.report.drift = agentv1.Degraded, "/etc/chrony.conf: content"
	},
		metav1.ConditionFalse, "Degraded", "/etc/chrony.conf: content", "driftPolicy"),
	Entry("an unknown target", func(_ *host, o *outcome) { o.revision, o.err = "", errors.New("spec.extraConfig: no") },
		metav1.ConditionFalse, "AssignmentFailed", "spec.extraConfig: no"),
	Entry("a pool that hands out nothing yet", func(_ *host, o *outcome) { o.revision, o.err = "", errNothingToRun },
		metav1.ConditionFalse, "Waiting", "see its conditions"),
	Entry("an unknown target during an update", func(h *host, o *outcome) {
		h.report.current, h.report.state, o.revision, o.err = oldRevision, agentv1.Rebooting, "", errors.New("no")
	}, metav1.ConditionFalse, "Rebooting", "reboots"),
)
