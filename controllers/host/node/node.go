// Package node watches the Nodes that Poolboot pre-registered. It completes a boot when the kubelet is Ready in its
// pool, records the pool of the Node, and restores the labels of a Node that registered again. It creates and deletes
// no Nodes.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/teardown"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// action is the action in the events of these phases.
	action = "CompareNode"

	// watchName identifies the watch on Nodes in the manager.
	watchName = "host-nodes"
)

// Phases reconcile the Nodes of hosts.
type Phases struct {
	scope.Env
	// Controller receives the events of the watches on Nodes.
	Controller controller.Controller
}

// Reconcile compares the Node of a host with its record, once the control plane is initialized.
func (r *Phases) Reconcile(ctx context.Context, s *scope.Scope) error {
	if s.Cluster == nil || !conditions.IsTrue(s.Cluster, clusterv1.ClusterControlPlaneInitializedCondition) {
		return nil
	}
	key := record.ClusterKey(s.Config)
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.Controller, Name: watchName, Configs: r.Client}
	err := watch.NodesOfConfigs(ctx, key)
	if err == nil {
		err = r.reconcile(ctx, key, s)
	}
	if errors.Is(err, clustercache.ErrClusterNotConnected) {
		// The cluster source triggers every config when there is a connection.
		ctrl.LoggerFrom(ctx).V(2).Info("Workload cluster can't be reached, waiting", "error", err.Error())
		return nil
	}
	return err
}

func (r *Phases) reconcile(ctx context.Context, cluster client.ObjectKey, s *scope.Scope) error {
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	f, err := r.gather(ctx, w, s)
	if err != nil {
		return err
	}
	s.Node = f.node
	return r.apply(ctx, w, s, f, decide(f))
}

// gather reads the facts for a decision. Without a record, as after clusterctl move, the annotation on the Node shows
// whether the Node with this name belongs to the config. The cache can be older than the Node of a boot that was just
// prepared.
func (r *Phases) gather(ctx context.Context, w client.Reader, s *scope.Scope) (facts, error) {
	f := facts{config: s.Config, machine: s.Machine, node: s.Node}
	var err error
	if name := registration.Name(registration.Naming{Config: s.Config, Machine: s.Machine}); f.node == nil && name != "" {
		if f.node, err = workload.GetIfExists[corev1.Node](ctx, w, client.ObjectKey{Name: name}); err != nil {
			return f, err
		}
	}
	if record.HasJoined(s.Config) || f.node != nil && (f.node.Labels[poolv1.NodeMetal3UUIDLabel] != "" || !s.Config.Status.HostRef.IsDefined()) {
		if f.host, err = s.Host(ctx, r.Client); err != nil {
			return f, err
		}
	}
	if f.recordedFor, err = r.recordedFor(ctx, f); err != nil {
		return f, err
	}
	f.pools, err = s.Pools(ctx)
	return f, err
}

// recordedFor returns the name of another PoolbootConfig that has the Node on record which a PoolbootConfig is to
// adopt, or "" if there is none. The annotation of the Node is gone after it was deleted and has registered again.
func (r *Phases) recordedFor(ctx context.Context, f facts) (string, error) {
	if f.node == nil || !record.IsAdopted(f.config) || record.HasNode(f.config) {
		return "", nil
	}
	if _, isNamed := record.ConfigOfNode(f.node); isNamed {
		return "", nil
	}
	others := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, others, client.InNamespace(f.config.Namespace), client.MatchingFields{workload.HostUserIndex: workload.NodeUserPrefix + f.node.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("read the PoolbootConfigs with Node %s on record: %w", f.node.Name, err)
	}
	for i := range others.Items {
		if other := &others.Items[i]; other.DeletionTimestamp.IsZero() && record.ClusterKey(other) == record.ClusterKey(f.config) {
			return record.Key(other).String(), nil
		}
	}
	return "", nil
}

