package convert

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// neverContactSource is the policy of mirrors whose source is never contacted. The other one is the default.
const neverContactSource, allowContactingSource = "NeverContactSource", "AllowContactingSource"

const (
	label        = `[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?`
	domain       = `\*(?:\.` + label + `)+`
	registryHost = label + `(?:\.` + label + `)*(?::[0-9]+)?`
	component    = `(?:/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)`
	repository   = registryHost + component + `*`
	oneImage     = registryHost + component + `+(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}|@[a-z0-9]+:[0-9a-f]{32,128})`
)

var (
	// mirrorPattern matches a registry with a port and a path, scopePattern also all subdomains of a domain, and
	// imagePattern also one image, by tag or by digest.
	mirrorPattern = regexp.MustCompile(`^` + repository + `$`)
	scopePattern  = regexp.MustCompile(`^(?:` + domain + `|` + repository + `)$`)
	imagePattern  = regexp.MustCompile(`^(?:` + domain + `|` + repository + `|` + oneImage + `)$`)
)

// registryMirror is one mirror of a registry.
type registryMirror struct {
	location string
	// forTags is true for images by tag, and false for images by digest.
	forTags, insecure bool
}

// registryScope is what applies to images whose names begin with a scope: a registry, with a path or without. Of
// several, the one with the longest scope applies.
type registryScope struct {
	scope             string
	mirrors           []registryMirror
	blocked, insecure bool
	// from names an object that has the scope, and path the field.
	from, path string
}

// registrySet has registries by their scopes.
type registrySet map[string]*registryScope

func (s registrySet) of(scope, from, path string) *registryScope {
	if s[scope] == nil {
		s[scope] = &registryScope{scope: scope, from: from, path: path}
	}
	return s[scope]
}

// sorted returns the registries in the order of their scopes.
func (s registrySet) sorted() []*registryScope {
	return slices.SortedFunc(maps.Values(s), func(a, b *registryScope) int { return strings.Compare(a.scope, b.scope) })
}

// isWithin reports whether a scope is in another one, which may be all subdomains of a domain.
func isWithin(scope, of string) bool {
	host, _, _ := strings.Cut(scope, "/")
	if domain, isWildcard := strings.CutPrefix(of, "*"); isWildcard {
		name, _, _ := strings.Cut(host, ":")
		return scope == of || strings.HasSuffix(name, domain)
	}
	return scope == of || strings.HasPrefix(scope, of+"/")
}

// convertRegistries returns the MachineConfigs for the mirrors and registries of OpenShift, which count for all pools:
// that of worker, which custom pools inherit in Poolboot, and that of the control plane if it has a pool. The errors
// name the objects that are refused and left out.
func convertRegistries(objects *input.Objects, pools []poolv1.MachineConfigPool, with string, remark func(string, ...any)) (configs []poolv1.MachineConfig, errs []error) {
	sets, images, errs := checkRegistries(objects)
	registries := readRegistries(sets, images)
	var search []string
	for _, image := range images {
		search = image.Spec.RegistrySources.ContainerRuntimeSearchRegistries
		warnImage(image, remark)
	}
	files := hostFiles{}
	if with == runtimeContainerd {
		addContainerdHosts(files, registries, remark)
		if len(search) > 0 {
			remark("warning: Image %q: spec.registrySources.containerRuntimeSearchRegistries is left out: containerd searches docker.io only: use full names of images", images[0].Name)
		}
	} else {
		addRegistriesConf(files, registries, search)
	}
	if len(files) == 0 {
		return nil, errs
	}
	names := []string{poolv1.RoleWorker} // also if it is an object of Poolboot
	if i := slices.IndexFunc(pools, pool.IsOfControlPlane); i >= 0 {
		names = append(names, pools[i].Name)
	}
	for _, name := range names {
		configs = append(configs, newFilesConfig("99-"+name+"-registries", name, files))
	}
	return configs, errs
}

// warnImage names the settings of an Image that are not converted.
func warnImage(image *input.ImageConfig, remark func(string, ...any)) {
	if sources := image.Spec.RegistrySources; len(sources.AllowedRegistries) > 0 {
		remark("warning: Image %q: spec.registrySources.allowedRegistries is left out: with CRI-O, write /etc/containers/policy.json in a MachineConfig, "+
			"which must also allow the registries of the cluster's own images", image.Name)
	}
	if name := image.Spec.AdditionalTrustedCA.Name; name != "" {
		remark("warning: Image %q: spec.additionalTrustedCA is left out: write the certificates of the ConfigMap %s into "+
			"/etc/containers/certs.d/REGISTRY/ca.crt (CRI-O) or the trust store of the hosts, in a MachineConfig", image.Name, name)
	}
}

