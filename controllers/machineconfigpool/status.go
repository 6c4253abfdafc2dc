package machineconfigpool

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// count is what the pool's Machines are at.
type count struct {
	total, updated, ready, unavailable int32
	// booting have no configuration yet, outdated have another one than the pool's.
	booting, outdated int32
}

func (s *scope) count() (n count) {
	name := ptr.Deref(s.pool.Status.Configuration, poolv1.PoolConfiguration{}).Name
	for i := range s.machines {
		status := &s.machines[i].Status
		inPool := meta.IsStatusConditionTrue(status.Conditions, bootstrapv1.NodeInPoolCondition)
		n.total++
		switch {
		case status.Configuration == "":
			n.booting++
		case status.Configuration != name:
			n.outdated++
		default:
			n.updated++
			if inPool {
				n.ready++
			}
		}
		if !inPool {
			n.unavailable++
		}
	}
	return n
}

// configuration is what the pool's Machines are to boot with: the rendered config, or what there was before when the pool
// is paused or can't be rendered.
func (s *scope) configuration() *poolv1.PoolConfiguration {
	current := s.pool.Status.Configuration
	if s.rendered == nil || (s.pool.Spec.Paused && current != nil) {
		return current
	}
	c := &poolv1.PoolConfiguration{Name: s.rendered.Name}
	for _, name := range s.rendered.Source {
		c.Source = append(c.Source, poolv1.MachineConfigSource{Name: name})
	}
	return c
}

// setStatus computes the whole status anew.
func (s *scope) setStatus() {
	status := &s.pool.Status
	status.ObservedGeneration = s.pool.Generation
	status.Configuration = s.configuration()
	n := s.count()
	status.MachineCount, status.UpdatedMachineCount = &n.total, &n.updated
	status.ReadyMachineCount, status.UnavailableMachineCount = &n.ready, &n.unavailable

	s.setUpdated(n)
	if s.problem != nil {
		s.set(poolv1.RenderDegradedCondition, true, s.problem.reason, s.problem.message)
		s.set(poolv1.DegradedCondition, true, s.problem.reason, s.problem.message)
		return
	}
	s.set(poolv1.RenderDegradedCondition, false, poolv1.RenderedReason, s.renderedMessage())
	s.set(poolv1.DegradedCondition, false, poolv1.AsExpectedReason, "")
}

func (s *scope) setUpdated(n count) {
	c := s.pool.Status.Configuration
	switch {
	case c == nil:
		message := "no configuration was rendered yet: see the condition " + poolv1.RenderDegradedCondition
		s.set(poolv1.UpdatedCondition, false, poolv1.NothingRenderedReason, message)
		s.set(poolv1.UpdatingCondition, false, poolv1.NothingRenderedReason, message)
	case n.updated < n.total:
		message := pending(n, c.Name)
		s.set(poolv1.UpdatedCondition, false, poolv1.MachinesPendingReason, message)
		s.set(poolv1.UpdatingCondition, true, poolv1.MachinesPendingReason, message)
	case s.rendered != nil && s.rendered.Name != c.Name:
		message := fmt.Sprintf("the pool is paused, %s waits: set spec.paused to false to hand it out", s.rendered.Name)
		s.set(poolv1.UpdatedCondition, false, poolv1.PausedReason, message)
		s.set(poolv1.UpdatingCondition, false, poolv1.PausedReason, message)
	default:
		message := fmt.Sprintf("%d of %d Machines have %s", n.updated, n.total, c.Name)
		s.set(poolv1.UpdatedCondition, true, poolv1.AllMachinesUpdatedReason, message)
		s.set(poolv1.UpdatingCondition, false, poolv1.AllMachinesUpdatedReason, message)
	}
}

// pending says which Machines lack the configuration and how they get it.
func pending(n count, configuration string) string {
	var parts []string
	if n.booting > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d Machines have not booted yet", n.booting, n.total))
	}
	if n.outdated > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d Machines booted with another configuration than %s: roll out their MachineDeployment to renew them",
			n.outdated, n.total, configuration))
	}
	return strings.Join(parts, "; ")
}

func (s *scope) renderedMessage() string {
	if len(s.rendered.Source) == 0 {
		return s.rendered.Name + " is empty: no MachineConfig is selected"
	}
	return fmt.Sprintf("%s from %d MachineConfig(s)", s.rendered.Name, len(s.rendered.Source))
}

func (s *scope) set(conditionType string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.pool.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: s.pool.Generation,
	})
}
