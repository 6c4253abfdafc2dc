package hoststate_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hoststate"
)

var _ = DescribeTable("The failing units of a host are", func(annotation string, want ...hoststate.FailingUnit) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{agentv1.ReportVersionAnnotation: "1", agentv1.FailingUnitsAnnotation: annotation}}}
	Expect(hoststate.ReportOf(node).FailingUnits).To(HaveExactElements(want))
},
	Entry("none", ""),
	Entry("those of the lines", "kubelet.service: it failed: result timeout\ngetty@tty1.service: it failed",
		hoststate.FailingUnit{"kubelet.service", "it failed: result timeout"}, hoststate.FailingUnit{"getty@tty1.service", "it failed"}),
	Entry("not what would be another command in a shell", "a;reboot.service: it failed\n$(reboot).service: it failed\na b.service: no"),
	Entry("not what is no unit", "kubelet.service\n: it failed\nkubelet: it failed"),
	Entry("without control characters", "a.service: it\x1b[31m failed\ttwice", hoststate.FailingUnit{"a.service", "it [31m failed twice"}),
	Entry("of limited size", strings.Repeat("x", agentv1.MaxReason)+"\na.service: it failed"),
)
