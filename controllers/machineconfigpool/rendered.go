package machineconfigpool

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// keepRendered makes the rendered MachineConfig unless it stands, and says whether it did. One that stands must hold
// what its name says; it is never changed. A write that fails is a problem of the pool and an error, so that it is
// tried again.
func (r *Reconciler) keepRendered(ctx context.Context, s *scope) (made bool, err error) {
	if s.rendered == nil {
		return false, nil
	}
	stands, err := r.stands(ctx, r.Client, s, s.rendered.Name)
	if err == nil && !stands && s.memory.knows(s.rendered.Name) { // the cache may not show yet what was made just now
		stands, err = r.stands(ctx, r.APIReader, s, s.rendered.Name)
	}
	if err == nil && !stands {
		if made, err = r.makeRendered(ctx, s); !made && err == nil {
			_, err = r.stands(ctx, r.APIReader, s, s.rendered.Name)
		}
	}
	if err != nil {
		s.problem, s.rendered = &problem{poolv1.RenderFailedReason, err.Error()}, nil
		return false, err
	}
	return made, nil
}

// stands says whether a rendered config of the pool exists. Its error tells of one whose content is not what its name
// says.
func (r *Reconciler) stands(ctx context.Context, reader client.Reader, s *scope, name string) (bool, error) {
	config := &poolv1.MachineConfig{}
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: name}
	if err := reader.Get(ctx, key, config, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("MachineConfig %s: %w", key, err)
	}
	if !s.memory.fits(s.pool.Name, config) {
		return false, fmt.Errorf("MachineConfig %s holds something else than its name says: delete it, and it is rendered again", key)
	}
	return true, nil
}

// makeRendered makes the rendered config; false without an error when it exists although the cache does not know it.
// The Cluster owns it beside the pool, so that Kubernetes does not delete it with the pool: Machines may run it still.
func (r *Reconciler) makeRendered(ctx context.Context, s *scope) (bool, error) {
	if s.rendered.Spec.Config == nil { // it is from memory
		whole, err := s.renderAnew()
		if err != nil {
			return false, err
		}
		s.rendered = whole
	}
	config := &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name:      s.rendered.Name,
			Namespace: s.pool.Namespace,
			Labels:    map[string]string{poolv1.RenderedForLabel: s.pool.Name, clusterv1.ClusterNameLabel: s.cluster.Name},
		},
		Spec: s.rendered.Spec,
	}
	if err := controllerutil.SetControllerReference(s.pool, config, r.Client.Scheme()); err != nil {
		return false, err
	}
	config.OwnerReferences = util.EnsureOwnerRef(config.OwnerReferences, ownedBy(s.cluster))
	if err := r.Client.Create(ctx, config); apierrors.IsAlreadyExists(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("MachineConfig %s can't be stored, which is tried again until it can: %w", client.ObjectKeyFromObject(config), err)
	}
	s.memory.fits(s.pool.Name, config) // from now on it is known
	return true, nil
}

// findHeld sets the problem of a paused pool whose spec.pausedConfiguration can't be handed out: it was deleted, or a
// person named what is no rendered config of the pool. What the pool renders exists.
func (r *Reconciler) findHeld(ctx context.Context, s *scope) error {
	name := s.pool.Spec.PausedConfiguration.Name
	if name == "" || s.rendered != nil && s.rendered.Name == name {
		return nil
	}
	config := &poolv1.MachineConfig{}
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: name}
	err := r.Client.Get(ctx, key, config, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) { // as the cache has it, just after clusterctl move
		err = r.APIReader.Get(ctx, key, config)
	}
	what := ""
	switch {
	case apierrors.IsNotFound(err):
		what = "does not exist: apply it from a backup, "
	case err != nil:
		return fmt.Errorf("MachineConfig %s: %w", key, err)
	case !s.owns(config):
		what = "is not a rendered config of this pool: "
	case !s.memory.fits(s.pool.Name, config):
		what = "holds something else than its name says: "
	default:
		return nil
	}
	s.heldInvalid = true
	if s.problem == nil {
		s.problem = &problem{poolv1.PausedConfigurationInvalidReason, fmt.Sprintf("spec.pausedConfiguration: MachineConfig %s %sset the field to one with the label %s=%s, "+
			"or set spec.paused to false", name, what, poolv1.RenderedForLabel, s.pool.Name)}
	}
	return nil
}
