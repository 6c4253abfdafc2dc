package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Inputs returns a hash of all that Render looks at for a role: as long as it is the same, so is what Render returns.
// It goes by the specs of the pool and of worker, but for what concerns a pause, and by the versions of the
// MachineConfigs that they select, which must be as an API server gave them. Errors are those of Render.
func Inputs(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (string, error) {
	p, err := OfRole(pools, role)
	if err != nil {
		return "", err
	}
	worker, err := OfRole(pools, poolv1.RoleWorker)
	if err != nil {
		return "", err
	}
	sources, err := sourcesOf(p, worker, configs)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	specs := json.NewEncoder(hash)
	for _, of := range []*poolv1.MachineConfigPool{p, worker} {
		fmt.Fprintln(hash, of.Name)
		spec := of.Spec
		spec.Paused, spec.PausedConfiguration = nil, poolv1.RenderedConfigReference{}
		if err := specs.Encode(spec); err != nil {
			return "", fmt.Errorf("MachineConfigPool %q: %w", of.Name, err)
		}
	}
	for i := range sources {
		fmt.Fprintln(hash, sources[i].Name, sources[i].UID, sources[i].ResourceVersion)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Selects says whether a pool's own machineConfigSelector selects a MachineConfig with these labels. One that is
// malformed selects none.
func Selects(p poolv1.MachineConfigPool, of map[string]string) bool {
	selector, err := selectorOf(p.Spec.MachineConfigSelector)
	return err == nil && selector.Matches(labels.Set(of))
}
