// Package hostpool finds the pool that a host without a Machine is to boot into, and makes the host's record by the
// template that the pool names. It reads and watches only; who may have a record is decided by its callers.
package hostpool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Place is a pool that takes hosts, as far as there is one.
type Target struct {
	// Cluster, Pool and Template are nil where there is none.
	Cluster  *clusterv1.Cluster
	Pool     *poolv1.MachineConfigPool
	Template *bootstrapv1.PoolbootConfigTemplate

	clusterName, role string
	// duplicate is why there is no Pool, when there are several.
	duplicateErr *pool.DuplicateError
}

// Obstacle is why a pool takes no hosts, by the reason of the condition or event that says so.
type Obstacle struct{ Reason, Message string }

// Find reads the pool of a Cluster that has a role, and what hosts need of it.
func Find(ctx context.Context, c client.Reader, cluster client.ObjectKey, role string) (Target, error) {
	place := Target{clusterName: cluster.Name, role: role}
	found := &clusterv1.Cluster{}
	if err := c.Get(ctx, cluster, found); err == nil {
		place.Cluster = found
	} else if !apierrors.IsNotFound(err) {
		return place, err
	}
	pools, err := workload.PoolsOfCluster(ctx, c, cluster)
	if err != nil {
		return place, err
	}
	if place.Pool, err = pool.OfRole(pools, role); errors.As(err, &place.duplicateErr) || errors.As(err, new(*pool.NotFoundError)) {
		place.Pool = nil
	} else if err != nil {
		return place, err
	}
	if place.Pool == nil || place.Pool.Spec.HostTemplateRef.Name == "" {
		return place, nil
	}
	template := &bootstrapv1.PoolbootConfigTemplate{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: place.Pool.Spec.HostTemplateRef.Name}, template); err == nil {
		place.Template = template
	} else if !apierrors.IsNotFound(err) {
		return place, err
	}
	return place, nil
}

// Obstacle says why the pool takes no hosts; nil when it does.
func (p Target) Obstacle() *Obstacle {
	switch {
	case p.duplicateErr != nil:
		return &Obstacle{poolv1.DuplicateRoleReason, p.duplicateErr.Error()}
	case p.Pool != nil && !p.Pool.DeletionTimestamp.IsZero():
		return &Obstacle{poolv1.EnrollmentPoolNotFoundReason, fmt.Sprintf("MachineConfigPool %s with role %s is being deleted: make another one", p.Pool.Name, p.role)}
	case p.Cluster == nil:
		return &Obstacle{poolv1.ClusterNotFoundReason, fmt.Sprintf("Cluster %s does not exist in this namespace: create it", p.clusterName)}
	case p.Pool == nil:
		return &Obstacle{poolv1.EnrollmentPoolNotFoundReason, fmt.Sprintf("Cluster %s has no MachineConfigPool with role %s: make it", p.clusterName, p.role)}
	case !p.Cluster.DeletionTimestamp.IsZero():
		return &Obstacle{poolv1.EnrollmentPoolNotFoundReason, fmt.Sprintf("Cluster %s is being deleted: it takes no more hosts", p.clusterName)}
	case p.Pool.Spec.HostTemplateRef.Name == "":
		return &Obstacle{poolv1.EnrollmentPoolTakesMachinesOnlyReason, fmt.Sprintf(
			"MachineConfigPool %s takes Machines only: name a PoolbootConfigTemplate in its spec.hostTemplateRef", p.Pool.Name)}
	case p.Template == nil:
		return &Obstacle{poolv1.EnrollmentTemplateNotUsableReason, fmt.Sprintf(
			"PoolbootConfigTemplate %s, the hostTemplateRef of MachineConfigPool %s, does not exist: make it", p.Pool.Spec.HostTemplateRef.Name, p.Pool.Name)}
	}
	boot := p.Template.Spec.Template.Spec
	if boot.IsInline() || boot.PoolRole != "" && boot.PoolRole != p.role || pool.StaysOnHost(&boot) {
		return &Obstacle{poolv1.EnrollmentTemplateNotUsableReason, fmt.Sprintf(
			"PoolbootConfigTemplate %s is not for hosts without a Machine in pool %s: it must have configSource.type Server, no other pool and no poolRetention: Host",
			p.Template.Name, p.role)}
	}
	return nil
}

// Config returns the record of a host: what the pool's template says, for this host. Annotations of Poolboot's own that
// the template has are left out: they say what is known of one host, such as its addresses or the state of its token.
// There must be no Obstacle.
func (p Target) NewConfig(name string, of bootstrapv1.HostWithoutMachine) *bootstrapv1.PoolbootConfig {
	template := p.Template.Spec.Template
	config := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: p.Cluster.Namespace,
			Labels: map[string]string{}, Annotations: map[string]string{},
			Finalizers: []string{bootstrapv1.Finalizer}, // its Node may be made at once
		},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: *template.Spec.DeepCopy(), Host: of},
	}
	maps.Copy(config.Labels, template.ObjectMeta.Labels)
	maps.Copy(config.Annotations, template.ObjectMeta.Annotations)
	maps.DeleteFunc(config.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, poolv1.GroupVersion.Group+"/") })
	config.Labels[clusterv1.ClusterNameLabel] = p.Cluster.Name
	config.Spec.PoolRole = p.role
	return config
}
