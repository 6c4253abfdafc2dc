package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/labels"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// InputsHash returns a hash of the inputs of Render for a role: while it does not change, Render returns the same
// result. It covers the specs of the pool and of worker without their pause fields, and the resource versions of the
// MachineConfigs that they select. The MachineConfigs must be as an API server returned them. The errors are those of
// Render.
func InputsHash(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (string, error) {
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

// Selects reports whether a pool's own machineConfigSelector selects a MachineConfig with these labels. A malformed
// selector selects none.
func Selects(p poolv1.MachineConfigPool, of map[string]string) bool {
	selector, err := selectorOf(p.Spec.MachineConfigSelector)
	return err == nil && selector.Matches(labels.Set(of))
}
