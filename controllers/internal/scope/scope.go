// Package scope has what the phases of one reconcile of a host share: the PoolbootConfig, its Machine and its Cluster,
// and the writes of the PoolbootConfig.
package scope

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Hosts opens and closes the scopes of hosts.
type Hosts struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// written tracks the versions of PoolbootConfigs that these scopes wrote.
	written ownwrites.Tracker
}

// Scope is the state of one reconcile. Phases change nothing in it except the status of Config.
type Scope struct {
	// Config is the PoolbootConfig as it should be.
	Config *bootstrapv1.PoolbootConfig
	// Machine is the owner of the config, or nil without one, for example for a host without a Machine.
	Machine *clusterv1.Machine
	// Cluster is nil if it does not exist.
	Cluster *clusterv1.Cluster

	// Node is the Node of the host as it was read or written last, or nil.
	Node *corev1.Node

	hosts *Hosts
	// failed is the error of a write of the status. Nothing is written after that: the reconcile is repeated.
	failed error
	// before is the PoolbootConfig as it was read or written last.
	before *bootstrapv1.PoolbootConfig
	// isSummarized is true once the phases that need no workload cluster have run, and isObserved if they had no error.
	isSummarized, isObserved bool
	// pools are the pools of the Cluster once they are read.
	pools []poolv1.MachineConfigPool
	// reports create the events about changes that are not written yet.
	reports []func(before, after *bootstrapv1.PoolbootConfig)
}

