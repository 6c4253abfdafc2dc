package boot

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// connect sets the client of the workload cluster, and the facts with which hosts join that cluster, unless they are
// set.
func (r *Phases) connect(ctx context.Context, s *state) error {
	if s.workload != nil {
		return nil
	}
	if err := r.outages.check(s.workloadKey()); err != nil {
		return unreachable(err)
	}
	return r.remote(func(ctx context.Context, s *state) (err error) {
		if s.workload, err = workload.LiveClient(ctx, r.ClusterCache, s.workloadKey()); err == nil {
			s.facts, err = workload.JoinCluster(ctx, r.ClusterCache, s.Cluster)
		}
		return err
	})(ctx, s)
}

// readNode sets the recorded Node. It sets nil if no Node is recorded, or it does not exist.
func (r *Phases) readNode(ctx context.Context, s *state) (err error) {
	if s.node = nil; record.HasNode(s.Config) {
		s.node, err = workload.GetIfExists[corev1.Node](ctx, s.workload, client.ObjectKey{Name: s.Config.Status.NodeRef.Name})
	}
	return err
}

// clusterRights identifies a cluster and a way to join it for which the rights of join credentials are ensured.
type clusterRights struct {
	cluster types.UID
	kubeadm bool
}

// ensureRights grants join credentials their rights, once for each cluster, way to join, and process, also if many
// hosts boot at the same time.
func (r *Phases) ensureRights(ctx context.Context, s *state) error {
	key := clusterRights{cluster: s.Cluster.UID, kubeadm: s.Config.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm}
	if _, done := r.rights.Load(key); done {
		return nil
	}
	_, err, _ := r.ensuring.Do(fmt.Sprint(key), func() (any, error) {
		if _, done := r.rights.Load(key); done {
			return nil, nil
		}
		err := join.EnsureRBAC(ctx, s.workload, key.kubeadm)
		if err == nil {
			r.rights.Store(key, true)
		}
		return nil, err
	})
	return err
}

// ensureNode pre-registers the Node, or updates the Node that was pre-registered for this config if no kubelet has
// registered yet. It returns an error if the resulting Node is not in its pool. A new Node also has the taints of the
// cluster's readiness rules. Those of an existing Node belong to the node readiness controller.
func (r *Phases) ensureNode(ctx context.Context, s *state) error {
	s.node = s.registration.Node()
	rules, err := r.readinessRules.List(ctx, s.workload, s.Cluster.UID)
	if err != nil {
		return err
	}
	registration.AddTaints(s.node, registration.ReadinessTaints(rules, s.node))
	created := s.node.DeepCopy()
	err = s.workload.Create(ctx, s.node)
	if apierrors.IsAlreadyExists(err) {
		err = s.adoptNode(ctx, created)
	}
	if err != nil {
		return fmt.Errorf("pre-register Node %s: %w", s.registration.Name, err)
	}
	outcome := metrics.NodeCreated
	if s.nodeExisted {
		outcome = metrics.NodeKept
	}
	metrics.PreRegistered(s.Config, s.pool.Spec.PoolRole, outcome)
	r.outages.clear(s.workloadKey())
	decision, err := pool.Decide(s.node.Labels, s.pools)
	if err != nil {
		return fault(bootstrapv1.LabelConflictReason, "Node %s: %w: change the Node's labels", s.node.Name, err)
	}
	if decision.Role != s.pool.Spec.PoolRole {
		return fault(bootstrapv1.LabelConflictReason, "the labels of Node %s name the pool %q, not %q: change them or delete the Node, which no kubelet uses yet",
			s.node.Name, decision.Role, s.pool.Spec.PoolRole)
	}
	return nil
}

// adoptNode uses the existing Node of this name if it was pre-registered for this config, and adds what it lacks. If it
// was pre-registered for another host, the given Node replaces it.
func (s *state) adoptNode(ctx context.Context, replacement *corev1.Node) error {
	desired := s.registration
	s.node, s.nodeExisted = &corev1.Node{}, true
	if err := s.workload.Get(ctx, client.ObjectKey{Name: desired.Name}, s.node); err != nil {
		return err
	}
	if !record.IsNodeOf(s.node, s.Config) {
		return fault(bootstrapv1.NodeNameTakenReason, "the Node already exists and was not pre-registered for PoolbootConfig %s: delete the Node, or %s",
			s.Owner(), registration.Rename(s.Config))
	}
	if s.Machine == nil && !record.HasNode(s.Config) && record.HasKubelet(s.node) {
		return fault(bootstrapv1.NodeNameTakenReason, "the Node belongs to an earlier installation of a host with this name: delete the Node")
	}
	if id := s.node.Spec.ProviderID; id != "" && desired.ProviderID != "" && id != desired.ProviderID {
		if !record.HasKubelet(s.node) {
			return s.replaceNode(ctx, replacement)
		}
		return fault(bootstrapv1.NodeNameTakenReason, "spec.providerID is %q, which is that of another host, and must be %q: delete the Node",
			id, desired.ProviderID)
	}
	if record.HasKubelet(s.node) {
		return nil
	}
	before := s.node.DeepCopy()
	complete(s.node, desired)
	if equality.Semantic.DeepEqual(before, s.node) {
		return nil
	}
	return s.workload.Patch(ctx, s.node, status.Locked(before))
}

// complete adds what a pre-registered Node lacks. Labels and taints are only added, so values that a user set stay. The
// annotations belong to Poolboot and name the config with which the host boots now. The label with the host's UID
// belongs to Metal3: with another value, the Metal3 provider does not find the Node.
func complete(node *corev1.Node, desired registration.Registration) {
	registration.AddLabels(node, desired.Labels)
	if uid, ok := desired.Labels[poolv1.NodeMetal3UUIDLabel]; ok {
		node.Labels[poolv1.NodeMetal3UUIDLabel] = uid
	}
	for key, value := range desired.Annotations {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	}
	registration.AddTaints(node, desired.Taints)
	node.Spec.ProviderID = cmp.Or(node.Spec.ProviderID, desired.ProviderID)
}
