package update

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

func revisionOf(i int, rendered string) string {
	config, _, _ := newObjects(hostName(i))
	return assignment.Revision(newDocument(config, rendered, ""))
}

var _ = Describe("A host that has booted for the first time", func() {
	It("is told the revision that was stored before its boot, also if its pool renders another one by now", func(ctx SpecContext) {
		w := newWorld(3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		for i := range 3 {
			Expect(w.node(ctx, i).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(i, "rendered-worker-1")))
			Expect(w.config(ctx, i).Status.Update.Desired.Name).To(Equal("rendered-worker-1"))
		}
	})

	It("is told it in a paused pool too, because that changes nothing", func(ctx SpecContext) {
		w := newWorld(1)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DesiredAnnotation))
	})

	It("is told nothing if it has no agent", func(ctx SpecContext) {
		w := newWorld(1)
		Expect(w.management.Delete(ctx, secretOf(w.config(ctx, 0), nil))).To(Succeed())
		w.changeNode(ctx, 0, func(node *corev1.Node) { delete(node.Annotations, agentv1.AgentAnnotation) })
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).NotTo(HaveKey(agentv1.DesiredAnnotation))
		Expect(w.config(ctx, 0).Status.Update).To(And(HaveField("Desired", BeZero()), HaveField("DesiredRevision", BeEmpty()), HaveField("Slot", BeEmpty())))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.NoAgentReason)))
	})

	It("is not reported as one without an agent in the seconds before its agent reports", func(ctx SpecContext) {
		w := newWorld(1)
		w.changeNode(ctx, 0, func(node *corev1.Node) { delete(node.Annotations, agentv1.AgentAnnotation) })
		w.settle(ctx)
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", Not(ContainSubstring("MachineDeployment")))))
	})

	It("is recognized by what it reports if both the record and the Secret are lost", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		config := w.config(ctx, 0)
		config.Status.Update = bootstrapv1.UpdateStatus{}
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		Expect(w.management.Delete(ctx, secretOf(config, nil))).To(Succeed())
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.DesiredRevision).To(Equal(revisionOf(0, "rendered-worker-1")))
		Expect(w.management.Get(ctx, client.ObjectKeyFromObject(secretOf(config, nil)), &corev1.Secret{})).To(Succeed())
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
	})
})

