package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("A host whose operating system needs a reboot", func() {
	var w *world
	// boots gives a host another boot, in which its agent reports this.
	boots := func(ctx context.Context, i int, boot, required string) {
		GinkgoHelper()
		w.changeNode(ctx, i, func(node *corev1.Node) {
			node.Status.NodeInfo.BootID = boot
			node.Annotations[agentv1.RebootRequiredAnnotation] = boot + required
			if required == "-" {
				delete(node.Annotations, agentv1.RebootRequiredAnnotation)
			}
		})
		w.settle(ctx)
	}
	required := func(ctx context.Context, i int) bootstrapv1.RebootRequired {
		return w.config(ctx, i).Status.Update.RebootRequired
	}
	request := func(ctx context.Context, i int) string {
		return record.RebootRequestOf(w.config(ctx, i)).Boot
	}
	reboots := func(ctx context.Context) {
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Generation++
			p.Spec.Updates.RebootRequiredPolicy = poolv1.RebootRequiredReboot
		})
		w.settle(ctx)
	}
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(3)
		w.adopt(ctx)
	})

	It("is reported with what to do, and not rebooted by default", func(ctx SpecContext) {
		boots(ctx, 0, "b-1", "\nlinux-base")
		Expect(required(ctx, 0)).To(Equal(bootstrapv1.RebootRequired{BootID: "b-1", Since: bootstrapv1.RebootRequiredLater, Packages: []string{"linux-base"}}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", HaveSuffix(
			"The operating system needs a reboot (linux-base): to reboot it, run kubectl poolboot rollout restart worker -n edge, or set spec.updates.rebootRequiredPolicy of the pool to Reboot"))))
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.config(ctx, 0).Annotations).NotTo(HaveKey(bootstrapv1.RebootFromAnnotation))
		boots(ctx, 0, "b-2", "-")
		Expect(required(ctx, 0)).To(BeZero())
		Expect(w.updated(ctx, 0).Message).NotTo(ContainSubstring("reboot"))
	})

	It("is rebooted if the pool says so, within its limits, and stays alone if the next boot needs it at once again", func(ctx SpecContext) {
		for i := range 2 {
			boots(ctx, i, "b-1", "")
		}
		reboots(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "one at a time")
		Expect(request(ctx, 0)).To(Equal("b-1"))
		Expect(w.updated(ctx, 1).Message).To(ContainSubstring("before its update to reboot, which its operating system needs"))
		told := w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]

		w.reports(ctx, 0, agentv1.Verifying, told, "")
		boots(ctx, 0, "b-2", " AtBoot")
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(told), "it is not told something else in its update")
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.passed = 100 * time.Hour
		w.settle(ctx)
		Expect(request(ctx, 0)).To(Equal("b-1"))
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(told), "no other update ends it")
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("there is no second one"))
	})

	It("is rebooted again in a later boot, but not twice a day whatever it reports", func(ctx SpecContext) {
		reboots(ctx)
		boots(ctx, 0, "b-1", "")
		w.complete(ctx, 0)
		boots(ctx, 0, "b-2", "")
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("less than a day ago"))
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", BeNumerically("~", 24*time.Hour, time.Minute)))
		w.passed = 25 * time.Hour
		w.settle(ctx)
		Expect(request(ctx, 0)).To(Equal("b-2"))
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("keeps what it runs if the report claims another boot than its kubelet", func(ctx SpecContext) {
		reboots(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Status.NodeInfo.BootID, node.Annotations[agentv1.RebootRequiredAnnotation] = "b-1", "b-0"
		})
		w.settle(ctx)
		Expect(required(ctx, 0)).To(BeZero())
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("waits while the pool is paused, and is left alone if the policy is withdrawn before its turn", func(ctx SpecContext) {
		reboots(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = new(true) })
		boots(ctx, 0, "b-1", "")
		Expect(request(ctx, 0)).To(Equal("b-1"))
		Expect(w.told(ctx)).To(BeEmpty())
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Generation++
			p.Spec.Paused, p.Spec.Updates.RebootRequiredPolicy = nil, poolv1.RebootRequiredReport
		})
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
	})
})
