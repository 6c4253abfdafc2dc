package pool

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// ParseRendered returns the configuration in the spec of a rendered config, Poolboot's or OpenShift's. Errors name the
// field and the remedy.
func ParseRendered(spec poolv1.MachineConfigSpec) (update.Config, error) {
	config, err := ignition.New(), error(nil)
	switch {
	case spec.Butane != "":
		return update.Config{}, errors.New("spec.butane: a rendered config has Ignition only: use what the pool renders")
	case spec.Config != nil && len(spec.Config.Raw) > 0:
		config, err = ignition.Parse(spec.Config.Raw)
	}
	if err != nil {
		return update.Config{}, fmt.Errorf("spec.config: %w", err)
	}
	return update.Config{
		Ignition: config, KernelArguments: spec.KernelArguments, FIPS: ptr.Deref(spec.FIPS, false),
		OS: update.OperatingSystem{
			Image: spec.OSImageURL, ExtensionsImage: spec.BaseOSExtensionsContainerImage,
			KernelType: cmp.Or(spec.KernelType, poolv1.KernelTypeDefault), Extensions: spec.Extensions,
		},
	}, nil
}

// CompareAge compares when two rendered configs were created. It is negative if a is older. Times in metadata have
// seconds, so two that were created in the same second are compared by their resource versions: nothing changes a
// rendered config after its creation, except the garbage collector and tools that move or restore it.
func CompareAge(a, b *poolv1.MachineConfig) int {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil { // a config that is not from an API server
		order = 0
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), order, cmp.Compare(a.Name, b.Name))
}

// PlanUpdate returns how a running host of a pool changes from one rendered config to another. parent is the pool that
// it inherits from, or nil. restartsKubelet means that the flags of the kubelet change too, because the host was in
// another pool or the pool has other labels or taints. restart is what the host restarts because it was requested. can
// is what the programs of the host can change. What drifted on the host changes too.
func PlanUpdate(p, parent *poolv1.MachineConfigPool, from, to poolv1.MachineConfigSpec, restartsKubelet bool, restart update.RestartKind, can update.Capabilities, drift ...update.Drift) (update.Plan, error) {
	before, after, err := parseBoth(from, to)
	if err != nil {
		return update.Plan{}, err
	}
	after.Restart = restart
	plan := update.New(before, after, UpdatePolicyOf(p, parent), can, drift...)
	if restartsKubelet && plan.IsPossible() {
		plan.Actions = slices.DeleteFunc(plan.Actions, func(a update.Action) bool { return a.Type == update.None })
		plan.Actions = append(plan.Actions, update.Action{Type: update.Restart, Unit: "kubelet.service"})
	}
	return plan, nil
}

// ListChanges returns the entries that differ between two rendered configs: + is added, ~ changed, and - removed.
func ListChanges(from, to poolv1.MachineConfigSpec) ([]string, error) {
	before, after, err := parseBoth(from, to)
	if err != nil {
		return nil, err
	}
	nothing := update.Config{Ignition: ignition.New(), OS: update.OperatingSystem{KernelType: poolv1.KernelTypeDefault}}
	had, has := differing(nothing, before), differing(nothing, after)
	changes := []string{}
	for _, entry := range slices.Sorted(maps.Keys(differing(before, after))) {
		sign := "~ "
		switch {
		case has[entry] && !had[entry]:
			sign = "+ "
		case had[entry] && !has[entry]:
			sign = "- "
		}
		changes = append(changes, sign+entry)
	}
	return changes, nil
}

// ListSourceChanges returns the MachineConfigs that one rendered config is merged from and the other one is not, as
// ListChanges returns entries. It returns none if those of one rendered config are not known.
func ListSourceChanges(from, to poolv1.PoolConfiguration) (changes []string) {
	if len(from.Source) == 0 || len(to.Source) == 0 {
		return nil
	}
	list := func(sign string, of, without []poolv1.MachineConfigSource) {
		for _, source := range of {
			if !slices.Contains(without, source) {
				changes = append(changes, sign+source.Name)
			}
		}
	}
	list(removedSource, from.Source, to.Source)
	list(addedSource, to.Source, from.Source)
	return changes
}

const removedSource, addedSource = "- MachineConfig ", "+ MachineConfig "

// ChangedSources returns the names of the MachineConfigs that changes list as removed or added.
func ChangedSources(changes []string) (names []string) {
	for _, change := range changes {
		for _, sign := range []string{removedSource, addedSource} {
			if name, ok := strings.CutPrefix(change, sign); ok {
				names = append(names, name)
			}
		}
	}
	return names
}

// differing returns the entries that differ between two configurations.
func differing(before, after update.Config) map[string]bool {
	plan := update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
	entries := map[string]bool{}
	for _, change := range plan.Changes {
		if change.Kind != update.KindUnit {
			entries[change.String()] = true
			continue
		}
		from, to := unitOf(before, change.Name), unitOf(after, change.Name)
		onlyDropins := false
		for _, dropin := range slices.Concat(from.Dropins, to.Dropins) {
			isIt := func(other types.Dropin) bool { return ignition.Equal(dropin, other) }
			if !slices.ContainsFunc(from.Dropins, isIt) || !slices.ContainsFunc(to.Dropins, isIt) {
				entries[fmt.Sprintf("drop-in %s of %s", dropin.Name, change)], onlyDropins = true, true
			}
		}
		if from.Dropins, to.Dropins = nil, nil; !onlyDropins || !ignition.Equal(from, to) {
			entries[change.String()] = true
		}
	}
	for _, obstacle := range plan.Obstacles { // disks, for example, are no changes that a running host could make
		entries[obstacle.Item.String()] = true
	}
	return entries
}

// unitOf returns a unit of a configuration, or one with only this name.
func unitOf(config update.Config, name string) types.Unit {
	for _, unit := range config.Ignition.Systemd.Units {
		if unit.Name == name {
			return unit
		}
	}
	return types.Unit{Name: name}
}

func parseBoth(from, to poolv1.MachineConfigSpec) (before, after update.Config, err error) {
	if before, err = ParseRendered(from); err != nil {
		return before, after, fmt.Errorf("configuration before: %w", err)
	}
	if after, err = ParseRendered(to); err != nil {
		return before, after, fmt.Errorf("configuration after: %w", err)
	}
	return before, after, nil
}