// apply carries out a decision: first the Node, then the end of the boot and the pool that the host keeps, and the
// record last. So after a crash, the next decision contains what remains to be done.
func (r *Phases) apply(ctx context.Context, w client.Client, s *scope.Scope, f facts, d *decision) error {
	if d.node != nil {
		if err := w.Patch(ctx, d.node, status.Locked(f.node)); err != nil {
			return fmt.Errorf("patch Node %s: %w", f.node.Name, err)
		}
		s.Node = d.node
	}
	readyTime, isCompleted := metav1.NowMicro(), false
	if d.hasJoined {
		var err error
		if isCompleted, err = r.completeBoot(ctx, w, s); err != nil {
			return err
		}
		f.config = s.Config
	}
	if err := r.retainPool(ctx, s, f, d); err != nil {
		return err
	}
	recorded := &s.Config.Status
	if isCompleted {
		revokedTime := metav1.NowMicro()
		recorded.Boot.CredentialID, recorded.Boot.CredentialExpirationTime = "", nil
		recorded.Boot.KubeletRegisteredTime = kubeletRegistrationTime(f.node)
		recorded.Boot.NodeReadyTime, recorded.Boot.TokenRevokedTime = &readyTime, &revokedTime
	}
	if d.record != nil {
		recorded.PoolRole, recorded.NodeRef = d.record.pool, d.record.node
		recorded.Boot.ServedConfiguration.Name = cmp.Or(d.record.configuration, recorded.Boot.ServedConfiguration.Name)
		if len(d.record.derived) > 0 && recorded.DerivedNodeLabels == nil {
			recorded.DerivedNodeLabels = d.record.derived
		}
	}
	if d.host != nil {
		recorded.HostRef = *d.host
	}
	if d.fallback != nil && record.HasNode(s.Config) {
		recorded.FallbackPoolRole = *d.fallback
	}
	if d.condition != nil {
		conditions.Set(s.Config, *d.condition)
	}
	s.Report(func(before, after *bootstrapv1.PoolbootConfig) {
		if isCompleted { // even if an earlier try did some of it
			metrics.BootCompleted(after)
		}
		r.reportChanges(f, before, after)
	})
	return nil
}

// completeBoot revokes the token of a host that has joined, and deletes what only a booting host needs. It reports
// whether there was anything to do. The ID of the credential stays recorded until everything is deleted, so a crash
// leaves nothing behind.
func (r *Phases) completeBoot(ctx context.Context, w client.Client, s *scope.Scope) (bool, error) {
	if record.IsReleased(s.Config) {
		return false, nil
	}
	if err := s.Flush(ctx); err != nil { // the token is revoked in the metadata of what is recorded
		return false, err
	}
	config := s.Config.DeepCopy()
	err := teardown.Boot{
		Config:           config,
		HasJoined:        true,
		Management:       r.Client,
		OverlayNamespace: r.OverlayNamespace,
		Workload:         func(context.Context) (client.Client, error) { return w, nil },
		CredentialID:     config.Status.Boot.CredentialID,
	}.Delete(ctx)
	s.Wrote(config) // also if only the token was revoked
	return err == nil, err
}

// kubeletRegistrationTime returns when the kubelet of a Node first reported its state: the earliest transition of a
// condition that only a kubelet reports. It returns nil if there is no such condition.
func kubeletRegistrationTime(node *corev1.Node) *metav1.Time {
	var first *metav1.Time
	for _, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if at := c.LastTransitionTime; !at.IsZero() && (first == nil || at.Before(first)) {
				first = &at
			}
		}
	}
	return first
}

