package convert

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

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
