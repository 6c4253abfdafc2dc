package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// generatedByAnnotation is on every MachineConfig that a controller of OpenShift's Machine Config Operator writes. Its
// value is the version of the controller.
const generatedByAnnotation = "machineconfiguration.openshift.io/generated-by-controller-version"

var (
	// templateName matches the MachineConfigs that OpenShift renders from the templates of its release.
	templateName = regexp.MustCompile(`^(00-[a-z0-9-]+|01-[a-z0-9-]+-(kubelet|container-runtime))$`)
	// generatedName matches those that it renders from KubeletConfigs, ContainerRuntimeConfigs, image policies and
	// features, as 98-worker-generated-kubelet, and those by which it keeps settings of CRI-O in an upgrade.
	generatedName = regexp.MustCompile(`^(00-override|9[7-9])-.+-generated-(kubelet|containerruntime|registries|credentialproviderconfig|crio-[a-z-]+)(-[0-9]+)?$`)
	// generatedLike matches the names that a user can have taken for one of those.
	generatedLike = regexp.MustCompile(`^9[7-9]-.+-generated-`)
)

// whyGenerated returns why a MachineConfig is not converted because OpenShift writes it, or "" if a user wrote it.
func whyGenerated(config *poolv1.MachineConfig) string {
	owned := func(kind string) bool {
		return slices.ContainsFunc(config.OwnerReferences, func(owner metav1.OwnerReference) bool {
			return owner.Kind == kind && strings.HasPrefix(owner.APIVersion, input.OpenShift.Group+"/")
		})
	}
	_, generated := config.Annotations[generatedByAnnotation]
	switch {
	case strings.HasPrefix(config.Name, poolv1.RenderedNamePrefix):
		return "it is rendered, and Poolboot renders its own"
	case owned(input.OpenShiftKubeletKind.Kind):
		return "OpenShift generated it from a KubeletConfig, which is converted"
	case owned(input.OpenShiftRuntimeKind.Kind):
		return "OpenShift generated it from a ContainerRuntimeConfig, which is converted"
	case owned("ControllerConfig"), generated, templateName.MatchString(config.Name) && isForRole(config):
		return "OpenShift generated it for its own hosts"
	case generatedName.MatchString(config.Name):
		return "OpenShift generates one of this name from its configuration of the kubelet, the container runtime or registries: if this one is yours, rename it"
	}
	return ""
}

// isForRole reports whether the name of a template has the role of its label, as all of OpenShift's have: 00-worker is
// one, and 00-proxy is a user's.
func isForRole(config *poolv1.MachineConfig) bool {
	role := config.Labels[input.RoleLabel]
	_, of, _ := strings.Cut(config.Name, "-")
	return role != "" && (of == role || strings.HasPrefix(config.Name, "01-") && strings.HasPrefix(of, role+"-"))
}

// whyNeeded returns the first object for which a built-in pool must exist, or "": it selects MachineConfigs and
// KubeletConfigs, custom pools inherit from worker, and worker has the settings of all pools.
func whyNeeded(builtIn poolv1.MachineConfigPool, objects *input.Objects, pools []poolv1.MachineConfigPool) string {
	isWorker := builtIn.Name == poolv1.RoleWorker
	custom := slices.IndexFunc(pools, func(p poolv1.MachineConfigPool) bool { return pool.IsCustom(p.Spec.PoolRole) })
	if isWorker && custom >= 0 {
		return fmt.Sprintf("MachineConfigPool %q inherits from it", pools[custom].Name)
	}
	for _, config := range input.Of[*poolv1.MachineConfig](objects) {
		if input.IsOpenShift(config.TypeMeta) && whyGenerated(config) == "" && matchesSelector(builtIn.Spec.MachineConfigSelector, config.Labels) {
			return fmt.Sprintf("it selects MachineConfig %q", config.Name)
		}
	}
	for _, object := range input.Of[client.Object](objects) {
		kind, selector := object.GetObjectKind().GroupVersionKind().Kind, (*metav1.LabelSelector)(nil)
		switch object := object.(type) {
		case *input.KubeletConfig:
			selector = object.Spec.MachineConfigPoolSelector
		case *input.ContainerRuntimeConfig:
			selector = object.Spec.MachineConfigPoolSelector
		case *input.MirrorSet, *input.ImageConfig, *input.MachineConfiguration:
			if isWorker {
				return fmt.Sprintf("it gets the settings of %s %q", kind, object.GetName())
			}
		}
		if matchesSelector(selector, builtIn.Labels) {
			return fmt.Sprintf("%s %q selects it", kind, object.GetName())
		}
	}
	return ""
}

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