// reportChanges creates the events for a change of the record.
func (r *Phases) reportChanges(f facts, before, after *bootstrapv1.PoolbootConfig) {
	event := func(kind, reason, note string, args ...any) {
		r.Recorder.Eventf(after, nil, kind, reason, action, note, args...)
	}
	previous, current := before.Status, after.Status
	if previous.NodeRef.IsDefined() && current.NodeRef.IsDefined() && previous.NodeRef.UID != current.NodeRef.UID {
		event(corev1.EventTypeNormal, bootstrapv1.EventLabelsRestored,
			"Node %s registered again; the labels of pool %q are restored", current.NodeRef.Name, current.PoolRole)
	}
	if previous.NodeRef.IsDefined() && previous.PoolRole != "" && previous.PoolRole != current.PoolRole {
		kind, from := corev1.EventTypeNormal, machineLabelWarning(current.PoolRole, f.node.Labels, f)
		if from != "" { // Cluster API undoes it
			kind = corev1.EventTypeWarning
		} else if named, _ := roleOfMachine(f); named != "" && named == current.PoolRole {
			if _, declared, _ := poolWithLabels(f.pools, previous.PoolRole); !staysInPool(previous.PoolRole, declared, f) { // Cluster API undid it
				from = fmt.Sprintf("; Cluster API copies them from Machine %s: to move its host, change them in %s", f.machine.Name, labelSource(f.machine))
			}
		}
		event(kind, bootstrapv1.EventPoolChanged, "The labels of Node %s now select pool %q instead of pool %q%s", current.NodeRef.Name, current.PoolRole, previous.PoolRole, from)
	}
	old, condition := conditions.Get(before, bootstrapv1.NodeInPoolCondition), conditions.Get(after, bootstrapv1.NodeInPoolCondition)
	if condition == nil || old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
		return
	}
	switch {
	case condition.Status == metav1.ConditionTrue && outlook.IsWrong(old):
		event(corev1.EventTypeNormal, bootstrapv1.EventNodeReady, "%s", condition.Message)
	case outlook.IsWrong(condition):
		if condition.Reason == bootstrapv1.PoolConflictReason {
			metrics.PoolConflictOfConfig(after, metrics.ConflictNode)
		}
		event(corev1.EventTypeWarning, condition.Reason, "%s", condition.Message)
	}
}

// currentHost returns the host of a config that has joined if it is not recorded, or recorded with another UID:
// clusterctl move and the restore of a backup drop the record, and create the BareMetalHost again. It returns nil if
// the record is right. The phases of the boot record the host of a boot.
func currentHost(f facts) *bootstrapv1.HostReference {
	recorded := f.config.Status.HostRef
	if f.host == nil || f.host.UID == "" || !record.HasJoined(f.config) || recorded.IsDefined() && recorded.Name != f.host.Name {
		return nil
	}
	current := bootstrapv1.HostReference{Name: f.host.Name, Namespace: f.host.Namespace, UID: f.host.UID}
	if recorded == current {
		return nil
	}
	return &current
}

// followHost keeps the label with the host's UID current. clusterctl move creates the BareMetalHost again, with another
// UID, and while the Metal3Machine has no providerID, the Metal3 provider finds the Node only by this label. The label
// belongs to Metal3, not to users.
func followHost(node *corev1.Node, h *host.Host) {
	if h != nil && (node.Spec.ProviderID == "" || node.Spec.ProviderID == h.ProviderID) {
		node.Labels[poolv1.NodeMetal3UUIDLabel] = h.UID
	}
}

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch

// retainPool records the pool of a Node that has joined on its BareMetalHost, for the next Machine that boots there.
// The lock prevents a write to a host that belongs to another Machine in the meantime.
func (r *Phases) retainPool(ctx context.Context, s *scope.Scope, f facts, d *decision) error {
	if !pool.IsRetainedOnHost(&f.config.Spec.BootSpec) || d.record == nil || !record.HasJoined(f.config) ||
		f.machine == nil || !f.machine.DeletionTimestamp.IsZero() {
		return nil
	}
	h, err := s.Host(ctx, r.Client)
	if err != nil || h == nil {
		return err
	}
	role := pool.Retention(d.record.pool, f.pools)
	if role == "" || h.Object.Annotations[poolv1.HostRetainedPoolAnnotation] == role {
		return nil
	}
	desired := h.Object.DeepCopy()
	metav1.SetMetaDataAnnotation(&desired.ObjectMeta, poolv1.HostRetainedPoolAnnotation, role)
	if err := r.Client.Patch(ctx, desired, status.Locked(h.Object)); err != nil {
		return fmt.Errorf("retain the pool of Node %s on BareMetalHost %s/%s: %w", f.node.Name, h.Namespace, h.Name, err)
	}
	return nil
}

// derivedLabels returns the labels of a Node for which a pool or the PoolbootConfig has a rule.
func derivedLabels(node *corev1.Node, f facts) map[string]string {
	rules := slices.Clone(f.config.Spec.Node.LabelRules)
	for i := range f.pools {
		rules = append(rules, f.pools[i].Spec.Node.LabelRules...)
	}
	derived := map[string]string{}
	for _, rule := range rules {
		if value, ok := node.Labels[rule.Key]; ok {
			derived[rule.Key] = value
		}
	}
	return derived
}
