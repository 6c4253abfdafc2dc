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

// keepRendered creates the rendered MachineConfig if it does not exist, and reports whether it did. The content of an
// existing one must match its name, and is never changed. A failed write is a problem of the pool and also an error, so
// it is retried.
func (r *Reconciler) keepRendered(ctx context.Context, s *scope) (made bool, err error) {
	if s.rendered == nil {
		return false, nil
	}
	stands, err := r.stands(ctx, r.Client, s, s.rendered.Name)
	if err == nil && !stands && s.memory.knows(s.rendered.Name) { // the cache can be behind a recent write
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

// stands reports whether a rendered config of the pool exists. It returns an error if the content does not match the
// name.
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

// makeRendered creates the rendered config. It returns false without an error if the config exists although the cache
// does not contain it. The Cluster is an owner besides the pool, so the garbage collector does not delete the config
// with the pool: Machines can still run it.
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
	s.memory.fits(s.pool.Name, config) // the pool remembers it from now on
	return true, nil
}

// findHeld sets the problem of a paused pool whose spec.pausedConfiguration cannot be handed out: the rendered config
// was deleted, or a user named a MachineConfig that the pool did not render. The config that the pool renders now
// always exists, so it is not read.
func (r *Reconciler) findHeld(ctx context.Context, s *scope) error {
	name := s.pool.Spec.PausedConfiguration.Name
	if name == "" || s.rendered != nil && s.rendered.Name == name {
		return nil
	}
	config := &poolv1.MachineConfig{}
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: name}
	err := r.Client.Get(ctx, key, config, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) { // the cache can be behind, as just after clusterctl move
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
