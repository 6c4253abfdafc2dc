package machineconfigpool

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// ensureRendered creates the rendered MachineConfig if it does not exist, and reports whether it did. The content of an
// existing one must match its name, and is never changed. A failed write is a problem of the pool and also an error, so
// it is retried.
func (r *Reconciler) ensureRendered(ctx context.Context, s *scope) (created bool, err error) {
	if s.rendered == nil {
		return false, nil
	}
	exists, err := r.renderedExists(ctx, r.Client, s)
	if err == nil && !exists && s.cache.isVerified(s.rendered.Name) { // the client's cache can be older than a recent write
		exists, err = r.renderedExists(ctx, r.APIReader, s)
	}
	if err == nil && !exists {
		if created, err = r.createRendered(ctx, s); !created && err == nil {
			_, err = r.renderedExists(ctx, r.APIReader, s)
		}
	}
	if err != nil {
		s.problem, s.rendered = &problem{poolv1.RenderFailedReason, err.Error()}, nil
	}
	return created && err == nil, err
}

// renderedExists reports whether the rendered config of the pool exists. It returns an error if the content does not
// match the name.
func (r *Reconciler) renderedExists(ctx context.Context, reader client.Reader, s *scope) (bool, error) {
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: s.rendered.Name}
	config, err := workload.GetIfExists[poolv1.MachineConfig](ctx, reader, key, client.UnsafeDisableDeepCopy)
	switch {
	case err != nil:
		return false, fmt.Errorf("MachineConfig %s: %w", key, err)
	case config != nil && !s.cache.contentMatchesName(s.pool.Name, config):
		return false, fmt.Errorf("the content of MachineConfig %s does not match its name: delete it, and it is rendered again", key)
	}
	return config != nil, nil
}

// createRendered creates the rendered config. It returns false without an error if the config exists although the cache
// does not contain it. The Cluster is an owner besides the pool, so the garbage collector does not delete the config
// with the pool: Machines can still run it.
func (r *Reconciler) createRendered(ctx context.Context, s *scope) (bool, error) {
	if s.rendered.Spec.Config == nil { // the result in the cache has no spec
		rendered, err := s.renderPool()
		if err != nil {
			return false, err
		}
		s.rendered = rendered
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
	config.OwnerReferences = util.EnsureOwnerRef(config.OwnerReferences, ownerReference(s.cluster))
	if err := r.Client.Create(ctx, config); apierrors.IsAlreadyExists(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("MachineConfig %s cannot be created, which is retried: %w", client.ObjectKeyFromObject(config), err)
	}
	s.cache.contentMatchesName(s.pool.Name, config) // records that it is verified
	return true, nil
}

// checkPausedConfiguration sets the problem of a paused pool whose annotation names what cannot be handed out: the
// rendered config was deleted, or a user named a MachineConfig that the pool did not render. The config that the pool
// renders now always exists, so it is not read.
func (r *Reconciler) checkPausedConfiguration(ctx context.Context, s *scope) error {
	name := s.pool.Annotations[poolv1.PausedConfigurationAnnotation]
	if name == "" || s.rendered != nil && s.rendered.Name == name {
		return nil
	}
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: name}
	config, err := workload.GetIfExists[poolv1.MachineConfig](ctx, r.Client, key, client.UnsafeDisableDeepCopy)
	isName := len(validation.IsDNS1123Subdomain(name)) == 0 // otherwise the API server cannot be asked for it
	if err == nil && config == nil && isName {              // the cache can be stale, as just after clusterctl move
		config, err = workload.GetIfExists[poolv1.MachineConfig](ctx, r.APIReader, key)
	}
	cause := ""
	switch {
	case err != nil:
		return fmt.Errorf("MachineConfig %s: %w", key, err)
	case config == nil:
		cause = "does not exist: apply it from a backup, "
	case !s.owns(config):
		cause = "is not a rendered config of this pool: "
	case !s.cache.contentMatchesName(s.pool.Name, config):
		cause = "has content that does not match its name: "
	default:
		return nil
	}
	s.pausedConfigurationInvalid = true
	if s.problem == nil {
		s.problem = &problem{poolv1.PausedConfigurationInvalidReason, fmt.Sprintf(
			"annotation %s: MachineConfig %s %sset the annotation to one with the label %s=%s, or set spec.paused to false",
			poolv1.PausedConfigurationAnnotation, name, cause, poolv1.RenderedForLabel, s.pool.Name)}
	}
	return nil
}
