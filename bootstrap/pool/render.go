package pool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
)

// Rendered is the rendered config of a pool.
type Rendered struct {
	// Name is the rendered MachineConfig's name: see NameFor.
	Name string
	// Spec is the rendered MachineConfig's spec.
	Spec poolv1.MachineConfigSpec
	// Source are the names of the MachineConfigs that were merged, in order.
	Source []string
	// Kubelets are the names of the pools whose kubelet configuration was merged: worker, then the pool itself.
	Kubelets []string `json:"-"`
	// Origins are the origins of all entries: those of Ignition in the order of the document, then kernel arguments,
	// extensions, kernelType, osImageURL, baseOSExtensionsContainerImage and fips. Default values have no origin.
	Origins []Origin `json:"-"`
	// Notes say what of the pool and of worker applies if both set the same in different fields. Each begins with the
	// pool and the field.
	Notes []string `json:"-"`
}

// Render merges the MachineConfigs of a pool: for a custom pool, first those that the Cluster's worker pool selects,
// then the others that the pool itself selects, both in the order of their names. So a custom pool inherits all
// MachineConfigs of worker and overrides them, regardless of names. The kubelet configurations of both pools are added
// as drop-ins.
//
// ignition.Merge merges the Ignition. kernelArguments and extensions are concatenated, fips is true if any
// MachineConfig sets it, and the last kernelType, osImageURL and baseOSExtensionsContainerImage win, also a kernelType
// "default". Rendered configs among configs are ignored. The same input gives the same bytes and the same name.
//
// Errors: *NotFoundError and *DuplicateError for the pool or for worker, *SelectorError, *RenderError for a
// MachineConfig, *KubeletError for a kubelet configuration, *TooManyError, *TooLargeError.
func Render(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (*Rendered, error) {
	in, err := inputsOf(role, pools, configs)
	if err != nil {
		return nil, err
	}
	p, sources := in.pool, in.sources
	if len(sources) > MaxSources {
		return nil, &TooManyError{Pool: p.Name, Count: len(sources)}
	}
	sections, err := kubeletParts(p, in.parent)
	if err != nil {
		return nil, err
	}
	spec, from, err := mergeConfigs(p.Spec.PoolRole, sources, slices.Concat(sections, reservedParts(p, in.parent), wrapperParts(p, in.parent)))
	if err != nil {
		return nil, err
	}
	content, err := contentOfRendered(spec)
	if err != nil {
		return nil, err
	}
	size := 0
	for _, part := range content {
		size += len(part)
	}
	if err := checkSize(p.Name, size, sources); err != nil {
		return nil, err
	}
	name, err := nameOf(p.Name, content...)
	if err != nil {
		return nil, err
	}
	rendered := &Rendered{Name: name, Spec: spec, Origins: from, Notes: reservedNotes(p, in.parent)}
	for _, source := range sources {
		rendered.Source = append(rendered.Source, source.Name)
	}
	for _, section := range sections {
		rendered.Kubelets = append(rendered.Kubelets, section.pool)
	}
	return rendered, nil
}

// sourcesOf returns the MachineConfigs that a pool renders, in the order of the merge. parent is the pool that it
// inherits from, or nil.
func sourcesOf(p, parent *poolv1.MachineConfigPool, configs []poolv1.MachineConfig) ([]poolv1.MachineConfig, error) {
	own, err := selectedBy(p, configs)
	if err != nil || parent == nil {
		return own, err
	}
	sources, err := selectedBy(parent, configs)
	if err != nil {
		return nil, err
	}
	inherited := sets.New[string]()
	for _, source := range sources {
		inherited.Insert(source.Name)
	}
	isInherited := func(config poolv1.MachineConfig) bool { return inherited.Has(config.Name) }
	return append(sources, slices.DeleteFunc(own, isInherited)...), nil
}

// selectedBy returns the MachineConfigs that a pool's own machineConfigSelector selects, in the order of their names.
func selectedBy(p *poolv1.MachineConfigPool, configs []poolv1.MachineConfig) ([]poolv1.MachineConfig, error) {
	selector, err := selectorOf(p.Spec.MachineConfigSelector)
	if err != nil {
		return nil, &SelectorError{Pool: p.Name, Path: "spec.machineConfigSelector", Err: err}
	}
	selected := make([]poolv1.MachineConfig, 0, len(configs))
	for _, config := range configs {
		if !IsRendered(&config) && selector.Matches(labels.Set(config.Labels)) {
			selected = append(selected, config)
		}
	}
	slices.SortFunc(selected, func(a, b poolv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	for i := range len(selected) - 1 {
		if selected[i].Name == selected[i+1].Name {
			return nil, &RenderError{MachineConfig: selected[i].Name, Err: errors.New("is given twice: remove one")}
		}
	}
	return selected, nil
}

// IsRendered reports whether a MachineConfig is a rendered config, which no pool selects.
func IsRendered(config *poolv1.MachineConfig) bool {
	_, labeled := config.Labels[poolv1.RenderedForLabel]
	return labeled || IsRenderedName(config.Name)
}

// part is Ignition that is merged into a rendered config, with the name of the MachineConfig, or of the pool and its
// field, that it comes from.
type part struct {
	config                     ignition.Config
	machineConfig, pool, field string
	document                   string // the field of the MachineConfig: spec.config or spec.butane
}

// mergeConfigs merges the specs of MachineConfigs for the pool of a role, later over earlier ones, and adds the pools'
// kubelet sections and wrapper, which have paths of their own. It also returns the origins of all entries.
func mergeConfigs(role string, sources []poolv1.MachineConfig, sections []part) (poolv1.MachineConfigSpec, []Origin, error) {
	fips := false
	out := poolv1.MachineConfigSpec{FIPS: &fips, KernelType: poolv1.KernelTypeDefault}
	parts := make([]part, 0, len(sources)+len(sections))
	for _, source := range sources {
		if err := checkKernelType(source); err != nil {
			return out, nil, err
		}
		config, document, err := ignitionOf(source, ScopeOfRole(role))
		if err != nil {
			return out, nil, err
		}
		parts = append(parts, part{config: config, machineConfig: source.Name, document: document})
		out.KernelArguments = append(out.KernelArguments, source.Spec.KernelArguments...)
		out.Extensions = append(out.Extensions, source.Spec.Extensions...)
		fips = fips || ptr.Deref(source.Spec.FIPS, false)
		out.KernelType = cmp.Or(source.Spec.KernelType, out.KernelType)
		out.OSImageURL = cmp.Or(source.Spec.OSImageURL, out.OSImageURL)
		out.BaseOSExtensionsContainerImage = cmp.Or(source.Spec.BaseOSExtensionsContainerImage, out.BaseOSExtensionsContainerImage)
	}
	if err := checkKernelDevel(out, sources); err != nil {
		return out, nil, err
	}
	all := slices.Concat(parts, sections)
	whole := mergeIgnition(all)
	if err := ignition.ValidateMerged(whole); err != nil {
		return out, nil, explainMerge(whole, all, err)
	}
	if err := guardMerged(whole, parts, all, ScopeOfRole(role)); err != nil {
		return out, nil, err
	}
	raw, err := ignition.Marshal(whole)
	if err != nil {
		return out, nil, fmt.Errorf("writing the rendered Ignition: %w", err)
	}
	out.Config = &runtime.RawExtension{Raw: raw}
	return out, append(originsOfIgnition(whole, all), originsOfSpecs(sources)...), nil
}

// mergeIgnition returns the Ignition of all parts, later over earlier ones.
func mergeIgnition(parts []part) ignition.Config {
	configs := make([]ignition.Config, len(parts))
	for i := range parts {
		configs[i] = parts[i].config
	}
	return ignition.Merge(configs...)
}

// ignitionOf parses a MachineConfig's Ignition or Butane and checks that it changes nothing that Poolboot manages, or
// kubeadm on a control plane. path is the field that has it.
func ignitionOf(source poolv1.MachineConfig, scope ignition.Scope) (config ignition.Config, path string, err error) {
	refuse := func(path string, err error) (ignition.Config, string, error) {
		return ignition.Config{}, "", &RenderError{MachineConfig: source.Name, Path: path, Err: err}
	}
	if err := ignition.GuardArguments(source.Spec.KernelArguments); err != nil {
		return refuse("spec", err)
	}
	hasConfig := source.Spec.Config != nil && len(source.Spec.Config.Raw) > 0
	config, path = ignition.New(), "spec.config"
	switch {
	case hasConfig && source.Spec.Butane != "":
		return refuse("spec", errors.New("set config (Ignition) or butane, not both"))
	case hasConfig:
		config, err = ignition.Parse(source.Spec.Config.Raw)
	case source.Spec.Butane != "":
		path = "spec.butane"
		config, err = butane.Parse(source.Spec.Butane)
	}
	if err == nil {
		err = scope.Guard(config)
	}
	if err != nil {
		return refuse(path, err)
	}
	return config, path, nil
}

// kernelTypes are the valid values of a MachineConfig's kernelType. The empty value leaves the kernel unchanged.
var kernelTypes = []string{"", poolv1.KernelTypeDefault, poolv1.KernelTypeRealtime, poolv1.KernelType64kPages}

// checkKernelType refuses an unknown kernelType. The schema of the CRD refuses it too, but MachineConfigs that are read
// from files are not validated against the schema.
func checkKernelType(source poolv1.MachineConfig) error {
	if slices.Contains(kernelTypes, source.Spec.KernelType) {
		return nil
	}
	return &RenderError{MachineConfig: source.Name, Path: "spec.kernelType",
		Err: fmt.Errorf("%q is unknown: use %s, or leave it out", source.Spec.KernelType, strings.Join(kernelTypes[1:], ", "))}
}

// kernelDevelExtension has the headers of the default kernel only.
const kernelDevelExtension = "kernel-devel"

// checkKernelDevel refuses kernelDevelExtension with another kernel.
func checkKernelDevel(out poolv1.MachineConfigSpec, sources []poolv1.MachineConfig) error {
	if out.KernelType == poolv1.KernelTypeDefault {
		return nil
	}
	for _, source := range sources {
		if i := slices.Index(source.Spec.Extensions, kernelDevelExtension); i >= 0 {
			return &RenderError{MachineConfig: source.Name, Path: fmt.Sprintf("spec.extensions[%d]", i),
				Err: fmt.Errorf("%s is for kernelType %s only, and the pool has kernelType %s: remove one of them", kernelDevelExtension, poolv1.KernelTypeDefault, out.KernelType)}
		}
	}
	return nil
}

// guardMerged applies Guard to the combination of MachineConfigs that passed it one by one: to files to which several
// contribute, and to what is below a path. For a control plane, it applies it to everything: one MachineConfig can have
// the home of a user, and another one the SSH keys that are written there. The error is a *MergeError.
func guardMerged(whole ignition.Config, parts, all []part, scope ignition.Scope) error {
	if err := ignition.CheckParents(whole); err != nil {
		return explainMerge(whole, parts, err)
	}
	checked := sharedFiles(whole, parts)
	if err := ignition.Guard(checked); err != nil {
		return explainMerge(checked, parts, err)
	}
	if !scope.ControlPlane {
		return nil
	}
	scope.Rendered = true
	return explainMerge(whole, all, scope.Guard(whole))
}

// sharedFiles returns the files of the merged Ignition to which several MachineConfigs contribute. Only these can have
// contents that no single MachineConfig has.
func sharedFiles(whole ignition.Config, parts []part) ignition.Config {
	writers := map[string]int{}
	for _, part := range parts {
		for _, file := range part.config.Storage.Files {
			writers[file.Path]++
		}
	}
	several := ignition.New()
	for _, file := range whole.Storage.Files {
		if writers[file.Path] > 1 {
			several.Storage.Files = append(several.Storage.Files, file)
		}
	}
	return several
}
