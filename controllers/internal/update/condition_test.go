package update

import (
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var (
	oldRevision = strings.Repeat("0", 64)
	newRevision = strings.Repeat("1", 64)
)

var _ = Describe("The condition Updated", func() {
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

var _ = DescribeTable("The condition Updated says what is, why, and what to do:",
	func(change func(h *host, o *outcome), status metav1.ConditionStatus, reason string, parts ...string) {
		config, machine, node := newObjects(hostName(0))
		config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = "rendered-worker-2", newRevision
		node.Annotations[agentv1.DesiredAnnotation], node.Annotations[agentv1.BegunAnnotation] = newRevision, newRevision
		p := controllertest.NewPool(clusterKey, poolv1.RoleWorker)
		h := &host{Host: rollout.HostOf([]poolv1.MachineConfigPool{*p}, config, machine, node)}
		h.Report.Current, h.Report.Target, h.Report.State = newRevision, newRevision, agentv1.Done
		o := outcome{now: time.Now(), in: poolContext{pool: p}, revision: newRevision}
		change(h, &o)
		o.in.hold = rollout.HoldOf(p, time.Now())
		condition := h.updated(o)
		Expect(condition.Status).To(Equal(status))
		Expect(condition.Reason).To(Equal(reason))
		for _, part := range parts {
			Expect(condition.Message).To(ContainSubstring(part))
		}
		Expect(condition.Message).NotTo(MatchRegexp("earlier configuration.*Correct"))
		Expect(strings.Count(condition.Message, failingText)).To(BeNumerically("<=", 1))
	},
	Entry("done", func(*host, *outcome) {}, metav1.ConditionTrue, "Done", "Node host-0 runs rendered-worker-2"),
	Entry("done, with drop-ins for a unit that does not exist", func(h *host, _ *outcome) {
		h.Report.MissingUnits = []rollout.FailingUnit{{Name: "wbe.service", What: agentv1.DropInsUnused + ": correct its name"}}
	}, metav1.ConditionTrue, "Done", "Node host-0 runs rendered-worker-2. Drop-ins have no effect: wbe.service: the configuration has only drop-ins for it, and it does not exist on the host: correct its name"),
	Entry("no Node", func(h *host, _ *outcome) { h.Node = nil }, metav1.ConditionUnknown, "NodeMissing", "NodeInPool"),
	Entry("no agent", func(h *host, _ *outcome) {
		h.Report, h.Config.Status.Update = rollout.Report{}, bootstrapv1.UpdateStatus{}
	},
		metav1.ConditionUnknown, "NoAgent", "keeps the configuration"),
	Entry("no agent, after a move by labels", func(h *host, o *outcome) {
		h.Report, h.Config.Status.Update, h.Config.Status.PoolRole = rollout.Report{}, bootstrapv1.UpdateStatus{}, "infra"
		o.in.pools = []poolv1.MachineConfigPool{*o.in.pool, *controllertest.NewPool(clusterKey, "infra")}
	}, metav1.ConditionUnknown, "NoAgent", "to update it, roll out its MachineDeployment to renew it, see docs/pools.md#renewing-machines (the new Machine boots into pool worker unless you change spec.template of its MachineDeployment)"),
	Entry("an agent that has not started yet", func(h *host, o *outcome) {
		h.Report, h.Config.Status.Update, o.bootedWithAgent = rollout.Report{}, bootstrapv1.UpdateStatus{}, true
		h.Config.Status.Boot.NodeReadyTime = &metav1.MicroTime{Time: o.now.Add(-time.Second)}
	}, metav1.ConditionFalse, "Waiting", "has not reported yet", "poolboot-agent.service"),
	Entry("an agent that does not start", func(h *host, o *outcome) {
		h.Report, h.Config.Status.Update, o.bootedWithAgent = rollout.Report{}, bootstrapv1.UpdateStatus{}, true
		h.Config.Status.Boot.NodeReadyTime = &metav1.MicroTime{Time: o.now.Add(-answerDeadline)}
	}, metav1.ConditionFalse, "AgentNotAnswering", "has not reported for 10m", "poolboot-agent.service"),
	Entry("no answer yet", func(h *host, o *outcome) {
		h.Report.Target = oldRevision
		h.Config.Status.Update.UnansweredTime = &metav1.Time{Time: o.now.Add(-time.Minute)}
	}, metav1.ConditionFalse, "Waiting", "was told at 20", "Z to run ", ", and its agent has 10m to answer"),
	Entry("no answer yet from a host whose Node is not Ready", func(h *host, _ *outcome) {
		h.Report.Target, h.Node.Status.Conditions = oldRevision, []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	}, metav1.ConditionFalse, "Waiting", "has 10m to answer. The Node is not Ready: see the condition NodeInPool"),
	Entry("a download that fails", func(h *host, o *outcome) {
		h.Report.Target, h.Report.Reason = oldRevision, "file /etc/big: connection refused"
		h.Config.Status.Update.UnansweredTime = &metav1.Time{Time: o.now.Add(-time.Minute)}
	}, metav1.ConditionFalse, "UpdateFailing", "was told to run rendered-worker-2, and its agent cannot begin, which it retries: file /etc/big: connection refused"),
	Entry("no answer yet after another config failed", func(h *host, _ *outcome) {
		h.Report.Target, h.Report.Reason, h.Report.State = oldRevision, "the kubelet does not start", agentv1.Degraded
	}, metav1.ConditionFalse, "Waiting", "has 10m to answer"),
	Entry("a repair", func(h *host, _ *outcome) {
		delete(h.Node.Annotations, agentv1.BegunAnnotation)
		h.Report.State = agentv1.Applying
	}, metav1.ConditionFalse, "Waiting", "Node host-0 runs rendered-worker-2, and its agent corrects what differs from it"),
	Entry("almost done", func(h *host, _ *outcome) { h.Report.State = agentv1.Verifying }, metav1.ConditionFalse, "Verifying", "must stay Ready"),
	Entry("almost done for too long", func(h *host, o *outcome) {
		h.Report.State = agentv1.Verifying
		h.Config.Status.Update.UnansweredTime = &metav1.Time{Time: o.now.Add(-answerDeadline)}
	}, metav1.ConditionFalse, "AgentNotAnswering", "poolboot-agent.service"),
	Entry("no answer for too long", func(h *host, o *outcome) {
		h.Report.Target, h.Report.Reason = oldRevision, "the disk is full"
		h.Config.Status.Update.UnansweredTime = &metav1.Time{Time: o.now.Add(-answerDeadline)}
	}, metav1.ConditionFalse, "AgentNotAnswering", "has not answered for 10m. The agent reports: the disk is full. Check that the host runs", "poolboot-agent.service"),
	Entry("no answer, because the certificate is not accepted", func(h *host, _ *outcome) {
		h.Report.Target, h.Report.Reason = oldRevision, agentv1.CertificateNotAccepted+": another CA issued it"
	}, metav1.ConditionFalse, "CertificateNotAccepted", "another CA issued it. ", "certificate-authority-data in the Secret "+clusterKey.Namespace+"/"+clusterKey.Name+"-kubeconfig", "clock"),
	Entry("done, and the certificate is not accepted any more", func(h *host, _ *outcome) {
		h.Report.Reason = agentv1.CertificateNotAccepted + ": another CA issued it"
	}, metav1.ConditionFalse, "CertificateNotAccepted", "another CA issued it"),
	Entry("staging that fails", func(h *host, o *outcome) {
		o.revision, o.in.pool.Status.Configuration.Name = oldRevision, "rendered-worker-3"
		h.Report.Staging, h.Report.StagingProblem = oldRevision, "stage rendered-worker-3: 404 Not Found"
	}, metav1.ConditionFalse, "UpdateFailing", "and its host cannot stage the update to rendered-worker-3: 404 Not Found. It tries again at the latest after 30 minutes, and takes no place of spec.maxUnavailable before. If it lasts, correct"),
	Entry("staging that fails for other settings of the pool", func(h *host, o *outcome) {
		o.revision, o.in.pool.Status.Configuration.Name = oldRevision, "rendered-worker-2"
		h.Report.Staging, h.Report.StagingProblem = oldRevision, "404 Not Found"
	}, metav1.ConditionFalse, "UpdateFailing", "cannot stage the update to other settings of MachineConfigPool worker: 404 Not Found. It tries again"),
	Entry("not told", func(h *host, _ *outcome) { h.Node.Annotations[agentv1.DesiredAnnotation] = oldRevision },
		metav1.ConditionFalse, "Waiting", "is to be told what to run, and waits for its turn: see kubectl poolboot rollout plan worker -n edge"),
	Entry("other hosts first", func(_ *host, o *outcome) {
		o.revision, o.in.pool.Status.Configuration.Name = oldRevision, "rendered-worker-3"
	},
		metav1.ConditionFalse, "Waiting", "runs rendered-worker-2, and waits for its turn before its update to rendered-worker-3: see kubectl poolboot rollout plan worker -n edge"),
	Entry("a paused pool", func(_ *host, o *outcome) {
		paused := true
		o.revision, o.in.pool.Spec.Paused = oldRevision, &paused
	}, metav1.ConditionFalse, "Waiting", "runs rendered-worker-2, and the pool is paused: run kubectl poolboot rollout resume worker -n edge to hand out what it renders. Until then, its hosts keep what they run"),
	Entry("a paused pool that did not tell it yet", func(h *host, o *outcome) {
		h.Node.Annotations[agentv1.DesiredAnnotation] = oldRevision
		h.Config.Status.Boot.ServedConfiguration.Name, o.in.pool.Spec.Paused = "rendered-worker-1", new(true)
	}, metav1.ConditionFalse, "Waiting", "runs rendered-worker-1", "kubectl poolboot rollout resume worker"),
	Entry("labels of no pool", func(h *host, _ *outcome) { h.Follows = "" },
		metav1.ConditionFalse, "Waiting", "follows no pool until its labels name exactly one", "NodeInPool"),
	Entry("labels of another pool during an update", func(h *host, _ *outcome) {
		h.Follows, h.Report.Current, h.Report.State = "infra", oldRevision, agentv1.Rebooting
	}, metav1.ConditionFalse, "Rebooting", "reboots"),
	Entry("draining", func(h *host, o *outcome) {
		h.Report.Current, h.Report.State, o.remaining = oldRevision, agentv1.Draining, "Pod default/app"
	}, metav1.ConditionFalse, "Draining", "is drained to run rendered-worker-2", "Pod default/app"),
	Entry("applying", func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Reason = oldRevision, agentv1.Applying, "restarting chronyd.service"
	}, metav1.ConditionFalse, "Applying", "restarting chronyd.service"),
	Entry("an update that was not begun", func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State = oldRevision, agentv1.Draining
		delete(h.Node.Annotations, agentv1.BegunAnnotation)
	}, metav1.ConditionFalse, "Degraded", "reports Draining for an update to rendered-worker-2 that has ended or was not begun", "kubectl poolboot rollout retry worker -n edge --host host-0"),
	Entry("failed", func(h *host, _ *outcome) { h.Report.Current, h.Report.State = oldRevision, agentv1.Degraded },
		metav1.ConditionFalse, "Degraded", "was undone", "kubectl poolboot rollout retry worker -n edge --host host-0", "journal of poolboot-agent.service"),
	Entry("not possible", func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Reason = oldRevision, agentv1.Unreconcilable, "disks changed"
	}, metav1.ConditionFalse, "Unreconcilable", "disks changed", "Correct the configuration"),
	Entry("drift", func(h *host, _ *outcome) {
		h.Report.State, h.Report.Drift = agentv1.Degraded, "/etc/chrony.conf: content"
	},
		metav1.ConditionFalse, "Degraded", "/etc/chrony.conf: content. Undo the change", "driftPolicy", "leave out of the configuration what the operating system changes itself"),
	Entry("drift of a host that is forced in a paused pool", func(h *host, o *outcome) {
		h.Report.State, h.Report.Drift, h.Config.Annotations = agentv1.Degraded, "/etc/chrony.conf: Content", map[string]string{bootstrapv1.ForceUpdateAnnotation: "1"}
		o.in.pool.Spec.Paused = new(true)
	}, metav1.ConditionFalse, "Degraded", "/etc/chrony.conf: Content. It is to apply its configuration again, and the pool is paused: run kubectl poolboot rollout resume worker"),
	Entry("drift whose repair failed", func(h *host, _ *outcome) {
		h.Report.State, h.Report.Drift, h.Report.Reason = agentv1.Degraded, "/etc/web: Missing", "A repair failed and was undone: Reload web.service: exit status 1"
	}, metav1.ConditionFalse, "Degraded", "differs from it: /etc/web: Missing. A repair failed and was undone: Reload web.service: exit status 1. Undo the change on the host"),
	Entry("the same config that failed when it was applied again, and what still differs", func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Drift, h.Report.Reason = oldRevision, agentv1.Degraded, "/etc/web: Missing", "Reload web.service: exit status 1"
		h.Config.Status.Boot.ServedConfiguration.Name = "rendered-worker-2"
	}, metav1.ConditionFalse, "Degraded", "Node host-0 runs rendered-worker-2, and applying it again failed and was undone: Reload web.service: exit status 1. "+
		"The host differs from rendered-worker-2: /etc/web: Missing. Correct the configuration, or run"),
	Entry("drift that no update corrects", func(h *host, _ *outcome) {
		h.Report.State, h.Report.Drift = agentv1.Degraded, "/etc/systemd/system/web.service: Masked; /etc/systemd/system/web.service.d/me.conf: AdditionalDropIn; /proc/x: Unreadable"
	}, metav1.ConditionFalse, "Degraded", "/proc/x: Unreadable. On the host, run systemctl unmask for what is Masked, remove the files that are AdditionalDropIn, let root read what is Unreadable: no update does that"),
	Entry("drift of which an update corrects a part", func(h *host, _ *outcome) {
		h.Report.State, h.Report.Drift = agentv1.Degraded, "/run/systemd/system/web.service: Overridden; /etc/chrony.conf: Mode"
	}, metav1.ConditionFalse, "Degraded", "chrony.conf: Mode. On the host, remove the files that are Overridden: no update does that. Undo the other changes on the host, set spec.updates.driftPolicy", "run kubectl poolboot rollout retry worker -n edge"),
	Entry("an unknown target", func(_ *host, o *outcome) { o.revision, o.err = "", errors.New("spec.extraConfig: no") },
		metav1.ConditionFalse, "AssignmentFailed", "spec.extraConfig: no"),
	Entry("a pool that hands out nothing yet", func(_ *host, o *outcome) { o.revision, o.err = "", errNothingToRun },
		metav1.ConditionFalse, "Waiting", "see its conditions"),
	Entry("an unknown target during an update", func(h *host, o *outcome) {
		h.Report.Current, h.Report.State, o.revision, o.err = oldRevision, agentv1.Rebooting, "", errors.New("no")
	}, metav1.ConditionFalse, "Rebooting", "reboots"),
	Entry("done, and the kubelet ends again and again", failing(func(*host, *outcome) {}),
		metav1.ConditionFalse, "UnitsFailing", "Node host-0 runs rendered-worker-2. Units of its configuration do not do their work: "+failingText),
	Entry("a paused pool, and the kubelet ends again and again", failing(func(_ *host, o *outcome) {
		o.revision, o.in.pool.Spec.Paused = oldRevision, new(true)
	}), metav1.ConditionFalse, "UnitsFailing", "its hosts keep what they run. Units of its configuration do not do their work: "+failingText),
	Entry("verifying, and the kubelet ends again and again", failing(func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State = oldRevision, agentv1.Verifying
	}), metav1.ConditionFalse, "Verifying", "must stay Ready", failingText),
	Entry("an update that is being undone", failing(func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Reason, h.Report.IsUndoing = oldRevision, agentv1.Applying, "the update failed and is being undone: "+failingText, true
		h.Config.Status.Boot.ServedConfiguration.Name = "rendered-worker-1"
	}), metav1.ConditionFalse, "Applying", "is being changed to run rendered-worker-1: the update failed and is being undone: "+failingText),
	Entry("a reboot after an update was undone", func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Reason, h.Report.IsUndoing = oldRevision, agentv1.Rebooting, "web.service: it failed", true
		h.Config.Status.Boot.ServedConfiguration.Name = "rendered-worker-1"
	}, metav1.ConditionFalse, "Rebooting", "its host reboots to run rendered-worker-1: web.service: it failed"),
	Entry("a correction that is being applied", failing(func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Reason = oldRevision, agentv1.Rebooting, "file /etc/web changes"
	}), metav1.ConditionFalse, "Rebooting", "to run rendered-worker-2: file /etc/web changes. Units of its earlier configuration do not do their work: "+failingText),
	Entry("drift, and the kubelet ends again and again", failing(func(h *host, _ *outcome) {
		h.Report.State, h.Report.Drift = agentv1.Degraded, "/etc/chrony.conf: Content"
	}), metav1.ConditionFalse, "Degraded", "/etc/chrony.conf: Content", failingText),
	Entry("verifying, and the agent says itself that the kubelet ends", failing(func(h *host, _ *outcome) {
		h.Report.Current, h.Report.State, h.Report.Reason = oldRevision, agentv1.Verifying, failingText
	}), metav1.ConditionFalse, "Verifying", "must stay Ready to run rendered-worker-2: "+failingText),
	Entry("failed, and the kubelet ends again and again", failing(func(h *host, _ *outcome) { h.Report.Current, h.Report.State = oldRevision, agentv1.Degraded }),
		metav1.ConditionFalse, "Degraded", "was undone", failingText),
)

const failingText = "kubelet.service: it failed: result exit-code, exit status 1 (on the host, see journalctl -u kubelet.service)"

// failing returns a change that also makes the kubelet of the host fail.
func failing(change func(*host, *outcome)) func(*host, *outcome) {
	return func(h *host, o *outcome) {
		change(h, o)
		h.Node.Annotations[agentv1.FailingUnitsAnnotation] = "kubelet.service: it failed: result exit-code, exit status 1"
		h.Report.FailingUnits = rollout.ReportOf(h.Node).FailingUnits
	}
}