var _ = Describe("A rollout", func() {
	It("updates one host after the other by default, the oldest first, and records what they run", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		for i := range 3 {
			w.settle(ctx)
			Expect(w.told(ctx)).To(Equal([]int{i}))
			Expect(w.node(ctx, i).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(i, "rendered-worker-2")))
			Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-1"))
			w.complete(ctx, i)
			w.settle(ctx)
			Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
			Expect(w.node(ctx, i).Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, "rendered-worker-2"))
			Expect(w.updated(ctx, i)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", bootstrapv1.UpdateDoneReason)))
		}
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("stores the assignment that it tells a host", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		secret := &corev1.Secret{}
		Expect(w.management.Get(ctx, w.reconciler.secrets().Key("host-0-config"), secret)).To(Succeed())
		Expect(assignment.Revision(secret.Data[bootstrapv1.AssignmentKey])).To(Equal(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]))
		Expect(secret.Labels).To(HaveKeyWithValue(bootstrapv1.AssignmentLabel, "host-0-config"))
	})

	It("updates as many hosts at a time as the pool allows", func(ctx SpecContext) {
		w := newWorld(5)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable, p.Status.Configuration.Name = ptr.To(intstr.FromString("40%")), "rendered-worker-2"
		})
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 1}))
	})

	It("updates the hosts of one failure domain at a time, also if more are allowed", func(ctx SpecContext) {
		w := newWorld(4)
		w.adopt(ctx)
		const label = "example.com/rack"
		for i, rack := range []string{"r2", "r1", "r2", "r1"} {
			w.changeNode(ctx, i, func(node *corev1.Node) { node.Labels[label] = rack })
		}
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable, p.Spec.Updates.FailureDomainLabel = ptr.To(intstr.FromInt32(3)), label
			p.Status.Configuration.Name = "rendered-worker-2"
		})
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1, 3}))
		Expect(w.updated(ctx, 0).Message).To(HaveSuffix("waits for its turn before its update to rendered-worker-2: see kubectl poolboot rollout plan worker -n edge"))
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{3}))
		w.complete(ctx, 3)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 2}))
	})

	It("begins only in the maintenance window, says when it opens, and looks again then", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		opens := time.Now().UTC().AddDate(0, 0, 7) // a date, so that the test does not depend on the hour
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: fmt.Sprintf("0 0 %d %d *", opens.Day(), opens.Month()), DurationMinutes: 1}
		})
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.UpdateWaitingReason),
			HaveField("Message", HaveSuffix("the maintenance window of MachineConfigPool worker opens at "+opens.Format(time.DateOnly)+"T00:00:00Z"))))
		for _, reconcile := range []func() (ctrl.Result, error){
			func() (ctrl.Result, error) { return w.reconcilePool(ctx) }, func() (ctrl.Result, error) { return w.reconcileHost(ctx, 0) },
		} {
			result, err := reconcile()
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(rollout.MaxWait))
		}

		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: "* * * * *", DurationMinutes: 60}
		})
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))

		By("closing the window during the update of a host")
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.MaintenanceWindow.Schedule = "not a schedule" })
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 1).Message).To(ContainSubstring("can't be read: spec.updates.maintenanceWindow.schedule: Invalid value"))
	})

	DescribeTable("waits while", func(ctx SpecContext, change func(context.Context, *world)) {
		w := newWorld(2)
		w.adopt(ctx)
		change(ctx, w)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
	},
		Entry("a Node is not Ready", func(ctx context.Context, w *world) {
			w.changeNode(ctx, 1, func(node *corev1.Node) { setReady(node, false) })
		}),
		Entry("a user has cordoned a Node", func(ctx context.Context, w *world) {
			w.changeNode(ctx, 1, func(node *corev1.Node) { node.Spec.Unschedulable = true })
		}),
		Entry("a Node does not exist", func(ctx context.Context, w *world) {
			Expect(w.workload.Delete(ctx, w.node(ctx, 1))).To(Succeed())
		}),
		Entry("the pool is paused", func(ctx context.Context, w *world) {
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		}),
		Entry("Cluster API pauses the pool", func(ctx context.Context, w *world) {
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		}),
		Entry("the Cluster is paused", func(ctx context.Context, w *world) {
			cluster := &clusterv1.Cluster{}
			Expect(w.management.Get(ctx, clusterKey, cluster)).To(Succeed())
			cluster.Spec.Paused = ptr.To(true)
			Expect(w.management.Update(ctx, cluster)).To(Succeed())
		}),
		Entry("a Machine is being deleted", func(ctx context.Context, w *world) {
			machine := w.machine(ctx, 1)
			machine.Finalizers = []string{clusterv1.MachineFinalizer}
			Expect(w.management.Update(ctx, machine)).To(Succeed())
			Expect(w.management.Delete(ctx, machine)).To(Succeed())
		}),
		Entry("a Machine is being remediated", func(ctx context.Context, w *world) {
			machine := w.machine(ctx, 1)
			machine.Status.Conditions = []metav1.Condition{
				{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse}, {Type: clusterv1.MachineOwnerRemediatedCondition, Status: metav1.ConditionFalse},
			}
			Expect(w.management.Update(ctx, machine)).To(Succeed())
		}),
		Entry("Cluster API updates a Machine in place", func(ctx context.Context, w *world) {
			machine := w.machine(ctx, 1)
			machine.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
			Expect(w.management.Update(ctx, machine)).To(Succeed())
		}),
		Entry("all agents' reports are lost", func(ctx context.Context, w *world) {
			for i := range 2 {
				w.changeNode(ctx, i, func(node *corev1.Node) { delete(node.Annotations, agentv1.TargetAnnotation) })
			}
		}),
	)

	It("records the agent of a host, and why it is unavailable although its Node is Ready", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Spec.Unschedulable = true })
		machine := w.machine(ctx, 1)
		machine.Annotations = map[string]string{clusterv1.UpdateInProgressAnnotation: ""}
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		for i, reason := range []bootstrapv1.UnavailableReason{bootstrapv1.UnavailableCordoned, bootstrapv1.UnavailableMachineChanging, ""} {
			Expect(w.config(ctx, i).Status.Update).To(And(HaveField("UnavailableReason", reason), HaveField("AgentVersion", "v0.1.0")))
		}
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("it is cordoned, so its host takes a place of spec.maxUnavailable and begins no update: kubectl uncordon host-0"))

		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Spec.Unschedulable = false })
		machine = w.machine(ctx, 1)
		machine.Annotations = nil
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		Expect(w.config(ctx, 0).Status.Update.UnavailableReason).To(BeEmpty(), "it is cordoned for its update")
	})

	It("records with what a user forced the update of a host, when it is the turn of the host", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.force = "1"
		for i := range 2 {
			config := w.config(ctx, i)
			config.Annotations[bootstrapv1.ForceUpdateAnnotation] = "1"
			Expect(w.management.Update(ctx, config)).To(Succeed())
		}
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.config(ctx, 0).Status.Update.Force).To(Equal("1"))
		Expect(w.config(ctx, 1).Status.Update.Force).To(BeEmpty())
	})

	It("stops at a config that fails, and goes on with the one that corrects it", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "chronyd.service failed")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.UpdateDegradedReason),
			HaveField("Message", And(ContainSubstring("chronyd.service failed"), ContainSubstring("rendered-worker-2"), ContainSubstring("runs rendered-worker-1")))))
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-1"))

		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(revisionOf(0, "rendered-worker-3")))
	})

	DescribeTable("stops at a host of which a unit fails after its update is done, and goes on with the config that corrects it", func(ctx SpecContext, unit string, reason bootstrapv1.UnavailableReason) {
		w := newWorld(3)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Done, revisionOf(0, "rendered-worker-2"), "")
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.FailingUnitsAnnotation] = unit + ": it failed: result exit-code, exit status 1"
		})
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.config(ctx, 0).Status.Update.UnavailableReason).To(Equal(reason))

		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(revisionOf(0, "rendered-worker-3")))
		Expect(w.told(ctx)).To(Equal([]int{0}))

		By("starting the unit")
		w.reports(ctx, 0, agentv1.Done, revisionOf(0, "rendered-worker-3"), "")
		w.changeNode(ctx, 0, func(node *corev1.Node) { delete(node.Annotations, agentv1.FailingUnitsAnnotation) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
	},
		Entry("its kubelet", "kubelet.service", bootstrapv1.UnavailableKubeletFailing),
		Entry("a unit of a MachineConfig, with which the host stays available", "web.service", bootstrapv1.UnavailableReason("")),
	)

	It("says nothing of a failure any more as soon as another config is recorded for the host", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "disk full")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))
		w.render(ctx, "rendered-worker-3")
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		w.failWrites(context.DeadlineExceeded, isNode)
		_, _ = w.reconcileHost(ctx, 0)
		Expect(w.config(ctx, 0).Status.Update.Desired.Name).To(Equal("rendered-worker-3"))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", ContainSubstring("rendered-worker-3"))))
	})

	It("tells a host that is drained the newer config at once", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.evict = func(*corev1.Pod) error { return errPDB }
		Expect(w.workload.Create(ctx, newPod(0))).To(Succeed())
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(revisionOf(0, "rendered-worker-3")))
	})

	DescribeTable("calls back a host that is drained if its pool hands out again what the host runs, also while", func(ctx SpecContext, hold func(*poolv1.MachineConfigPool)) {
		w := newWorld(3)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		w.reports(ctx, 1, agentv1.Draining, revisionOf(1, "rendered-worker-2"), "")
		w.changePool(ctx, hold)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(w.node(ctx, 1).Spec.Unschedulable).To(BeTrue())

		w.render(ctx, "rendered-worker-1")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty(), "no other host begins an update")
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-2")))
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.node(ctx, 1).Spec.Unschedulable).To(BeFalse())
		Expect(w.config(ctx, 1).Status.Update.DesiredRevision).To(Equal(revisionOf(1, "rendered-worker-1")))
	},
		Entry("the pool is paused", func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) }),
		Entry("the maintenance window is closed", func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: time.Now().UTC().Add(2 * time.Hour).Format("4 15 * * *"), DurationMinutes: 60}
		}),
	)

	It("tells a host again what is recorded if the annotation is changed, and gives the host nothing else", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.DesiredAnnotation] = revisionOf(1, "rendered-worker-1")
		})
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(revisionOf(0, "rendered-worker-1")))
	})

	It("creates an event when a host is done", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.eventsOf("")
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.eventsOf(bootstrapv1.EventUpdated)).To(BeEmpty())
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.eventsOf("Normal " + bootstrapv1.EventUpdated)).To(HaveLen(1))
	})
})
