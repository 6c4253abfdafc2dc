package update

import (
	"cmp"
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// errPDB is the answer of an API server to an eviction that a PodDisruptionBudget does not allow.
var errPDB = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

func newPod(host int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app"}, Spec: corev1.PodSpec{NodeName: hostName(host)}}
}

// refuseNodes has the workload cluster refuse changes of Nodes, as an admission policy of its owner can.
func refuseNodes(w *world) {
	w.reconciler.ClusterCache = w.newManager(func(ctx context.Context, o client.Object, write func() error) error {
		if _, isNode := o.(*corev1.Node); isNode {
			return apierrors.NewForbidden(corev1.Resource("nodes"), o.GetName(), errors.New("the owner of the cluster refuses it"))
		}
		return w.Write(ctx, o, write)
	}).ClusterCache
}

var _ = Describe("A Node whose agent asks for a drain", func() {
	// draining returns a world with a host that waits for its drain, and a Pod on it.
	draining := func(ctx SpecContext) *world {
		GinkgoHelper()
		w := newWorld(2)
		Expect(w.workload.Create(ctx, newPod(0))).To(Succeed())
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		return w
	}
	drained := HaveKeyWithValue(agentv1.DrainedAnnotation, revisionOf(0, "rendered-worker-2"))

	It("is cordoned and drained, then the agent is told, and after the update it is uncordoned", func(ctx SpecContext) {
		w := draining(ctx)
		w.settle(ctx)
		node := w.node(ctx, 0)
		Expect(node.Spec.Unschedulable).To(BeTrue())
		Expect(node.Spec.Taints).To(ConsistOf(HaveField("Key", corev1.TaintNodeUnschedulable)), "so Kubernetes does not write the Node too")
		Expect(node.Annotations).To(drained)
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(newPod(0)), &corev1.Pod{})).To(Satisfy(apierrors.IsNotFound))
		for _, state := range []agentv1.State{agentv1.Applying, agentv1.Rebooting, agentv1.Verifying} {
			w.reports(ctx, 0, state, revisionOf(0, "rendered-worker-2"), "")
			w.settle(ctx)
			Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		}
		w.complete(ctx, 0)
		w.settle(ctx)
		node = w.node(ctx, 0)
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(node.Spec.Taints).To(BeEmpty())
		Expect(node.Annotations).NotTo(Or(HaveKey(agentv1.DrainedAnnotation), HaveKey(agentv1.CordonedAnnotation), HaveKey(agentv1.DrainStartedAnnotation)))
	})

	It("is uncordoned too after an update that failed", func(ctx SpecContext) {
		w := draining(ctx)
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("stays cordoned after the update if someone else had cordoned it", func(ctx SpecContext) {
		w := draining(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Spec.Unschedulable = true })
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(And(drained, Not(HaveKey(agentv1.CordonedAnnotation))))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
	})

	It("waits for PodDisruptionBudgets, and says so", func(ctx SpecContext) {
		w := draining(ctx)
		w.evict = func(*corev1.Pod) error { return errPDB }
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", drainRetry))
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateDrainingReason),
			HaveField("Message", And(ContainSubstring("default/app"), ContainSubstring("disruption budget")))))
		w.evict = nil
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(drained)
	})

	DescribeTable("is not drained within drainTimeoutSeconds of the pool: ", func(ctx SpecContext, seconds int32, policy poolv1.DrainTimeoutPolicy, isForced bool) {
		w := draining(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.DrainTimeoutSeconds, p.Spec.Updates.DrainTimeoutPolicy = seconds, policy
		})
		w.evict = func(*corev1.Pod) error { return errPDB }
		machine := w.machine(ctx, 0)
		machine.Spec.Deletion.NodeDrainTimeoutSeconds = ptr.To[int32](1) // counts only when the Machine is deleted
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		started := func(after time.Duration) {
			w.changeNode(ctx, 0, func(node *corev1.Node) {
				node.Annotations[agentv1.DrainStartedAnnotation] = time.Now().Add(-after).UTC().Format(time.RFC3339)
			})
		}
		timeout := time.Duration(cmp.Or(seconds, poolv1.DefaultDrainTimeoutSeconds)) * time.Second
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0).Message).NotTo(ContainSubstring("drainTimeoutPolicy"))
		started(timeout - time.Minute)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Message).NotTo(ContainSubstring("drainTimeoutPolicy"))
		Expect(w.eventsOf("DrainTimedOut")).To(BeEmpty())
		started(timeout + time.Second)
		w.settle(ctx)
		Expect(w.eventsOf("DrainTimedOut")).To(ConsistOf(And(HavePrefix("Warning"), ContainSubstring("default/app"), ContainSubstring(" of MachineConfigPool worker"))))
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(newPod(0)), &corev1.Pod{})).To(Succeed())
		if isForced {
			Expect(w.node(ctx, 0).Annotations).To(drained)
			return
		}
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.updated(ctx, 0).Message).To(And(MatchRegexp("The drain takes longer than spec.updates.drainTimeoutSeconds [^ ]+: Pod default/app: "), HaveSuffix("set spec.updates.drainTimeoutPolicy of MachineConfigPool worker to Force")))
		w.evict = nil
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(drained)
	},
		Entry("by default, it reports and waits", int32(0), poolv1.DrainTimeoutPolicy(""), false),
		Entry("with Wait, it reports and waits", int32(3600), poolv1.DrainTimeoutWait, false),
		Entry("with Force, the host is updated with the Pods on it", int32(120), poolv1.DrainTimeoutForce, true),
	)

	It("has one event for a drain that is late, also while its agent does not run, and when it runs again", func(ctx SpecContext) {
		w := draining(ctx)
		w.evict = func(*corev1.Pod) error { return errPDB }
		w.settle(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.DrainStartedAnnotation] = time.Now().Add(-24 * time.Hour).UTC().Format(time.RFC3339)
		})
		w.settle(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Status.NodeInfo.BootID, node.Annotations[agentv1.BootAnnotation] = "boot-1", agentv1.AgentStopped
		})
		w.settle(ctx)
		w.passed += answerDeadline
		for range 3 {
			w.settle(ctx)
		}
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.AgentNotAnsweringReason))
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = "boot-1" })
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDrainingReason))
		Expect(w.config(ctx, 0).Status.Update.DrainTimedOutTime).NotTo(BeNil())
		Expect(w.eventsOf("DrainTimedOut")).To(HaveLen(1))
		w.evict = nil
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.DrainTimedOutTime).To(BeNil())
	})

	It("is drained of Pods that are being deleted if it is unreachable, because nothing ends them", func(ctx SpecContext) {
		w := draining(ctx)
		pod := newPod(0)
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		pod.Finalizers = []string{"example.com/slow"}
		Expect(w.workload.Update(ctx, pod)).To(Succeed())
		Expect(w.workload.Delete(ctx, pod)).To(Succeed())
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		node := w.node(ctx, 0)
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
		Expect(w.workload.Status().Update(ctx, node)).To(Succeed())
		Eventually(ctx, func() map[string]string {
			w.settle(ctx)
			return w.node(ctx, 0).Annotations
		}).WithTimeout(10 * time.Second).Should(drained)
	})

	It("is not drained if its Machine excludes that", func(ctx SpecContext) {
		w := draining(ctx)
		machine := w.machine(ctx, 0)
		machine.Annotations[clusterv1.ExcludeNodeDrainingAnnotation] = ""
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(drained)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(newPod(0)), &corev1.Pod{})).To(Succeed())
	})

	It("respects MachineDrainRules", func(ctx SpecContext) {
		w := draining(ctx)
		rule := &clusterv1.MachineDrainRule{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "keep"}}
		rule.Spec.Drain.Behavior = clusterv1.MachineDrainRuleDrainBehaviorSkip
		Expect(w.management.Create(ctx, rule)).To(Succeed())
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(drained)
		Expect(w.workload.Get(ctx, client.ObjectKeyFromObject(newPod(0)), &corev1.Pod{})).To(Succeed())
	})

	It("is not drained for a revision that it was not told", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.reports(ctx, 1, agentv1.Draining, revisionOf(1, "rendered-worker-2"), "I want to")
		w.settle(ctx)
		Expect(w.node(ctx, 1).Spec.Unschedulable).To(BeFalse())
		Expect(w.node(ctx, 1).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
	})

	It("is not drained for a revision that is recorded, as long as other hosts of the pool are updated", func(ctx SpecContext) {
		w := draining(ctx)
		w.settle(ctx)
		config := w.config(ctx, 1)
		config.Status.Update.Desired.Name, config.Status.Update.DesiredRevision = "rendered-worker-2", revisionOf(1, "rendered-worker-2")
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		w.reports(ctx, 1, agentv1.Draining, revisionOf(1, "rendered-worker-2"), "I want to")
		w.settle(ctx)
		Expect(w.node(ctx, 1).Spec.Unschedulable).To(BeFalse())
	})

	It("is drained again for a newer revision", func(ctx SpecContext) {
		w := draining(ctx)
		w.settle(ctx)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-3"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DrainedAnnotation, revisionOf(0, "rendered-worker-3")))
	})
})
