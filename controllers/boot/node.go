package boot

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/readiness"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// connect sets the client of the workload cluster, and the facts with which hosts join that cluster.
func (r *Reconciler) connect(ctx context.Context, s *scope) (err error) {
	if why := r.outages.known(s.workloadKey()); why != nil {
		return knownOutage{why}
	}
	if s.workload, err = workload.LiveClient(ctx, r.ClusterCache, s.workloadKey()); err != nil {
		return err
	}
	s.facts, err = workload.JoinCluster(ctx, r.ClusterCache, s.cluster)
	return err
}

// clusterRights identifies a cluster and a way to join it for which the rights of join credentials are ensured.
type clusterRights struct {
	cluster types.UID
	kubeadm bool
}

// ensureRights grants join credentials their rights, once for each cluster, way to join, and process, also if many
// hosts boot at the same time.
func (r *Reconciler) ensureRights(ctx context.Context, s *scope) error {
	key := clusterRights{cluster: s.cluster.UID, kubeadm: s.config.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm}
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
func (r *Reconciler) ensureNode(ctx context.Context, s *scope) error {
	s.node = s.registration.Node()
	rules, err := r.readinessRules.List(ctx, s.workload, s.cluster.UID)
	if err != nil {
		return err
	}
	registration.AddTaints(s.node, readiness.Taints(rules, s.node))
	err = s.workload.Create(ctx, s.node)
	if apierrors.IsAlreadyExists(err) {
		err = s.adoptNode(ctx)
	}
	if err != nil {
		return fmt.Errorf("pre-register Node %s: %w", s.registration.Name, err)
	}
	outcome := metrics.NodeCreated
	if s.triedBefore {
		outcome = metrics.NodeKept
	}
	metrics.PreRegistered(s.config, s.pool.Spec.PoolRole, outcome)
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

// adoptNode uses the existing Node of this name if it was pre-registered for this config, and adds what it lacks.
func (s *scope) adoptNode(ctx context.Context) error {
	wanted := s.registration
	s.node, s.triedBefore = &corev1.Node{}, true
	if err := s.workload.Get(ctx, client.ObjectKey{Name: wanted.Name}, s.node); err != nil {
		return err
	}
	if made, ours := record.ConfigOfNode(s.node); !ours || made != client.ObjectKeyFromObject(s.config) {
		return fault(bootstrapv1.NodeNameTakenReason, "it exists already and was not pre-registered for PoolbootConfig %s: delete the Node, or %s", s.owner(), registration.Rename(s.config))
	}
	if s.machine == nil && !record.HasNode(s.config) && record.HasKubelet(s.node) {
		return fault(bootstrapv1.NodeNameTakenReason, "it is that of a host which was installed before under this name: delete the Node, so that the host can have a new one")
	}
	if id := s.node.Spec.ProviderID; id != "" && wanted.ProviderID != "" && id != wanted.ProviderID {
		if !record.HasKubelet(s.node) {
			return s.replaceNode(ctx)
		}
		return fault(bootstrapv1.NodeNameTakenReason, "spec.providerID is %q, that of another host, and must be %q: delete the Node", id, wanted.ProviderID)
	}
	if record.HasKubelet(s.node) {
		return nil
	}
	before := s.node.DeepCopy()
	complete(s.node, wanted)
	if equality.Semantic.DeepEqual(before, s.node) {
		return nil
	}
	return s.workload.Patch(ctx, s.node, status.Locked(before))
}

// complete adds what a pre-registered Node lacks. Labels and taints are only added, so values that a user set stay. The
// annotations belong to Poolboot and name the config with which the host boots now. The label with the host's UID
// belongs to Metal3: with another value, the Metal3 provider does not find the Node.
func complete(have *corev1.Node, wanted registration.Registration) {
	for key, value := range wanted.Labels {
		if _, has := have.Labels[key]; !has || key == poolv1.NodeMetal3UUIDLabel {
			have.Labels = set(have.Labels, key, value)
		}
	}
	for key, value := range wanted.Annotations {
		have.Annotations = set(have.Annotations, key, value)
	}
	for i := range wanted.Taints {
		if !slices.ContainsFunc(have.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&wanted.Taints[i]) }) {
			have.Spec.Taints = append(have.Spec.Taints, wanted.Taints[i])
		}
	}
	if have.Spec.ProviderID == "" {
		have.Spec.ProviderID = wanted.ProviderID
	}
}

// set sets a key of a map that can be nil.
func set(values map[string]string, key, value string) map[string]string {
	if values == nil {
		values = map[string]string{}
	}
	values[key] = value
	return values
}
