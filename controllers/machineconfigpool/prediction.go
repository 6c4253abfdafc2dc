package machineconfigpool

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// maxReplaced is how many hosts that must be replaced are named in the status.
const maxReplaced = 10

// setPrediction predicts what the change to what the pool renders does to the running hosts that run something else. A
// paused pool has it too: so it is known before the rollout starts. Hosts with the same rendered config have the same
// prediction, so the cost grows with the number of these configs, and not with that of the hosts.
func (s *scope) setPrediction(n counts) {
	s.pool.Status.Prediction = poolv1.PoolPrediction{}
	if len(n.running) == 0 {
		return
	}
	target, hosts, replaced := s.target(), map[update.Effect]int32{}, []string(nil)
	for _, name := range slices.Sorted(maps.Keys(n.running)) {
		effect := s.predict(name, target)
		hosts[effect] += int32(len(n.running[name]))
		if effect == update.EffectReplace {
			replaced = append(replaced, n.running[name]...)
		}
	}
	slices.Sort(replaced)
	s.pool.Status.Prediction = poolv1.PoolPrediction{
		Configuration: target,
		None:          ptr.To(hosts[update.EffectNone]), Reload: ptr.To(hosts[update.EffectReload]), Restart: ptr.To(hosts[update.EffectRestart]),
		Reboot: ptr.To(hosts[update.EffectReboot]), Replace: ptr.To(hosts[update.EffectReplace]), Unknown: ptr.To(hosts[unknownEffect]),
		ReplacedHosts: replaced[:min(maxReplaced, len(replaced))],
	}
}

// unknownEffect is the effect of a change that cannot be predicted, because a rendered config does not exist.
const unknownEffect update.Effect = ""

// predict predicts the effect of the change from one rendered config to another. The result is remembered as long as no
// pool changes, because pools have the policies.
func (s *scope) predict(from, to string) update.Effect {
	version := ""
	for i := range s.pools {
		version += fmt.Sprintf("%s %d ", s.pools[i].UID, s.pools[i].Generation)
	}
	if s.cache.predictedWith != version {
		s.cache.predictedWith, s.cache.predictions = version, map[[2]string]update.Effect{}
	}
	if effect, ok := s.cache.predictions[[2]string{from, to}]; ok {
		return effect
	}
	before, after := s.config(from), s.config(to)
	if before == nil || after == nil {
		return unknownEffect
	}
	worker, _ := pool.OfRole(s.pools, poolv1.RoleWorker)
	effect, err := pool.PredictUpdate(s.pool, worker, before.Spec, after.Spec, renderedFor(before) != s.pool.Name)
	if err != nil {
		return unknownEffect
	}
	s.cache.predictions[[2]string{from, to}] = effect
	return effect
}

// config returns a MachineConfig of the namespace, or nil. A rendered config that was just created is found later: its
// creation triggers another reconcile.
func (s *scope) config(name string) *poolv1.MachineConfig {
	for i := range s.configs {
		if s.configs[i].Name == name {
			return &s.configs[i]
		}
	}
	return nil
}
