package clusternodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/drainhook"
)

var _ = Describe("The hook of a Machine of a control plane", func() {
	newControlPlane := func() *poolv1.MachineConfigPool {
		p := controllertest.NewPool(edge, poolv1.RoleControlPlane)
		p.Status.SlotsOpenTime = &metav1.Time{Time: time.Unix(1, 0)}
		return p
	}
	held := func() *clusterv1.Machine {
		machine := newMachine("cp-1", "cp-1")
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, drainhook.Annotation, "poolboot")
		return machine
	}
	// stays reconciles the Cluster, whose workload cluster can't be reached, and reports whether the hook stays.
	stays := func(ctx context.Context, cluster *clusterv1.Cluster, r *Reconciler, pools ...client.Object) bool {
		GinkgoHelper()
		management := controllertest.NewClientBuilder(append(pools, cluster, held())...).Build()
		clusters := controllertest.NewClusterCache(controllertest.NewClientBuilder().Build(), edge)
		clusters.Unreachable = true
		r.Client, r.APIReader, r.ClusterCache, r.Recorder = management, management, clusters, events.NewFakeRecorder(10)
		_, _ = r.Reconcile(ctx, ctrl.Request{NamespacedName: edge})
		machine := &clusterv1.Machine{}
		Expect(management.Get(ctx, client.ObjectKeyFromObject(held()), machine)).To(Succeed())
		return drainhook.Is(machine)
	}

	DescribeTable("is removed without a slot if no pool does that", func(ctx SpecContext, updatesHosts bool, filter string, change func(*poolv1.MachineConfigPool)) {
		var pools []client.Object
		if change != nil {
			p := newControlPlane()
			change(p)
			pools = append(pools, p)
		}
		cluster := controllertest.NewCluster(edge)
		cluster.Labels = map[string]string{clusterv1.WatchLabel: filter}
		Expect(stays(ctx, cluster, &Reconciler{UpdatesHosts: updatesHosts, WatchFilterValue: filter}, pools...)).To(BeFalse())
	},
		Entry("because the last pool was deleted", true, "", nil),
		Entry("because only others are left", true, "", func(p *poolv1.MachineConfigPool) { p.Name, p.Spec.PoolRole = "infra", "infra" }),
		Entry("because it is paused", true, "", func(p *poolv1.MachineConfigPool) { p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }),
		Entry("because it is for another manager", true, "a", func(p *poolv1.MachineConfigPool) { p.Labels = map[string]string{clusterv1.WatchLabel: "b"} }),
		Entry("because the manager offers no agent", false, "", func(*poolv1.MachineConfigPool) {}),
	)

	It("stays for a host with a slot, although the pool is paused", func(ctx SpecContext) {
		p := newControlPlane()
		p.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		p.Status.Slots = []poolv1.UpdateSlot{{ID: "id", Host: "cp-2", Revision: "a"}}
		Expect(stays(ctx, controllertest.NewCluster(edge), &Reconciler{UpdatesHosts: true}, p)).To(BeTrue())
	})

	It("is left to its pool, which adds it before a host has a slot", func(ctx SpecContext) {
		Expect(stays(ctx, controllertest.NewCluster(edge), &Reconciler{UpdatesHosts: true}, newControlPlane())).To(BeTrue())
	})

	It("is left to the manager of another Cluster, and to who moves it", func(ctx SpecContext) {
		Expect(stays(ctx, controllertest.NewCluster(edge), &Reconciler{UpdatesHosts: true, WatchFilterValue: "a"})).To(BeTrue())
		paused := controllertest.NewCluster(edge)
		paused.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(stays(ctx, paused, &Reconciler{UpdatesHosts: true})).To(BeTrue())
	})

	It("has its Cluster reconciled whenever the Machine changes", func() {
		without := held()
		delete(without.Annotations, drainhook.Annotation)
		Expect(hasHook().Update(event.UpdateEvent{ObjectOld: without, ObjectNew: held()})).To(BeTrue())
		Expect(hasHook().Create(event.CreateEvent{Object: held()})).To(BeTrue())
		Expect(hasHook().Update(event.UpdateEvent{ObjectOld: held(), ObjectNew: without})).To(BeFalse())
	})
})
