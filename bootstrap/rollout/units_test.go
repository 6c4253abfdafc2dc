package rollout_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = DescribeTable("The failing units of a host are", func(annotation string, want ...rollout.FailingUnit) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{agentv1.ReportVersionAnnotation: "1", agentv1.FailingUnitsAnnotation: annotation}}}
	Expect(rollout.ReportOf(node).FailingUnits).To(HaveExactElements(want))
},
	Entry("none", ""),
	Entry("those of the lines", "kubelet.service: it failed: result timeout\ngetty@tty1.service: it failed",
		rollout.FailingUnit{"kubelet.service", "it failed: result timeout"}, rollout.FailingUnit{"getty@tty1.service", "it failed"}),
	Entry("not what would be another command in a shell", "a;reboot.service: it failed\n$(reboot).service: it failed\na b.service: no"),
	Entry("not what is no unit", "kubelet.service\n: it failed\nkubelet: it failed"),
	Entry("without control characters", "a.service: it\x1b[31m failed\ttwice", rollout.FailingUnit{"a.service", "it [31m failed twice"}),
	Entry("of limited size", strings.Repeat("x", agentv1.MaxReason)+"\na.service: it failed"),
)

var _ = It("A unit that does not exist, and for which the configuration has only drop-ins, is no failing unit", func() {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{agentv1.ReportVersionAnnotation: "1",
		agentv1.FailingUnitsAnnotation: "wbe.service: " + agentv1.DropInsUnused + ": correct its name\na.service: it failed"}}}
	report := rollout.ReportOf(node)
	Expect(report.FailingUnits).To(HaveExactElements(HaveField("Name", "a.service")))
	Expect(report.DescribeMissingUnits()).To(Equal("wbe.service: the configuration has only drop-ins for it, and it does not exist on the host: correct its name"))
})

var _ = DescribeTable("A failing unit is described", func(what, want string) {
	Expect(rollout.FailingUnit{"web.service", what}.String()).To(Equal(want))
},
	Entry("with the command that shows its log", "it failed", "web.service: it failed (on the host, see journalctl -u web.service)"),
	Entry("without one if it does not exist, and has no log", "the configuration enables it, and it does not exist on the host: correct its name",
		"web.service: the configuration enables it, and it does not exist on the host: correct its name"),
)

var _ = DescribeTable("The reason why a host in an update is unavailable is", func(change func(*corev1.Node), want bootstrapv1.UnavailableReason) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "host", UID: "1", Annotations: map[string]string{
		agentv1.DesiredAnnotation: newRevision, agentv1.BegunAnnotation: newRevision, agentv1.ReportVersionAnnotation: "1",
		agentv1.CurrentAnnotation: oldRevision, agentv1.TargetAnnotation: newRevision, agentv1.StateAnnotation: string(agentv1.Verifying),
	}}}
	change(node)
	config := &bootstrapv1.PoolbootConfig{Status: bootstrapv1.PoolbootConfigStatus{NodeRef: bootstrapv1.NodeReference{Name: "host", UID: "1"}}}
	h := rollout.HostOf(nil, config, nil, node)
	Expect(h.Stage()).To(Equal(bootstrapv1.UpdateVerifying))
	Expect(h.UnavailableReason()).To(Equal(want))
},
	Entry("none, if it is the update only", rollout.Cordon, bootstrapv1.UnavailableReason("")),
	Entry("that its kubelet fails", func(node *corev1.Node) {
		node.Annotations[agentv1.FailingUnitsAnnotation] = "kubelet.service: it failed"
	}, bootstrapv1.UnavailableKubeletFailing),
	Entry("that a user has cordoned it", func(node *corev1.Node) { node.Spec.Unschedulable = true }, bootstrapv1.UnavailableCordoned),
)
