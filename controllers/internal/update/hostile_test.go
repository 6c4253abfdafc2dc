package update

import (
	"context"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("A pool with hosts in any state", func() {
	It("updates no other host before the Node of the last one is uncordoned", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())
		w.complete(ctx, 0)
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.told(ctx)).To(BeEmpty())
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("goes on with the config that corrects a failed update, also if another host can't be told", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "chronyd.service failed")
		w.changeNode(ctx, 1, func(node *corev1.Node) { // its agent is gone, or root on the host removes them all the time
			for _, key := range append([]string{agentv1.DesiredAnnotation, agentv1.ReportVersionAnnotation}, agentv1.Reports...) {
				delete(node.Annotations, key)
			}
		})
		w.settle(ctx)
		Expect(w.node(ctx, 1).Annotations).NotTo(HaveKey(agentv1.DesiredAnnotation), "the failed host counts")
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-3")))
		Expect(w.node(ctx, 1).Annotations).NotTo(HaveKey(agentv1.DesiredAnnotation))
	})

	It("is not stopped by a host whose Node changes faster than it can be written", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) { delete(node.Annotations, agentv1.DesiredAnnotation) })
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable, p.Status.Configuration.Name = ptr.To(intstr.FromInt32(2)), "rendered-worker-2"
		})
		w.reconciler = w.newManager(func(ctx context.Context, o client.Object, write func() error) error {
			if node, isNode := o.(*corev1.Node); isNode && node.Name == hostName(0) {
				return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, node.Name, nil)
			}
			return w.Write(ctx, o, write)
		})
		for range 5 {
			_ = w.roll(ctx)
		}
		Expect(w.told(ctx)).To(Equal([]int{1}))
	})

	It("tells a host another revision than that of its first boot only after its agent has adopted that one", func(ctx SpecContext) {
		w := newWorld(1)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-1")))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-2")))
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredConfigAnnotation, "rendered-worker-2"))
	})

	It("tells no host another revision than that of its first boot while this one can't be read", func(ctx SpecContext) {
		w := newWorld(1)
		w.render(ctx, "rendered-worker-2")
		live := w.reconciler.APIReader
		w.reconciler.APIReader = interceptor.NewClient(w.management, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, isSecret := o.(*corev1.Secret); isSecret {
					return errors.New("the API server is busy")
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		_, err := w.reconcileHost(ctx, 0)
		Expect(err).To(MatchError(ContainSubstring("busy")))
		Expect(w.slots(ctx)).To(BeEmpty())
		w.reconciler.APIReader = live
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-1")))
	})

	It("is not updated by another pool with the same role, nor by itself, until only one is left", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		other := controllertest.NewPool(clusterKey, "other")
		other.Spec.PoolRole, other.Status.Configuration.Name = poolv1.RoleWorker, "rendered-other-1"
		Expect(w.management.Create(ctx, other)).To(Succeed())
		w.render(ctx, "rendered-worker-2")
		reconcile := func() {
			GinkgoHelper()
			for _, key := range []client.ObjectKey{poolKey, client.ObjectKeyFromObject(other)} {
				Expect(w.reconciler.reconcilePool(ctx, key)).Error().NotTo(HaveOccurred())
			}
			for i := range 2 {
				Expect(w.reconcileHost(ctx, i)).Error().NotTo(HaveOccurred())
			}
		}
		reconcile()
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.management.Delete(ctx, other)).To(Succeed())
		reconcile()
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("uncordons the Node of an update whose pool was deleted meanwhile, and ends the pause of its health checks", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.machine(ctx, 0).Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		p := &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
		Expect(w.management.Delete(ctx, p)).To(Succeed())
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.machine(ctx, 0).Annotations).NotTo(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
	})
})

var _ = Describe("After the restore of a backup of the management cluster", func() {
	It("hosts that have what their pool renders keep it", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		backup := []bootstrapv1.PoolbootConfigStatus{w.config(ctx, 0).Status, w.config(ctx, 1).Status}
		w.render(ctx, "rendered-worker-2")
		for i := range 2 {
			w.settle(ctx)
			w.complete(ctx, i)
		}
		w.settle(ctx)
		for i, status := range backup {
			config := w.config(ctx, i)
			config.Status = status
			Expect(w.management.Status().Update(ctx, config)).To(Succeed())
			secret := secretOf(config, newDocument(config, "rendered-worker-1", ""))
			Expect(w.management.Update(ctx, secret)).To(Succeed())
		}
		w.afterWrite = func() { Expect(w.told(ctx)).To(BeEmpty()) }
		w.settle(ctx)
		for i := range 2 {
			Expect(w.config(ctx, i).Status.Update.DesiredRevision).To(Equal(revisionOf(i, "rendered-worker-2")))
			Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
		}
	})
})

var _ = It("The CA that verifies the certificate of a host is replaced, also while it is not known what the host should run", func(ctx SpecContext) {
	w := newWorld(1)
	w.adopt(ctx)
	w.reconciler.ClusterCache.(*controllertest.ClusterCache).RESTConfig.CAData = []byte("the next CA")
	w.reconciler.document = func(context.Context, *host, poolContext) ([]byte, error) {
		return nil, errors.New("no agent is offered")
	}
	w.render(ctx, "rendered-worker-2")
	w.settle(ctx)
	secret := &corev1.Secret{}
	Expect(w.management.Get(ctx, w.reconciler.secrets().Key("host-0-config"), secret)).To(Succeed())
	Expect(string(secret.Data[bootstrapv1.AssignmentClientCAKey])).To(Equal("the next CA"))
	Expect(assignment.Revision(secret.Data[bootstrapv1.AssignmentKey])).To(Equal(revisionOf(0, "rendered-worker-1")))
	Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.AssignmentFailedReason))
})

var _ = It("A host whose Machine can't be found is neither updated nor registered again: it would lose the labels of its Machine", func(ctx SpecContext) {
	config, _, node := newObjects(hostName(0))
	w := newWorld(1)
	r := w.reconciler
	cluster := controllertest.NewCluster(clusterKey)
	p := controllertest.NewPool(clusterKey, poolv1.RoleWorker)
	in := poolContext{cluster: cluster, pool: p, pools: []poolv1.MachineConfigPool{*p}}
	sources, err := r.sourcesOf(ctx, &host{Host: rollout.HostOf(in.pools, config, nil, node)}, in, "")
	Expect(err).To(MatchError(ContainSubstring("Machine edge/host-0")))
	Expect(sources).To(BeZero())
})

var _ = It("Events about a host are short enough for the API server, whatever its agent reports", func(ctx SpecContext) {
	w := newWorld(1)
	w.adopt(ctx)
	w.render(ctx, "rendered-worker-2")
	w.settle(ctx)
	w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), strings.Repeat("x", 2000))
	w.settle(ctx)
	events := w.eventsOf(bootstrapv1.UpdateDegradedReason)
	Expect(events).To(HaveLen(1))
	Expect(len(events[0])).To(BeNumerically("<", 1024+100), fmt.Sprint(len(events[0])))
})
