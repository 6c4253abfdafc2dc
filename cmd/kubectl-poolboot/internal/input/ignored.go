package input

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// kustomizationKind is the kind of a kustomization.
var kustomizationKind = schema.GroupKind{Group: "kustomize.config.k8s.io", Kind: "Kustomization"}

// plainKustomization are the fields of a kustomization that only list files, which are read too.
var plainKustomization = []string{"apiVersion", "kind", "metadata", "resources", "bases"}

// builtElsewhere are kinds of which other programs make the objects that are read, and what to do.
var builtElsewhere = map[schema.GroupKind]string{
	{Group: "performance.openshift.io", Kind: "PerformanceProfile"}:       "OpenShift makes MachineConfigs and a KubeletConfig of it: read those of a dump of the cluster",
	{Group: "tuned.openshift.io", Kind: "Tuned"}:                          "OpenShift makes a MachineConfig of its kernel arguments only: write the rest as files, such as /etc/sysctl.d/*.conf, in a MachineConfig",
	{Group: "ran.openshift.io", Kind: "PolicyGenTemplate"}:                "it names other files: build it, and read the result",
	{Group: "policy.open-cluster-management.io", Kind: "PolicyGenerator"}: "it names other files: build it, and read the result",
	{Group: kustomizationKind.Group, Kind: "Component"}:                   "it is a part of a kustomization: build that with kubectl kustomize, and read the result",
}

// lostElsewhere are kinds of OpenShift of which hosts lose the effect, and what to do instead.
var lostElsewhere = map[schema.GroupKind]string{
	{Group: openShiftConfig, Kind: "ClusterImagePolicy"}: unverified,
	{Group: openShiftConfig, Kind: "ImagePolicy"}:        unverified,
	{Group: openShiftConfig, Kind: "CRIOCredentialProviderConfig"}: "hosts pull images without these credentials: install a credential provider in the image of the hosts, " +
		"and set --image-credential-provider-config and --image-credential-provider-bin-dir in KUBELET_EXTRA_ARGS there",
	{Group: OpenShift.Group, Kind: "PinnedImageSet"}: "hosts pull these images when they need them: write a unit that pulls them with crictl",
	{Group: OpenShift.Group, Kind: "MachineOSConfig"}: "no image is built from it: build it with another program, and set osImageURL in a MachineConfig for hosts with rpm-ostree, " +
		"or deploy it to new hosts",
}

// VerifyElsewhere is where signatures of images can be verified for hosts without CRI-O.
const VerifyElsewhere = "verify them in the API server, with an admission webhook such as the policy-controller of sigstore"

const (
	openShiftConfig = "config.openshift.io"
	unverified      = "hosts run these images without a verified signature: for CRI-O, write /etc/containers/policy.json and /etc/containers/registries.d in a MachineConfig; " +
		"for containerd, " + VerifyElsewhere
)

// noteIgnored mentions an object of a kind that is not read, and each object in it that would be read by itself.
func (o *Objects) noteIgnored(kind schema.GroupVersionKind, name string, at place, raw []byte) error {
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return err
	}
	if kind.GroupKind() == kustomizationKind {
		return o.noteKustomization(object, at)
	}
	severity, why := "note", ""
	if instead, isLost := lostElsewhere[kind.GroupKind()]; isLost {
		severity, why = "warning", ": "+instead
	}
	if reason, isBuilt := builtElsewhere[kind.GroupKind()]; isBuilt {
		why = ": " + reason
	}
	fmt.Fprintf(o.notes, "%s: %s: %s %q of %s is ignored%s\n", severity, at.of("metadata"), kind.Kind, name, kind.GroupVersion(), why)
	delete(object, "metadata") // with the object again, as kubectl applied it
	delete(object, "kind")     // it is not contained in itself
	o.eachContained(object, "", func(path, contained string) {
		fmt.Fprintf(o.notes, "warning: %v\n", at.of(path).errorf("%s %q: %s: %s in it is not read: move it to a file of its own", kind.Kind, name, path, contained))
	})
	return nil
}

// isKustomization reports whether a file is that of a kustomization by its name: its kind may be left out.
func isKustomization(at place) bool {
	base := filepath.Base(at.file)
	return strings.TrimSuffix(base, filepath.Ext(base)) == "kustomization"
}

// noteKustomization warns of what a kustomization does with the files that it lists: they are read as they are.
func (o *Objects) noteKustomization(object map[string]any, at place) error {
	maps.DeleteFunc(object, func(field string, _ any) bool { return slices.Contains(plainKustomization, field) })
	fields := slices.Sorted(maps.Keys(object))
	if len(fields) == 0 {
		_, err := fmt.Fprintf(o.notes, "note: %s: %s is not built: the files that it lists are read if they are named\n", at.of(""), kustomizationKind.Kind)
		return err
	}
	_, err := fmt.Fprintf(o.notes, "warning: %v\n", at.of(fields[0]).errorf("%s: it is not built, and its %s have no effect: build it with kubectl kustomize %s, and read the result",
		kustomizationKind.Kind, strings.Join(fields, ", "), filepath.Dir(at.file)))
	return err
}

// eachContained calls a function with the path, and the kind and name, of each object in a value, also in a text
// in YAML.
func (o *Objects) eachContained(value any, path string, found func(path, contained string)) {
	switch value := value.(type) {
	case map[string]any:
		if name := o.nameOfRead(value); name != "" {
			found(path, name)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			step := "." + key
			if strings.ContainsAny(key, "./") {
				step = "[" + key + "]"
			}
			o.eachContained(value[key], strings.TrimPrefix(path+step, "."), found)
		}
	case []any:
		for i, item := range value {
			o.eachContained(item, fmt.Sprintf("%s[%d]", path, i), found)
		}
	case string:
		if !strings.Contains(value, "kind") || !strings.Contains(value, "apiVersion") {
			return
		}
		for document := range strings.SplitSeq("\n"+value, "\n---") {
			var object map[string]any
			if utilyaml.Unmarshal([]byte(document), &object) == nil {
				o.eachContained(object, path, func(_, contained string) { found(path, contained) })
			}
		}
	}
}

// nameOfRead returns the kind and name of an object if it is of a kind that is read, and not only a reference to one.
func (o *Objects) nameOfRead(object map[string]any) string {
	version, _ := object["apiVersion"].(string)
	name, _ := object["kind"].(string)
	kind := schema.FromAPIVersionAndKind(version, name)
	metadata, hasMetadata := object["metadata"].(map[string]any)
	_, hasSpec := object["spec"]
	if !hasMetadata && !hasSpec || !slices.Contains(namedKinds, kind) && !slices.Contains(SettingsKinds, kind) {
		return ""
	}
	of, _ := metadata["name"].(string)
	return fmt.Sprintf("%s %q", name, of)
}
