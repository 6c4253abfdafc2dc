package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// readConfig reads the rendered config in the file of a flag, and returns its name too.
func (o *options) readConfig(flag, file string) (update.Config, string, error) {
	objects, err := o.files.Read(file)
	if err != nil {
		return update.Config{}, "", fmt.Errorf("%s: %w", flag, err)
	}
	found := input.Of[*poolv1.MachineConfig](objects)
	if len(found) != 1 {
		return update.Config{}, "", fmt.Errorf("%s %s: it contains %d MachineConfigs: name a file with one, the rendered config", flag, file, len(found))
	}
	config, err := pool.ParseRendered(found[0].Spec)
	if err != nil {
		return update.Config{}, "", fmt.Errorf("%s %s: MachineConfig %q: %w", flag, file, found[0].Name, err)
	}
	return config, found[0].Name, nil
}

// readPolicy returns the policy for hosts with a rendered config.
func (o *options) readPolicy(config string) (update.Policy, error) {
	if o.policy == "" {
		return update.DefaultPolicy(), nil
	}
	refuse := func(why string, args ...any) (update.Policy, error) {
		return update.Policy{}, fmt.Errorf("--policy %s: %w", o.policy, fmt.Errorf(why, args...))
	}
	objects, err := o.files.Read(o.policy)
	if err != nil {
		return update.Policy{}, fmt.Errorf("--policy: %w", err)
	}
	pools := slices.DeleteFunc(input.Of[*poolv1.MachineConfigPool](objects), func(p *poolv1.MachineConfigPool) bool { return input.IsOpenShift(p.TypeMeta) })
	switch configurations := input.Of[*input.MachineConfiguration](objects); {
	case len(configurations)+len(pools) == 0:
		return refuse("it contains no policy: name a file with a MachineConfigPool of Poolboot, or with OpenShift's MachineConfiguration")
	case len(configurations) == 1 && len(pools) > 0:
		return refuse("it contains a MachineConfiguration and %d MachineConfigPools: name a file with a MachineConfiguration, or with pools only", len(pools))
	case len(configurations) == 1:
		policy, remarks, errs := input.DisruptionPolicy(configurations[0])
		for _, remark := range remarks {
			fmt.Fprintln(o.streams.ErrOut, "note:", remark)
		}
		if err := objects.Refuse(input.OpenShiftPolicyKind.Kind, configurations[0].Name, errs); err != nil {
			return update.Policy{}, fmt.Errorf("--policy: %w", err)
		}
		return pool.NewUpdatePolicy(policy), nil
	}
	p, err := choosePool(pools, config)
	if err != nil {
		return refuse("%w", err)
	}
	worker, err := findWorker(pools, p)
	switch {
	case err != nil:
		return refuse("%w", err)
	case worker == nil:
		fmt.Fprintf(o.streams.ErrOut, "note: --policy %s: it does not contain the pool worker, from which the pool %s inherits policies\n", o.policy, p.Name)
	}
	return pool.UpdatePolicyOf(p, worker), nil
}

// choosePool returns the pool that a config was rendered for, by the name of the config: it has the name of the pool
// or, in OpenShift, its role. Of a single pool, the name does not matter.
func choosePool(pools []*poolv1.MachineConfigPool, config string) (*poolv1.MachineConfigPool, error) {
	if len(pools) == 1 {
		return pools[0], nil
	}
	var names []string
	var found []*poolv1.MachineConfigPool
	for _, p := range pools {
		names = append(names, p.Name)
		if isRenderedFor(config, p.Name) || isRenderedFor(config, p.Spec.PoolRole) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it contains the pools %s, and %d of them can be that of the config %s: name a file with that pool, and with worker if it inherits from it",
			strings.Join(names, ", "), len(found), config)
	}
	return found[0], nil
}

// isRenderedFor reports whether a rendered config has the name of a pool.
func isRenderedFor(config, name string) bool {
	hash, ok := strings.CutPrefix(config, poolv1.RenderedNamePrefix+name+"-")
	return ok && !strings.Contains(hash, "-")
}

// findWorker returns the pool from which a pool inherits, or nil if the file does not contain it.
func findWorker(pools []*poolv1.MachineConfigPool, p *poolv1.MachineConfigPool) (*poolv1.MachineConfigPool, error) {
	var ofCluster []poolv1.MachineConfigPool
	for _, other := range pools {
		if other.Spec.ClusterName == p.Spec.ClusterName && other.Namespace == p.Namespace {
			ofCluster = append(ofCluster, *other)
		}
	}
	worker, err := pool.OfRole(ofCluster, poolv1.RoleWorker)
	if errors.As(err, new(*pool.NotFoundError)) {
		return nil, nil
	}
	return worker, err
}
