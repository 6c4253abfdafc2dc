package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// inputs are the inputs of Render for one pool.
type inputs struct {
	pool *poolv1.MachineConfigPool
	// parent is the pool that it inherits from, or nil.
	parent *poolv1.MachineConfigPool
	// sources are the MachineConfigs that the pool renders, in the order of the merge.
	sources []poolv1.MachineConfig
}

func inputsOf(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (in inputs, err error) {
	if in.pool, err = OfRole(pools, role); err != nil {
		return in, err
	}
	if in.parent, err = ParentOf(in.pool, pools); err != nil {
		return in, err
	}
	in.sources, err = sourcesOf(in.pool, in.parent, configs)
	return in, err
}

// lineage returns the pool that the pool inherits from, if any, and the pool itself.
func (in inputs) lineage() []*poolv1.MachineConfigPool {
	if in.parent == nil {
		return []*poolv1.MachineConfigPool{in.pool}
	}
	return []*poolv1.MachineConfigPool{in.parent, in.pool}
}

// InputsHash returns a hash of the inputs of Render for a role: while it does not change, Render returns the same
// result. It covers the specs of the pool and of its parent without what they hand out instead of the
// result, and the generations of the MachineConfigs that they select. The MachineConfigs must be as an API server
// returned them. The errors are those of Render.
func InputsHash(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (string, error) {
	in, err := inputsOf(role, pools, configs)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	specs := json.NewEncoder(hash)
	for _, of := range in.lineage() {
		fmt.Fprintln(hash, of.Name)
		spec := of.Spec
		spec.Paused, spec.ConfigurationName = nil, ""
		if err := specs.Encode(spec); err != nil {
			return "", fmt.Errorf("MachineConfigPool %q: %w", of.Name, err)
		}
	}
	for i := range in.sources {
		fmt.Fprintln(hash, in.sources[i].Name, in.sources[i].UID, in.sources[i].Generation)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// InputsID returns a hash that identifies the inputs of Render for a role: the names, UIDs and generations of the pool
// that it inherits from, or else of the pool itself, and of the MachineConfigs. Programs of different versions compare
// it, so it stays the same for the same objects.
func InputsID(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (string, error) {
	in, err := inputsOf(role, pools, configs)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	root := in.lineage()[0]
	fmt.Fprintln(hash, root.Name, root.UID, root.Generation)
	for i := range in.sources {
		fmt.Fprintln(hash, in.sources[i].Name, in.sources[i].UID, in.sources[i].Generation)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// NotSelected says that no pool of the namespace of a MachineConfig selects it, and what each selects. It returns "" if
// one does, or if there are no pools yet.
func NotSelected(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool) string {
	if IsRendered(config) || len(pools) == 0 {
		return ""
	}
	selectors := make([]string, len(pools))
	for i := range pools {
		if Selects(pools[i], config.Labels) {
			return ""
		}
		selectors[i] = pools[i].Name + ": nothing, because spec.machineConfigSelector is not set"
		if pools[i].Spec.MachineConfigSelector != nil {
			selectors[i] = pools[i].Name + ": " + metav1.FormatLabelSelector(pools[i].Spec.MachineConfigSelector)
		}
	}
	slices.Sort(selectors)
	return "metadata.labels: no pool selects them yet, so no host gets this MachineConfig. If you do not create its pool next, correct them: the pools select " + strings.Join(selectors, "; ")
}

// Selects reports whether a pool's own machineConfigSelector selects a MachineConfig with these labels. A malformed
// selector selects none.
func Selects(p poolv1.MachineConfigPool, of map[string]string) bool {
	selector, err := selectorOf(p.Spec.MachineConfigSelector)
	return err == nil && selector.Matches(labels.Set(of))
}

// RenderedBy returns the pools that render a MachineConfig with these labels: those that select it, and those that
// inherit it from the worker pool of their Cluster.
func RenderedBy(pools []poolv1.MachineConfigPool, of map[string]string) (renders []poolv1.MachineConfigPool) {
	inherited := sets.New[string]()
	for i := range pools {
		if pools[i].Spec.PoolRole == poolv1.RoleWorker && Selects(pools[i], of) {
			inherited.Insert(pools[i].Spec.ClusterName)
		}
	}
	for i := range pools {
		if IsCustom(pools[i].Spec.PoolRole) && inherited.Has(pools[i].Spec.ClusterName) || Selects(pools[i], of) {
			renders = append(renders, pools[i])
		}
	}
	return renders
}

// SelectsAny reports whether a pool's own machineConfigSelector selects one of several MachineConfigs that is not
// rendered.
func SelectsAny(p *poolv1.MachineConfigPool, configs []poolv1.MachineConfig) bool {
	return slices.ContainsFunc(configs, func(c poolv1.MachineConfig) bool { return !IsRendered(&c) && Selects(*p, c.Labels) })
}
