package update

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("The pool of a control plane with a mistake in what it is given", func() {
	DescribeTable("begins no update, and holds no Machine, while the report of one agent is not understood", func(ctx SpecContext, version, remedy string) {
		w := newControlPlane(ctx, 3)
		setVersion := func(version string) {
			w.changeNode(ctx, 1, func(node *corev1.Node) {
				node.Annotations[agentv1.AgentAnnotation], node.Annotations[agentv1.ReportVersionAnnotation] = "v0.0.1", version
				if version == "" {
					delete(node.Annotations, agentv1.ReportVersionAnnotation)
				}
			})
		}
		setVersion(version)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.held(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 1)).To(And(HaveField("Reason", bootstrapv1.ReportNotUnderstoodReason), HaveField("Message", ContainSubstring(remedy))))

		setVersion("1")
		w.afterWrite = w.expectQuorum(ctx)
		for range 3 {
			w.settle(ctx)
			Expect(w.told(ctx)).To(HaveLen(1))
			w.complete(ctx, w.told(ctx)[0])
		}
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.held(ctx)).To(BeEmpty())
	},
		Entry("because the agent is older than that", "", "restart poolboot-agent.service"),
		Entry("because no agent writes that", "0", "restart poolboot-agent.service"),
		Entry("because the agent is newer than the manager", "2", "update Poolboot's manager"),
	)

	It("keeps the pause of health checks, and gives one slot, when a second PoolbootConfig adopts the Node of a host in its update", func(ctx SpecContext) {
		w := newControlPlane(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		told := w.told(ctx)[0]
		w.reports(ctx, told, agentv1.Rebooting, revisionOf(told, "rendered-worker-2"), "")
		w.settle(ctx)
		isPaused := func() bool {
			return metav1.HasAnnotation(w.machine(ctx, told).ObjectMeta, clusterv1.MachineSkipRemediationAnnotation)
		}
		Expect(isPaused()).To(BeTrue())

		second := record.NewAdoption(client.ObjectKey{Namespace: clusterKey.Namespace, Name: "second"}, clusterKey.Name, hostName(told), poolv1.RoleControlPlane, bootstrapv1.AdoptionFollow)
		second.UID, second.OwnerReferences = "second", w.config(ctx, told).OwnerReferences
		second.CreationTimestamp = metav1.NewTime(time.Now().Add(-2 * time.Hour))
		record.RevokeToken(second)
		Expect(w.management.Create(ctx, second)).To(Succeed())
		for range 2 {
			Expect(w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(second)})).Error().NotTo(HaveOccurred())
			Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
			Expect(isPaused()).To(BeTrue())
			Expect(w.slots(ctx)).To(Equal([]string{hostName(told)}))
		}
		Expect(w.management.Delete(ctx, second)).To(Succeed())
		w.complete(ctx, told)
		w.settle(ctx)
		Expect(isPaused()).To(BeFalse())
	})
})
