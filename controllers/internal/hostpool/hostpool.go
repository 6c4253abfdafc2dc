// Package hostpool finds the pool that a host without a Machine boots into, and builds the PoolbootConfig of the host
// from the template that the pool references. It only reads and watches objects. Its callers decide which hosts get a
// PoolbootConfig.
package hostpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Target is the pool that a host is to boot into, with its Cluster and template.
type Target struct {
	// Cluster, Pool and Template are nil if they do not exist.
	Cluster  *clusterv1.Cluster
	Pool     *poolv1.MachineConfigPool
	Template *bootstrapv1.PoolbootConfigTemplate

	clusterName, role string
	// duplicateErr is set if several pools have the role. Pool is nil then.
	duplicateErr *pool.DuplicateError
}

// Obstacle is why a host cannot boot into a pool, as the reason and message of a condition or event.
type Obstacle struct{ Reason, Message string }

// NewObstacle returns an obstacle with a formatted message.
func NewObstacle(reason, format string, args ...any) *Obstacle {
	return &Obstacle{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Find reads the pool with a role in a Cluster, its Cluster and its template.
func Find(ctx context.Context, c client.Reader, cluster client.ObjectKey, role string) (Target, error) {
	target := Target{clusterName: cluster.Name, role: role}
	var err error
	if target.Cluster, err = workload.GetIfExists[clusterv1.Cluster](ctx, c, cluster); err != nil {
		return target, err
	}
	pools, err := workload.PoolsOfCluster(ctx, c, cluster)
	if err != nil {
		return target, err
	}
	if target.Pool, err = pool.OfRole(pools, role); errors.As(err, &target.duplicateErr) || errors.As(err, new(*pool.NotFoundError)) {
		target.Pool = nil
	} else if err != nil {
		return target, err
	}
	if target.Pool == nil || target.Pool.Spec.Hosts.TemplateRef.Name == "" {
		return target, nil
	}
	template := client.ObjectKey{Namespace: cluster.Namespace, Name: target.Pool.Spec.Hosts.TemplateRef.Name}
	target.Template, err = workload.GetIfExists[bootstrapv1.PoolbootConfigTemplate](ctx, c, template)
	return target, err
}

// Obstacle returns why the pool takes no hosts, and nil if it does.
func (t Target) Obstacle() *Obstacle {
	switch {
	case t.duplicateErr != nil:
		return &Obstacle{poolv1.DuplicateRoleReason, t.duplicateErr.Error()}
	case t.Pool != nil && !t.Pool.DeletionTimestamp.IsZero():
		return NewObstacle(poolv1.EnrollmentPoolNotFoundReason,
			"MachineConfigPool %s with role %s is being deleted: create another one with this role", t.Pool.Name, t.role)
	case t.Cluster == nil:
		return NewObstacle(poolv1.ClusterNotFoundReason, "Cluster %s does not exist in this namespace: create it", t.clusterName)
	case t.Pool == nil:
		return NewObstacle(poolv1.EnrollmentPoolNotFoundReason,
			"Cluster %s has no MachineConfigPool with role %s: create one", t.clusterName, t.role)
	case !t.Cluster.DeletionTimestamp.IsZero():
		return NewObstacle(poolv1.EnrollmentPoolNotFoundReason,
			"Cluster %s is being deleted and takes no more hosts: enroll them in another Cluster", t.clusterName)
	case t.Pool.Spec.Hosts.TemplateRef.Name == "":
		return NewObstacle(poolv1.EnrollmentPoolTakesMachinesOnlyReason,
			"MachineConfigPool %s admits only Machines: set its spec.hosts.templateRef to a PoolbootConfigTemplate", t.Pool.Name)
	case t.Template == nil:
		return NewObstacle(poolv1.EnrollmentTemplateNotUsableReason,
			"PoolbootConfigTemplate %s, the spec.hosts.templateRef of MachineConfigPool %s, does not exist: create it",
			t.Pool.Spec.Hosts.TemplateRef.Name, t.Pool.Name)
	}
	boot := t.Template.Spec.Template.Spec
	if boot.IsInline() || boot.PoolRole != "" && boot.PoolRole != t.role || pool.IsRetainedOnHost(&boot) {
		return NewObstacle(poolv1.EnrollmentTemplateNotUsableReason,
			"PoolbootConfigTemplate %s cannot be used for hosts without a Machine in pool %s: it must have configSource.type Server, "+
				"no other poolRole and no poolRetention: Host", t.Template.Name, t.role)
	}
	return nil
}

// NewConfig returns the PoolbootConfig of a host, from the template of the pool and with the watch filter of source. It
// omits Poolboot's annotations in the template: they describe one host, such as its addresses or the state of its
// token. There must be no Obstacle.
func (t Target) NewConfig(name string, host bootstrapv1.HostWithoutMachine, source client.Object) *bootstrapv1.PoolbootConfig {
	template := t.Template.Spec.Template
	config := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: t.Cluster.Namespace,
			Labels: map[string]string{}, Annotations: map[string]string{},
			Finalizers: []string{bootstrapv1.Finalizer}, // its Node can be pre-registered at any time
		},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: *template.Spec.DeepCopy(), Host: host},
	}
	maps.Copy(config.Labels, template.ObjectMeta.Labels)
	maps.Copy(config.Annotations, template.ObjectMeta.Annotations)
	maps.DeleteFunc(config.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, poolv1.GroupVersion.Group+"/") })
	config.Labels[clusterv1.ClusterNameLabel] = t.Cluster.Name
	if filter, ok := source.GetLabels()[clusterv1.WatchLabel]; ok {
		config.Labels[clusterv1.WatchLabel] = filter
	}
	config.Spec.PoolRole = t.role
	return config
}

// clockSkew is the maximum difference between the clocks of two API servers.
const clockSkew = time.Minute

// PredatesCluster reports whether a PoolbootConfig was created for an earlier Cluster with the same name. A
// PoolbootConfig is younger than its Cluster, even after clusterctl move, which creates a Cluster before the objects
// that it owns.
func PredatesCluster(config client.Object, cluster *clusterv1.Cluster) bool {
	return config.GetCreationTimestamp().Add(clockSkew).Before(cluster.CreationTimestamp.Time)
}

// Watches adds watches on the kinds that Find reads to a controller. An event requests a reconcile of the objects of
// the controller that are in the same namespace and match. list is an empty list of the kind of these objects.
func Watches(ctx context.Context, b *builder.Builder, c client.Client, list client.ObjectList, matches func(client.Object) bool) *builder.Builder {
	requestAll := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, changed client.Object) []ctrl.Request {
		objects := list.DeepCopyObject().(client.ObjectList)
		return workload.RequestMatching(ctx, c, objects, matches, client.InNamespace(changed.GetNamespace()))
	})
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return b.
		Watches(&poolv1.MachineConfigPool{}, requestAll, changed).
		Watches(&bootstrapv1.PoolbootConfigTemplate{}, requestAll, changed).
		Watches(&clusterv1.Cluster{}, requestAll, builder.WithPredicates(predicate.Or(
			predicates.ClusterUnpaused(c.Scheme(), ctrl.LoggerFrom(ctx)), clusterDeletion())))
}

// clusterDeletion matches the start and the end of the deletion of a Cluster. The garbage collector can delete the
// pools of the Cluster before or after that.
func clusterDeletion() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc:  func(event.CreateEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetDeletionTimestamp().IsZero() && !e.ObjectNew.GetDeletionTimestamp().IsZero()
		},
	}
}