// readRegistries returns the registries of mirror sets and of Images, as OpenShift combines them.
func readRegistries(sets []*input.MirrorSet, images []*input.ImageConfig) registrySet {
	registries := registrySet{}
	digests, tags := newMirrorLists(), newMirrorLists()
	for _, set := range sets {
		for _, of := range mirrorFields(set) {
			lists := digests
			if of.forTags {
				lists = tags
			}
			for i, item := range of.items {
				if !slices.ContainsFunc(item.Mirrors, func(name string) bool { return name != item.Source }) {
					continue // OpenShift ignores a set without a mirror, with its policy
				}
				lists.add(item.Source, item.Mirrors)
				registry := registries.of(item.Source, nameOfSet(set), of.path(i))
				registry.blocked = registry.blocked || item.MirrorSourcePolicy == neverContactSource
			}
		}
	}
	for _, registry := range registries {
		for _, name := range digests.merge(registry.scope) {
			registry.mirrors = append(registry.mirrors, registryMirror{location: name})
		}
		for _, name := range tags.merge(registry.scope) {
			registry.mirrors = append(registry.mirrors, registryMirror{location: name, forTags: true})
		}
	}
	mirrored := maps.Clone(registries)
	for _, image := range images {
		registries.addImage(image)
	}
	registries.inheritMirrors(mirrored)
	return registries
}

// addImage adds the insecure and the blocked registries of an Image. Both count also for what is within them.
func (s registrySet) addImage(image *input.ImageConfig) {
	sources := image.Spec.RegistrySources
	fields := scopeFields(image)
	for _, of := range fields {
		for i, scope := range of.scopes {
			s.of(scope, nameOfImage(image), of.path(i))
		}
	}
	for _, of := range fields { // when all scopes are known
		for _, scope := range of.scopes {
			for _, registry := range s {
				if isWithin(registry.scope, scope) {
					of.set(registry)
				}
			}
		}
	}
	for _, registry := range s {
		for i, mirror := range registry.mirrors {
			registry.mirrors[i].insecure = slices.ContainsFunc(sources.InsecureRegistries, func(scope string) bool { return isWithin(mirror.location, scope) })
		}
	}
}

// inheritMirrors gives registries without mirrors those of the longest scope around them, because only the longest
// scope applies to an image.
func (s registrySet) inheritMirrors(mirrored registrySet) {
	for _, inner := range s {
		for at := strings.LastIndex(inner.scope, "/"); at > 0 && len(inner.mirrors) == 0; at = strings.LastIndex(inner.scope[:at], "/") {
			outer := mirrored[inner.scope[:at]]
			if outer == nil {
				continue
			}
			inner.blocked = inner.blocked || outer.blocked
			for _, mirror := range outer.mirrors {
				mirror.location += inner.scope[at:]
				inner.mirrors = append(inner.mirrors, mirror)
			}
		}
	}
}

// mirrorLists has the lists of mirrors of each source.
type mirrorLists struct{ of map[string][][]string }

func newMirrorLists() *mirrorLists { return &mirrorLists{of: map[string][][]string{}} }

func (l *mirrorLists) add(source string, mirrors []string) {
	if !slices.Contains(mirrors, source) { // it is used last
		mirrors = append(slices.Clone(mirrors), source)
	}
	l.of[source] = append(l.of[source], mirrors)
}

// merge returns the mirrors of a source in one list that keeps the order of each list, if this is possible. Of mirrors
// that could be next, the first one in the lists is. The source itself is left out at the end, where it always is.
func (l *mirrorLists) merge(source string) (merged []string) {
	var rest []string
	before, after := map[string]sets.Set[string]{}, map[string][]string{} // the mirrors that must be earlier, and later
	for _, list := range l.of[source] {
		for i, name := range list {
			if before[name] == nil {
				before[name] = sets.New[string]()
				rest = append(rest, name)
			}
			if i > 0 && list[i-1] != name {
				before[name].Insert(list[i-1])
				after[list[i-1]] = append(after[list[i-1]], name)
			}
		}
	}
	for len(rest) > 0 {
		next := max(0, slices.IndexFunc(rest, func(name string) bool { return before[name].Len() == 0 })) // 0 in a loop
		name := rest[next]
		copy(rest[1:], rest[:next]) // the one that is next is often the first one
		rest = rest[1:]
		merged = append(merged, name)
		for _, later := range after[name] {
			before[later].Delete(name)
		}
	}
	if len(merged) > 0 && merged[len(merged)-1] == source {
		merged = merged[:len(merged)-1]
	}
	return merged
}

// mirrorField is one list of mirrors in a mirror set.
type mirrorField struct {
	name    string
	items   []input.Mirrors
	forTags bool
}

func (f mirrorField) path(i int) string { return fmt.Sprintf("spec.%s[%d]", f.name, i) }

func mirrorFields(set *input.MirrorSet) []mirrorField {
	return []mirrorField{
		{name: "imageDigestMirrors", items: set.Spec.ImageDigestMirrors},
		{name: "repositoryDigestMirrors", items: set.Spec.RepositoryDigestMirrors},
		{name: "imageTagMirrors", items: set.Spec.ImageTagMirrors, forTags: true},
	}
}

