package update

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// newManager returns the reconcilers of a manager, whose writes go through write.
func (w *world) newManager(write func(context.Context, client.Object, func() error) error) *manager {
	faults := controllertest.InterceptWrites(func(ctx context.Context, o client.Object, do func() error) error {
		err := write(ctx, o, do)
		if err == nil && w.afterWrite != nil {
			w.afterWrite()
		}
		return err
	})
	management := interceptor.NewClient(w.management, faults)
	faults.SubResourceCreate = func(ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
		if pod, isPod := o.(*corev1.Pod); isPod && w.evict != nil {
			if err := w.evict(pod); err != nil {
				return err
			}
		}
		return c.SubResource(sub).Create(ctx, o, body, opts...)
	}
	kubelets := faults
	kubelets.Get = w.renewLease
	clusters := controllertest.NewClusterCache(interceptor.NewClient(w.workload, kubelets), clusterKey)
	clusters.RESTConfig = &rest.Config{Host: "https://site.example:6443", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("the CA of the cluster")}}
	r := &Updates{
		Env: scope.Env{
			Client: management, APIReader: w.management, ClusterCache: clusters, Recorder: w.events, OverlayNamespace: "poolboot-system",
			Offer: func() (join.Offer, error) { return join.Offer{}, nil },
		},
		Secrets: controllertest.NewCache(w.management), revisions: lru.New(100), assignments: lru.New(100), stageClocks: lru.New(100), origins: lru.New(10), leases: lru.New(100),
		failing: newStreaks(failureTTL), silent: newStreaks(failureTTL), unansweredGates: newStreaks(unansweredPatience),
	}
	r.clock = func() time.Time { return time.Now().Add(w.passed) }
	r.document = func(_ context.Context, h *host, in poolContext) ([]byte, error) {
		document := newDocument(h.Config, in.pool.Status.Configuration.Name, w.force)
		if restart := in.pool.Spec.Updates.Restart; restart.IsRequested() {
			document = fmt.Appendf(document[:len(document)-1], `,"restart":{"id":%q,"kind":%q}}`, restart.ID, restart.Kind)
		}
		if boot := record.RebootRequestOf(h.Config).Boot; boot != "" && in.pool.Spec.Updates.RebootsIfRequired() {
			document = fmt.Appendf(document[:len(document)-1], `,"rebootFrom":%q}`, boot)
		}
		return document, nil
	}
	return &manager{Updates: r}
}

// manager reconciles pools, and hosts with the phases of this package only.
type manager struct {
	*Updates
	hosts scope.Hosts
}

// Reconcile reconciles a host.
func (m *manager) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	m.hosts.Client, m.hosts.Live, m.hosts.WatchFilterValue = m.Client, m.APIReader, m.WatchFilterValue
	return m.hosts.Reconcile(ctx, request, func(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
		if annotations.IsPaused(s.Cluster, s.Config) {
			return m.EndPause(ctx, s)
		}
		return m.Updates.Reconcile(ctx, s)
	})
}

// reconcilePool chooses the next hosts of a pool.
func (m *manager) reconcilePool(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	p, err := workload.GetIfExists[poolv1.MachineConfigPool](ctx, m.Client, key)
	if err != nil || p == nil || annotations.HasPaused(p) {
		return ctrl.Result{}, err
	}
	if m.written.IsStale(p) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	cluster, pools, err := workload.ClusterWithPools(ctx, m.Client, workload.ClusterOfPool(p), m.WatchFilterValue)
	if err != nil {
		return ctrl.Result{}, err
	}
	before := p.DeepCopy()
	var failed error
	again, err := m.ChooseHosts(ctx, cluster, p, pools, func() error {
		failed = status.Patch(ctx, m.Client, before, p)
		m.written.Record(p)
		return failed
	})
	return status.RetryConflict(ctx, ctrl.Result{RequeueAfter: again}, errors.Join(err, failed))
}
