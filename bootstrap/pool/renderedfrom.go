package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

const (
	// maxRenderedFrom is the maximum size of the annotation RenderedFrom in bytes. All annotations of an object have
	// 256 KiB.
	maxRenderedFrom = 64 << 10
	// sourceHashLength is the number of hex digits of the hash of a source.
	sourceHashLength = 8
	// kubeletOf begins the name of a pool in the annotation, which has no other settings that are rendered. No name of
	// a MachineConfig contains a slash.
	kubeletOf = "MachineConfigPool/"
)

// source is an object that a rendered config was rendered from, with the beginning of the hash of its content.
type source struct{ name, hash string }

// RenderedFrom returns the value of the annotation RenderedFromAnnotation for what a pool renders, or "" if it is too
// long. The errors are those of Render.
func RenderedFrom(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (string, error) {
	sources, err := listSources(role, pools, configs)
	if err != nil {
		return "", err
	}
	entries := make([]string, len(sources))
	for i, source := range sources {
		entries[i] = source.name + "=" + source.hash
	}
	if value := strings.Join(entries, ","); len(value) <= maxRenderedFrom {
		return value, nil
	}
	return "", nil
}

// listSources returns the objects that a pool renders: its MachineConfigs in the order of the merge, and the pools with
// settings in spec.kubelet.
func listSources(role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (sources []source, err error) {
	in, err := inputsOf(role, pools, configs)
	if err != nil {
		return nil, err
	}
	add := func(name string, content any) error {
		raw, err := contentOf(content)
		if err != nil {
			return fmt.Errorf("%s is not JSON: %w", name, err)
		}
		hash := sha256.Sum256(raw)
		sources = append(sources, source{name, hex.EncodeToString(hash[:])[:sourceHashLength]})
		return nil
	}
	for i := range in.sources {
		if err := add(in.sources[i].Name, in.sources[i].Spec); err != nil {
			return nil, err
		}
	}
	for _, of := range in.lineage() {
		if k := of.Spec.Kubelet; k.Configuration == nil && k.AutoSizingReserved == nil && len(k.Wrapper) == 0 {
			continue
		}
		if err := add(kubeletOf+of.Name, of.Spec.Kubelet); err != nil {
			return nil, err
		}
	}
	return sources, nil
}

// recordedSources returns what a rendered config was rendered from, as its annotation says. It is not known if there is
// none that can be read.
func recordedSources(rendered *poolv1.MachineConfig) (sources []source, isKnown bool) {
	value, ok := rendered.Annotations[poolv1.RenderedFromAnnotation]
	if !ok || len(value) > maxRenderedFrom {
		return nil, false
	}
	if value == "" { // the pool selected nothing
		return nil, true
	}
	for entry := range strings.SplitSeq(value, ",") {
		name, hash, _ := strings.Cut(entry, "=")
		isHash := len(hash) == sourceHashLength && strings.Trim(hash, "0123456789abcdef") == ""
		if !isHash || len(validation.IsDNS1123Subdomain(strings.TrimPrefix(name, kubeletOf))) > 0 || len(sources) == MaxSources+2 {
			return nil, false
		}
		sources = append(sources, source{name, hash})
	}
	return sources, true
}

// SourcesOf returns the MachineConfigs that a rendered config was merged from, in order, or none if that is not
// recorded. The rendered config can be nil.
func SourcesOf(rendered *poolv1.MachineConfig) (of []poolv1.MachineConfigSource) {
	if rendered == nil {
		return nil
	}
	sources, _ := recordedSources(rendered)
	for _, source := range sources {
		if !strings.HasPrefix(source.name, kubeletOf) && len(of) < MaxSources {
			of = append(of, poolv1.MachineConfigSource{Name: source.name})
		}
	}
	return of
}

// Misfit is an object because of which a pool renders something else than a rendered config that it rendered earlier.
type Misfit struct {
	source
	// How is what happened to it since then: added, changed, or removed from what the pool renders.
	How string
}

const misfitAdded, misfitChanged, misfitRemoved = "added", "changed", "removed"

// String returns the kind and the name of the object, the field if not all of it is rendered, and what happened to it.
func (m Misfit) String() string {
	if name, isPool := strings.CutPrefix(m.name, kubeletOf); isPool {
		return fmt.Sprintf("spec.kubelet of MachineConfigPool %s (%s)", name, m.How)
	}
	return fmt.Sprintf("MachineConfig %s (%s)", m.name, m.How)
}

// FindMisfits returns the objects because of which a pool renders something else now than an earlier rendered config:
// first those that were changed or removed, in the order of the merge. They are not known if the rendered config does
// not record what it was rendered from, or if the pool selects nothing that can be rendered. There are none if Poolboot
// itself renders the same objects in another way since an upgrade.
func FindMisfits(rendered *poolv1.MachineConfig, role string, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig) (misfits []Misfit, isKnown bool) {
	recorded, isKnown := recordedSources(rendered)
	present, err := listSources(role, pools, configs)
	if !isKnown || err != nil {
		return nil, false
	}
	for _, then := range recorded {
		now := find(present, then.name)
		switch {
		case now == nil:
			misfits = append(misfits, Misfit{then, misfitRemoved})
		case now.hash != then.hash:
			misfits = append(misfits, Misfit{*now, misfitChanged})
		}
	}
	for _, now := range present {
		if find(recorded, now.name) == nil {
			misfits = append(misfits, Misfit{now, misfitAdded})
		}
	}
	return misfits, true
}

func find(sources []source, name string) *source {
	if i := slices.IndexFunc(sources, func(s source) bool { return s.name == name }); i >= 0 {
		return &sources[i]
	}
	return nil
}

// HasMisfit reports whether another rendered config was rendered from an object as it is now because of which a pool no
// longer renders what it did. isChild means that the other one is of a pool that inherits from that pool: only then
// what was removed is missing there, too.
func HasMisfit(other *poolv1.MachineConfig, misfits []Misfit, isChild bool) bool {
	recorded, isKnown := recordedSources(other)
	return isKnown && slices.ContainsFunc(misfits, func(m Misfit) bool {
		has := find(recorded, m.name)
		if m.How == misfitRemoved {
			return isChild && has == nil
		}
		return has != nil && *has == m.source
	})
}
