package machineconfigpool

import (
	"cmp"
	"slices"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// hold sets what a paused pool hands out, unless it is set, and removes it when the pool is no longer paused. It is
// spec and not status, so that it survives clusterctl move.
func (s *scope) hold() {
	switch held := &s.pool.Spec.PausedConfiguration; {
	case !s.pool.Spec.IsPaused():
		held.Name = ""
	case held.Name == "":
		held.Name = s.running()
	}
}

// running is the rendered config that a pool which is paused now hands out: the one that it had, unless no Machine
// booted with it while others run an earlier one of the pool's; then the one that most run. Without a status, as after
// clusterctl move, it is "" as long as a Machine that has joined has no record: it may be the pool's.
func (s *scope) running() string {
	had := ""
	if c := s.pool.Status.Configuration; c.IsDefined() {
		had = c.Name
	} else if s.unrecorded {
		return ""
	}
	run := map[string]int{}
	for i := range s.machines {
		run[s.machines[i].Status.Configuration.Name]++
	}
	var earlier []poolv1.MachineConfig
	for i := range s.configs {
		if c := &s.configs[i]; s.owns(c) && run[c.Name] > 0 {
			earlier = append(earlier, *c)
		}
	}
	switch {
	case run[had] > 0, len(earlier) == 0 && had != "":
		return had
	case len(earlier) == 0 && s.rendered != nil:
		return s.rendered.Name
	case len(earlier) == 0:
		return ""
	}
	return slices.MaxFunc(earlier, func(a, b poolv1.MachineConfig) int {
		return cmp.Or(cmp.Compare(run[a.Name], run[b.Name]), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	}).Name
}

// owns says whether a MachineConfig is one that the pool rendered.
func (s *scope) owns(c *poolv1.MachineConfig) bool {
	return renderedFor(c) == s.pool.Name
}

// configuration is what the pool's Machines are to boot with: the rendered config, what a paused pool holds, or what
// there was before when the pool can't be rendered. It is empty while none of them is known.
func (s *scope) configuration() poolv1.PoolConfiguration {
	current := s.pool.Status.Configuration
	held := s.pool.Spec.PausedConfiguration.Name
	switch {
	case s.heldInvalid || held != "" && current.Name == held:
		return current
	case held != "" && (s.rendered == nil || s.rendered.Name != held):
		return poolv1.PoolConfiguration{Name: held}
	case s.rendered == nil || s.pool.Spec.IsPaused() && held == "":
		return current
	}
	c := poolv1.PoolConfiguration{Name: s.rendered.Name}
	for _, name := range s.rendered.Source {
		c.Source = append(c.Source, poolv1.MachineConfigSource{Name: name})
	}
	return c
}