// Reconcile reads a PoolbootConfig with its owners, runs the phases, and writes what they changed in the status, also
// after an error. It waits for the cache to contain the last write.
func (h *Hosts) Reconcile(ctx context.Context, request ctrl.Request, phases func(context.Context, *Scope) (ctrl.Result, error)) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := h.Client.Get(ctx, request.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if h.WatchFilterValue != "" && !labels.HasWatchLabel(config, h.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	if h.written.IsStale(config) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	s := &Scope{hosts: h, Config: config, before: config.DeepCopy()}
	if err := s.findOwners(ctx); err != nil {
		return ctrl.Result{}, err
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Machine", klog.KObj(s.Machine), "Cluster", klog.KObj(s.Cluster))
	ctx = ctrl.LoggerInto(ctx, log)
	result, err := phases(ctx, s)
	if s.failed == nil {
		err = errors.Join(err, s.Flush(ctx))
	}
	return status.RetryConflict(ctx, result, err)
}

// findOwners sets the Machine that owns the config, and its Cluster. The Cluster of a config whose Machine is already
// deleted is found by the label of the config.
func (s *Scope) findOwners(ctx context.Context) (err error) {
	if s.Machine, err = util.GetOwnerMachine(ctx, s.hosts.Client, s.Config.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return err
	}
	name := s.ClusterName()
	if name == "" {
		return nil
	}
	s.Cluster, err = workload.GetIfExists[clusterv1.Cluster](ctx, s.hosts.Client, client.ObjectKey{Namespace: s.Config.Namespace, Name: name})
	return err
}

// ClusterName returns the name of the Cluster, or "" if it is unknown. The Machine takes precedence over the label.
func (s *Scope) ClusterName() string {
	if s.Machine != nil {
		return s.Machine.Spec.ClusterName
	}
	return record.ClusterName(s.Config)
}

// Owner returns the config as Nodes and join credentials reference it: <namespace>/<name>.
func (s *Scope) Owner() string { return client.ObjectKeyFromObject(s.Config).String() }

// Host returns the host of the config as a reader has it, or nil if there is none now.
func (s *Scope) Host(ctx context.Context, reader client.Reader) (*host.Host, error) {
	found, err := host.ForConfig(ctx, reader, s.Config, s.Machine)
	if _, isNotReady := errors.AsType[*host.NotReadyError](err); isNotReady {
		return nil, nil
	}
	return found, err
}

// ExternalCloudProvider returns the field that starts the kubelet of the host with --cloud-provider=external, or "" if
// there is none. configuration is the rendered config of the host. The error is NotFound if that does not exist.
func (s *Scope) ExternalCloudProvider(ctx context.Context, configuration string) (string, error) {
	source, err := join.FindExternalCloudProvider(s.Config)
	if err != nil || source != "" || configuration == "" {
		return source, err
	}
	rendered := &poolv1.MachineConfig{}
	if err := s.hosts.Client.Get(ctx, client.ObjectKey{Namespace: s.Config.Namespace, Name: configuration}, rendered); err != nil {
		return "", err
	}
	return pool.FindExternalCloudProvider(rendered)
}

// Pools returns the pools of the Cluster, with defaults.
func (s *Scope) Pools(ctx context.Context) (pools []poolv1.MachineConfigPool, err error) {
	if s.pools == nil && s.Cluster != nil {
		s.pools, err = workload.PoolsOfCluster(ctx, s.hosts.Client, client.ObjectKeyFromObject(s.Cluster))
	}
	return s.pools, err
}

// Before returns the config as it was read or written last.
func (s *Scope) Before() *bootstrapv1.PoolbootConfig { return s.before }

// Report creates the events for a change of the config once the change is written.
func (s *Scope) Report(report func(before, after *bootstrapv1.PoolbootConfig)) {
	s.reports = append(s.reports, report)
}

// Flush computes Ready, writes what the phases changed in the status, and reports it. It does nothing for a config that
// is deleted. After a write that failed, it writes nothing and returns that error, so nobody goes on as if it were
// written.
func (s *Scope) Flush(ctx context.Context) error {
	if s.isDeleted() || s.failed != nil {
		return s.failed
	}
	if s.isSummarized {
		conditions.Set(s.Config, outlook.Ready(s.Config))
	}
	if s.isObserved {
		s.Config.Status.ObservedGeneration = s.Config.Generation
	}
	before := s.before
	if err := s.Patch(ctx); err != nil {
		return err
	}
	for _, report := range s.reports {
		report(before, s.Config)
	}
	s.reports = nil
	return nil
}

// Observed records with which error the phases ended that need no workload cluster. From then on, the status has Ready,
// and, without an error, the generation of the config.
func (s *Scope) Observed(err error) { s.isSummarized, s.isObserved = true, err == nil }

// isDeleted reports whether the config has no finalizer any more.
func (s *Scope) isDeleted() bool {
	return !s.Config.DeletionTimestamp.IsZero() && !slices.Contains(s.Config.Finalizers, bootstrapv1.Finalizer)
}

// Patch writes what the phases changed in the status, in one request. The error is a conflict if another client has
// changed the config since it was read.
func (s *Scope) Patch(ctx context.Context) error {
	written := s.Config.DeepCopy()
	if reason := conditions.GetReason(written, bootstrapv1.UpdatedCondition); reason != conditions.GetReason(s.before, bootstrapv1.UpdatedCondition) {
		written.Status.Update.StateTime = new(metav1.Now())
	}
	if err := status.Patch(ctx, s.hosts.Client, s.before, written); err != nil {
		s.failed = err
		return err
	}
	s.Wrote(written)
	return nil
}

// Record writes the status after something that was done elsewhere and must not be repeated. If another client has
// changed the config since it was read, it applies the change to the current version. The error is NotFound if the
// config is being deleted.
func (s *Scope) Record(ctx context.Context, change func(*bootstrapv1.PoolbootConfig)) error {
	if err := s.Flush(ctx); err != nil {
		return err
	}
	written, err := status.Record(ctx, s.hosts.Client, s.hosts.Live, s.before, change)
	if err != nil {
		s.failed = err
		return err
	}
	s.Wrote(written.DeepCopy())
	return nil
}

// PatchMetadata writes a change of the metadata. Changes of the status are written later.
func (s *Scope) PatchMetadata(ctx context.Context, change func(*bootstrapv1.PoolbootConfig)) error {
	written := s.before.DeepCopy()
	change(written)
	if equality.Semantic.DeepEqual(written.ObjectMeta, s.before.ObjectMeta) {
		return nil
	}
	if err := s.hosts.Client.Patch(ctx, written, status.Locked(s.before)); err != nil {
		return fmt.Errorf("PoolbootConfig %s: %w", client.ObjectKeyFromObject(s.Config), err)
	}
	s.hosts.written.Record(written)
	s.before.ObjectMeta = written.ObjectMeta
	written.ObjectMeta.DeepCopyInto(&s.Config.ObjectMeta)
	return nil
}

// Wrote replaces the config by a version that was just written, with nothing to write any more.
func (s *Scope) Wrote(written *bootstrapv1.PoolbootConfig) {
	s.hosts.written.Record(written)
	s.Read(written)
}

// Read replaces the config by a version that was read from the API server.
func (s *Scope) Read(current *bootstrapv1.PoolbootConfig) {
	s.before, s.Config = current, current.DeepCopy()
}
