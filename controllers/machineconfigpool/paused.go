package machineconfigpool

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// setPausedConfiguration sets what a paused pool hands out, unless it is set, and removes it when the pool is no longer
// paused. It is an annotation and not in the status, because it must survive clusterctl move.
func (s *scope) setPausedConfiguration() {
	switch paused := s.pool.Annotations[poolv1.PausedConfigurationAnnotation]; {
	case !s.pool.Spec.IsPaused():
		delete(s.pool.Annotations, poolv1.PausedConfigurationAnnotation)
	case paused == "":
		if name := s.configurationAtPause(); name != "" {
			metav1.SetMetaDataAnnotation(&s.pool.ObjectMeta, poolv1.PausedConfigurationAnnotation, name)
		}
	}
}

// configurationAtPause returns the rendered config that a pool hands out from the start of a pause. This is the one
// that it handed out before, unless no Machine booted with it or changes to it, and other Machines run earlier ones of
// the pool or change to them. Then it is the one to which most Machines change, because they complete that during the
// pause, and otherwise the one that most Machines run. Without a status, as after clusterctl move, it is "" while a
// Machine that has joined has no recorded configuration, because that Machine can belong to the pool.
func (s *scope) configurationAtPause() string {
	previous := ""
	if c := s.pool.Status.Configuration; c.IsDefined() {
		previous = c.Name
	} else if s.unrecorded {
		return ""
	}
	runs, changes := map[string]int{}, map[string]int{}
	for i := range s.machines {
		runs[s.machines[i].Status.Boot.ServedConfiguration.Name]++
		changes[changesTo(&s.machines[i])]++
	}
	var earlier []poolv1.MachineConfig
	for i := range s.configs {
		if c := &s.configs[i]; s.owns(c) && runs[c.Name]+changes[c.Name] > 0 {
			earlier = append(earlier, *c)
		}
	}
	switch {
	case previous != "" && (runs[previous]+changes[previous] > 0 || len(earlier) == 0):
		return previous
	case len(earlier) == 0:
		return s.target()
	}
	return slices.MaxFunc(earlier, func(a, b poolv1.MachineConfig) int {
		return cmp.Or(cmp.Compare(changes[a.Name], changes[b.Name]), cmp.Compare(runs[a.Name], runs[b.Name]), pool.CompareAge(&a, &b))
	}).Name
}

// changesTo returns the rendered config to which a running host was chosen to change and has not failed, or "". A host
// that has begun its update completes it during a pause.
func changesTo(c *bootstrapv1.PoolbootConfig) string {
	desired := c.Status.Update.Desired.Name
	if c.Status.Update.DesiredRevision == "" || desired == c.Status.Boot.ServedConfiguration.Name || phaseOf(c) == stopped {
		return ""
	}
	return desired
}

// owns reports whether the pool rendered a MachineConfig.
func (s *scope) owns(c *poolv1.MachineConfig) bool {
	return renderedFor(c) == s.pool.Name
}

// configuration returns what the Machines of the pool boot with: what a paused pool holds, what spec.configurationName
// names, the rendered config, or the previous one if that cannot be handed out. It is empty while none of these is
// known.
func (s *scope) configuration() poolv1.PoolConfiguration {
	current := s.pool.Status.Configuration
	paused := s.pool.Annotations[poolv1.PausedConfigurationAnnotation]
	switch {
	case s.pausedConfigurationInvalid || paused != "" && current.Name == paused || s.pool.Spec.IsPaused() && paused == "":
		return current
	case paused != "":
		return s.withSource(paused)
	}
	return s.withSource(s.target())
}

// withSource returns a rendered config of the pool and the MachineConfigs that were merged into it, if they are known.
func (s *scope) withSource(name string) poolv1.PoolConfiguration {
	c := s.pool.Status.Configuration
	switch {
	case s.rendered != nil && s.rendered.Name == name:
		c = poolv1.PoolConfiguration{Name: name}
		for _, name := range s.rendered.Source {
			c.Source = append(c.Source, poolv1.MachineConfigSource{Name: name})
		}
	case c.Name != name || len(c.Source) == 0:
		c = poolv1.PoolConfiguration{Name: name, Source: pool.SourcesOf(s.config(name))}
	}
	return c
}
