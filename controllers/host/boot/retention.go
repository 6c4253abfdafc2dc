package boot

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// A host can keep the pool of the Machine that it served before. This file contains what that changes in a boot. The
// phases of the Node record the pool on the host.

// withRemedy adds the remedy to an error about labels that would take the Node out of the pool that its host keeps, or
// that its data Secret was created for. Cluster API syncs the labels of the Machine to the Node, so the Node cannot
// have both.
func (s *state) withRemedy(err error) error {
	isConflict := is[*registration.LabelConflictError](err) || is[*registration.OutsidePoolError](err)
	switch {
	case isConflict && s.Config.Spec.IsInline():
		return fmt.Errorf("%w; or %s. The data Secret is for pool %q and cannot be changed; the replacement boots into the pool of its labels",
			err, outlook.HowToReplace(s.Config), s.assigned.Role)
	case isConflict && s.assigned.Reason == pool.FromHost:
		return fmt.Errorf("BareMetalHost %s/%s keeps pool %q: %w; or remove the annotation %s from the host, so that it boots into the pool of %s",
			s.host.Namespace, s.host.Name, s.assigned.Retained, err, poolv1.HostRetainedPoolAnnotation, outlook.OwnerOf(s.Config))
	}
	return err
}

// reportPool reports that a Machine boots into another pool than the one that was recorded before its host was known,
// and why.
func (r *Phases) reportPool(s *state) {
	if s.Machine == nil || s.assigned.Reason == pool.FromRecord {
		return
	}
	role := s.pool.Spec.PoolRole
	switch {
	case s.assigned.Retained != "" && s.assigned.Reason != pool.FromHost:
		r.event(s, corev1.EventTypeWarning, bootstrapv1.EventRetainedPoolNotFound,
			"BareMetalHost %s keeps pool %s, which does not exist in Cluster %s: Machine %s boots into pool %s",
			s.host.Name, s.assigned.Retained, s.Cluster.Name, s.Machine.Name, role)
	case s.previousRole == "" || s.previousRole == role:
	case s.assigned.Reason == pool.FromHost:
		r.event(s, corev1.EventTypeNormal, bootstrapv1.EventPoolChanged,
			"BareMetalHost %s keeps pool %s: Machine %s boots into that pool instead of pool %s",
			s.host.Name, role, s.Machine.Name, s.previousRole)
	default:
		r.event(s, corev1.EventTypeNormal, bootstrapv1.EventPoolChanged,
			"The labels of Machine %s now select pool %s instead of pool %s", s.Machine.Name, role, s.previousRole)
	}
}
