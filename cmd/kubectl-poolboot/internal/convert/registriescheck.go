package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// mirrorField is one list of mirrors in a mirror set.
type mirrorField struct {
	name    string
	items   []input.Mirrors
	forTags bool
}

func (f mirrorField) path(i int) string { return fmt.Sprintf("spec.%s[%d]", f.name, i) }

func mirrorFields(set input.MirrorSet) []mirrorField {
	return []mirrorField{
		{name: "imageDigestMirrors", items: set.Spec.ImageDigestMirrors},
		{name: "repositoryDigestMirrors", items: set.Spec.RepositoryDigestMirrors},
		{name: "imageTagMirrors", items: set.Spec.ImageTagMirrors, forTags: true},
	}
}

func nameOfSet(set input.MirrorSet) string { return fmt.Sprintf("%s %q", set.Kind, set.Name) }

// scopeField is one list of registries in an Image.
type scopeField struct {
	name   string
	scopes []string
	set    func(*registryScope)
}

func (f scopeField) path(i int) string { return fmt.Sprintf("spec.registrySources.%s[%d]", f.name, i) }

func scopeFields(image input.ImageConfig) []scopeField {
	sources := image.Spec.RegistrySources
	return []scopeField{
		{"blockedRegistries", sources.BlockedRegistries, func(r *registryScope) { r.blocked = true }},
		{"insecureRegistries", sources.InsecureRegistries, func(r *registryScope) { r.insecure = true }},
	}
}

func nameOfImage(image input.ImageConfig) string {
	return fmt.Sprintf("%s %q", input.OpenShiftImageKind.Kind, image.Name)
}

// checkRegistries returns the mirror sets, in the order of their kinds and names, and the Images without those that
// OpenShift would refuse, which the errors name.
func checkRegistries(objects *input.Objects) (sets []input.MirrorSet, images []input.ImageConfig, errs []error) {
	policies := map[string]string{}
	for _, set := range slices.SortedFunc(slices.Values(objects.MirrorSets), func(a, b input.MirrorSet) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	}) {
		withSet := maps.Clone(policies)
		if err := checkMirrorSet(set, withSet); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", nameOfSet(set), err))
			continue
		}
		policies, sets = withSet, append(sets, set)
	}
	for _, image := range objects.ImageConfigs {
		if err := checkImage(image); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", nameOfImage(image), err))
			continue
		}
		images = append(images, image)
	}
	return sets, images, errs
}

func checkMirrorSet(set input.MirrorSet, policies map[string]string) error {
	for _, of := range mirrorFields(set) {
		for i, item := range of.items {
			if err := checkMirrors(item, policies); err != nil {
				return fmt.Errorf("%s: %w", of.path(i), err)
			}
		}
	}
	return nil
}

func checkImage(image input.ImageConfig) error {
	for _, of := range scopeFields(image) {
		for i, scope := range of.scopes {
			if !scopePattern.MatchString(scope) {
				return fmt.Errorf("%s: %q is no registry with a path, and no domain, as *.example.com: correct it", of.path(i), scope)
			}
		}
	}
	for _, name := range image.Spec.RegistrySources.ContainerRuntimeSearchRegistries {
		if !mirrorPattern.MatchString(name) {
			return fmt.Errorf("spec.registrySources.containerRuntimeSearchRegistries: %q is no registry: correct it", name)
		}
	}
	return nil
}

// checkMirrors refuses what OpenShift refuses. policies are those of the sources before.
func checkMirrors(item input.Mirrors, policies map[string]string) error {
	policy := cmp.Or(item.MirrorSourcePolicy, allowContactingSource)
	before, isKnown := policies[item.Source]
	policies[item.Source] = policy
	switch {
	case !scopePattern.MatchString(item.Source):
		return fmt.Errorf("the source %q is no registry with a path, as registry.example.com/team: correct it", item.Source)
	case policy != allowContactingSource && policy != neverContactSource:
		return fmt.Errorf("mirrorSourcePolicy is %q: set %s or %s", policy, neverContactSource, allowContactingSource)
	case isKnown && before != policy:
		return fmt.Errorf("the source %s has mirrorSourcePolicy %s here and %s elsewhere: set one of them", item.Source, policy, before)
	case policy == neverContactSource && slices.Contains(item.Mirrors, item.Source):
		return fmt.Errorf("the source %s is one of its mirrors, and mirrorSourcePolicy is %s: remove one of them", item.Source, neverContactSource)
	}
	for _, name := range item.Mirrors {
		if !mirrorPattern.MatchString(name) {
			return fmt.Errorf("the mirror %q is no registry with a path, as mirror.example.com/team: correct it", name)
		}
	}
	return nil
}
