package convert

import (
	"regexp"
	"slices"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// releaseRepository matches the repositories of the images of releases of OpenShift and OKD, and the names that mirrors
// of them keep behind another host.
var releaseRepository = regexp.MustCompile(`(^|/)(ocp-v4[.][0-9]+-art-dev|openshift-release-dev/[^/]+|openshift/(release|release-images|okd-content)|okd/scos-content)$|` +
	`^registry[.](ci|svc[.]ci)[.]openshift[.]org/`)

// findReleaseMirrors returns the mirrors of the repositories of releases in the files.
func findReleaseMirrors(objects *input.Objects) (mirrors []string) {
	for _, set := range input.Of[*input.MirrorSet](objects) {
		for _, field := range mirrorFields(set) {
			for _, entry := range field.items {
				if releaseRepository.MatchString(entry.Source) {
					mirrors = append(mirrors, entry.Mirrors...)
				}
			}
		}
	}
	return mirrors
}

// dropReleaseImages removes images of an OpenShift release, also from a mirror: they contain OpenShift's kubelet and
// configuration.
func dropReleaseImages(config *poolv1.MachineConfig, mirrors []string, remark func(string, ...any)) {
	for _, image := range []struct {
		field string
		value *string
	}{{"osImageURL", &config.Spec.OSImageURL}, {"baseOSExtensionsContainerImage", &config.Spec.BaseOSExtensionsContainerImage}} {
		repository := repositoryOf(*image.value)
		isMirror := func(mirror string) bool { return isWithin(repository, mirror) }
		if releaseRepository.MatchString(repository) || slices.ContainsFunc(mirrors, isMirror) {
			remark("note: MachineConfig %q: spec.%s is left out: it is the image of an OpenShift release, and the host keeps the image that Metal3 wrote", config.Name, image.field)
			*image.value = ""
		}
	}
}

// repositoryOf returns the name of an image without its tag and digest.
func repositoryOf(image string) string {
	name, _, _ := strings.Cut(image, "@")
	if end := strings.LastIndex(name, ":"); end > strings.LastIndex(name, "/") {
		name = name[:end]
	}
	return name
}