func nameOfSet(set *input.MirrorSet) string { return fmt.Sprintf("%s %q", set.Kind, set.Name) }

// scopeField is one list of registries in an Image.
type scopeField struct {
	name   string
	scopes []string
	set    func(*registryScope)
}

func (f scopeField) path(i int) string { return fmt.Sprintf("spec.registrySources.%s[%d]", f.name, i) }

func scopeFields(image *input.ImageConfig) []scopeField {
	sources := image.Spec.RegistrySources
	return []scopeField{
		{"blockedRegistries", sources.BlockedRegistries, func(r *registryScope) { r.blocked = true }},
		{"insecureRegistries", sources.InsecureRegistries, func(r *registryScope) { r.insecure = true }},
	}
}

func nameOfImage(image *input.ImageConfig) string {
	return fmt.Sprintf("%s %q", input.OpenShiftImageKind.Kind, image.Name)
}

// checkRegistries returns the mirror sets, in the order of their kinds and names, and the Images without those that
// OpenShift would refuse. The errors name everything that is wrong with these.
func checkRegistries(objects *input.Objects) (sets []*input.MirrorSet, images []*input.ImageConfig, errs []error) {
	policies := map[string]string{}
	for _, set := range slices.SortedFunc(slices.Values(input.Of[*input.MirrorSet](objects)), func(a, b *input.MirrorSet) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	}) {
		withSet := maps.Clone(policies)
		if wrong := checkMirrorSet(set, withSet); len(wrong) > 0 {
			errs = append(errs, objects.Refuse(set.Kind, set.Name, wrong))
			continue
		}
		policies, sets = withSet, append(sets, set)
	}
	for _, image := range input.Of[*input.ImageConfig](objects) {
		if wrong := checkImage(image); len(wrong) > 0 {
			errs = append(errs, objects.Refuse(input.OpenShiftImageKind.Kind, image.Name, wrong))
			continue
		}
		images = append(images, image)
	}
	return sets, images, errs
}

func checkMirrorSet(set *input.MirrorSet, policies map[string]string) (errs field.ErrorList) {
	for _, of := range mirrorFields(set) {
		for i, item := range of.items {
			errs = append(errs, checkMirrors(item, policies, field.NewPath("spec", of.name).Index(i))...)
		}
	}
	return errs
}

func checkImage(image *input.ImageConfig) (errs field.ErrorList) {
	at := field.NewPath("spec", "registrySources")
	for _, of := range scopeFields(image) {
		for i, scope := range of.scopes {
			if !imagePattern.MatchString(scope) {
				errs = append(errs, wrongf(at.Child(of.name).Index(i), "%q is no registry with a path, no image, and no domain, as *.example.com: correct it", scope))
			}
		}
	}
	for i, name := range image.Spec.RegistrySources.ContainerRuntimeSearchRegistries {
		if !mirrorPattern.MatchString(name) {
			errs = append(errs, wrongf(at.Child("containerRuntimeSearchRegistries").Index(i), "%q is no registry: correct it", name))
		}
	}
	return errs
}

// checkMirrors returns what OpenShift refuses in the mirrors of a source. policies are those of the sources before.
func checkMirrors(item input.Mirrors, policies map[string]string, at *field.Path) (errs field.ErrorList) {
	policy, policyField := cmp.Or(item.MirrorSourcePolicy, allowContactingSource), at.Child("mirrorSourcePolicy")
	before, isKnown := policies[item.Source]
	policies[item.Source] = policy
	if !scopePattern.MatchString(item.Source) {
		errs = append(errs, wrongf(at.Child("source"), "%q is no registry with a path, as registry.example.com/team: correct it", item.Source))
	}
	switch {
	case policy != allowContactingSource && policy != neverContactSource:
		errs = append(errs, wrongf(policyField, "%q is unknown: set %s or %s", policy, neverContactSource, allowContactingSource))
	case isKnown && before != policy:
		errs = append(errs, wrongf(policyField, "it is %s for the source %s, and %s elsewhere: set one of them", policy, item.Source, before))
	case policy == neverContactSource && slices.Contains(item.Mirrors, item.Source):
		errs = append(errs, wrongf(policyField, "it is %s, and the source %s is one of its mirrors: remove one of them", neverContactSource, item.Source))
	}
	for i, name := range item.Mirrors {
		if !mirrorPattern.MatchString(name) {
			errs = append(errs, wrongf(at.Child("mirrors").Index(i), "%q is no registry with a path, as mirror.example.com/team: correct it", name))
		}
	}
	return errs
}

func wrongf(at *field.Path, text string, args ...any) *field.Error {
	return field.Invalid(at, field.OmitValueType{}, fmt.Sprintf(text, args...))
}
