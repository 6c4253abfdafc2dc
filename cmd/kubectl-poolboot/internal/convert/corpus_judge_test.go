package convert

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"
)

// Outcomes of a document of the corpus.
const (
	outcomeAccepted = "accepted"
	outcomeMoved    = "accepted, with a command that is moved to the pool"
	outcomeLeftOut  = "left out with a reason"
	outcomeRefused  = "refused"
)

// corpusPool is the name of a pool that the KubeletConfigs and ContainerRuntimeConfigs of the corpus select.
const corpusPool = "corpus"

// poolFor returns a pool with the labels that an object selects, as YAML.
func poolFor(object unstructured.Unstructured) string {
	labels, _, _ := unstructured.NestedMap(object.Object, "spec", "machineConfigPoolSelector", "matchLabels")
	if labels == nil {
		labels = map[string]any{}
	}
	for _, requirement := range itemsAt(object.Object, "spec", "machineConfigPoolSelector", "matchExpressions") {
		if values, _ := requirement["values"].([]any); len(values) > 0 && requirement["operator"] == "In" {
			labels[fmt.Sprint(requirement["key"])] = values[0]
		} else if requirement["operator"] == "Exists" {
			labels[fmt.Sprint(requirement["key"])] = ""
		}
	}
	text, err := yaml.Marshal(map[string]any{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
		"metadata": map[string]any{"name": corpusPool, "labels": labels},
		"spec": map[string]any{
			"machineConfigSelector": map[string]any{"matchLabels": map[string]any{input.RoleLabel: corpusPool}},
			"nodeSelector":          map[string]any{"matchLabels": map[string]any{"node-role.kubernetes.io/" + corpusPool: ""}}}})
	utilruntime.Must(err)
	return "\n---\n" + string(text)
}

// judge returns what became of an object, and the fields that were lost silently.
func judge(object unstructured.Unstructured, code int, out, errOut string) (outcome string, lost []string) {
	name := fmt.Sprintf("%s %q", object.GetKind(), object.GetName())
	switch {
	case code != 0 && strings.Contains(errOut, "refused: "):
		return outcomeRefused, nil
	case strings.Contains(errOut, name+" is left out: "):
		return outcomeLeftOut, nil
	}
	isNamed := func(path string) bool {
		return slices.ContainsFunc(strings.Split(errOut, "\n"), func(line string) bool {
			_, after, has := strings.Cut(line, name)
			return has && strings.Contains(after, path)
		})
	}
	switch object.GetKind() {
	case "MachineConfiguration":
		return outcomeAccepted, nil
	case "KubeletConfig":
		return outcomeAccepted, lostKubeletFields(object, find(out, "MachineConfigPool", corpusPool), isNamed)
	case "ContainerRuntimeConfig":
		return outcomeAccepted, lostRuntimeSettings(object, out, isNamed)
	case "ImageDigestMirrorSet", "ImageTagMirrorSet", "ImageContentSourcePolicy":
		return outcomeAccepted, lostMirrors(object, out, isNamed)
	}
	converted := find(out, object.GetKind(), object.GetName())
	if converted == nil {
		return outcomeAccepted, []string{"all"}
	}
	outcome = outcomeAccepted
	before, after := leaves(object.Object["spec"], "spec"), leaves(converted.Object["spec"], "spec")
	if regexp.MustCompile(regexp.QuoteMeta(name)+": [^ ]+: ExecStart of the drop-in").MatchString(errOut) || strings.Contains(errOut, "set spec.kubelet.wrapper: [") {
		outcome = outcomeMoved
	}
	for path, value := range before {
		isDropin := strings.HasPrefix(path, "spec.config.systemd.units[") && strings.HasSuffix(path, ".contents") && strings.Contains(path, ".dropins[")
		top := topOf(strings.TrimPrefix(path, "spec."))
		switch {
		case reflect.DeepEqual(after[path], value), outcome == outcomeMoved && isDropin,
			top != "config" && isNamed("spec."+top), isNamed(fmt.Sprintf("%v becomes", value)):
		default:
			lost = append(lost, path)
		}
	}
	return outcome, lost
}

// find returns the object of a kind with a name in YAML documents, or nil.
func find(out, kind, name string) *unstructured.Unstructured {
	for document := range strings.SplitSeq(out, "\n---\n") {
		var object unstructured.Unstructured
		if yaml.Unmarshal([]byte(document), &object.Object) == nil && object.GetKind() == kind && object.GetName() == name {
			return &object
		}
	}
	return nil
}

// leaves returns the values of a document by their paths, without those that mean nothing: null, zero, false and empty.
func leaves(part any, path string) map[string]any {
	found := map[string]any{}
	switch part := part.(type) {
	case map[string]any:
		for key, value := range part {
			for at, leaf := range leaves(value, path+"."+key) {
				found[at] = leaf
			}
		}
	case []any:
		for i, value := range part {
			for at, leaf := range leaves(value, fmt.Sprintf("%s[%d]", path, i)) {
				found[at] = leaf
			}
		}
	default:
		if !slices.Contains([]any{nil, "", "0s", "0", false, float64(0), int64(0)}, part) {
			found[path] = part
		}
	}
	return found
}

// topOf returns the first name in a path.
func topOf(path string) string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })[0]
}

func lostKubeletFields(object unstructured.Unstructured, pool *unstructured.Unstructured, isNamed func(string) bool) (lost []string) {
	if pool == nil {
		return []string{"all"}
	}
	section, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "kubeletConfig")
	converted, _, _ := unstructured.NestedFieldNoCopy(pool.Object, "spec", "kubelet", "configuration")
	after := leaves(converted, "kubeletConfig")
	for path, value := range leaves(section, "kubeletConfig") {
		top := topOf(strings.TrimPrefix(path, "kubeletConfig."))
		if !reflect.DeepEqual(after[path], value) && !isNamed("spec.kubeletConfig."+top) {
			lost = append(lost, path)
		}
	}
	spec, _ := object.Object["spec"].(map[string]any)
	for field, has := range map[string]bool{
		"logLevel":           after["kubeletConfig.logging.verbosity"] != nil,
		"tlsSecurityProfile": after["kubeletConfig.tlsMinVersion"] != nil,
	} {
		if len(leaves(spec[field], field)) > 0 && !has && !isNamed("spec."+field) {
			lost = append(lost, field)
		}
	}
	if reserved, has, _ := unstructured.NestedBool(pool.Object, "spec", "kubelet", "autoSizingReserved"); spec["autoSizingReserved"] != nil && (!has || reserved != spec["autoSizingReserved"]) {
		lost = append(lost, "autoSizingReserved")
	}
	return lost
}

func lostRuntimeSettings(object unstructured.Unstructured, out string, isNamed func(string) bool) (lost []string) {
	settings, _, _ := unstructured.NestedMap(object.Object, "spec", "containerRuntimeConfig")
	for path, value := range leaves(settings, "containerRuntimeConfig") {
		name := topOf(strings.TrimPrefix(path, "containerRuntimeConfig."))
		want := map[string]string{"pidsLimit": "pids_limit = %v", "logLevel": "log_level = '%v'", "logSizeMax": "log_size_max = %v",
			"overlaySize": "size = '%v'", "defaultRuntime": "default_runtime = '%v'"}[name]
		if quantity, err := resource.ParseQuantity(fmt.Sprint(value)); err == nil {
			value = quantity.Value()
		}
		if (want == "" || !strings.Contains(out, fmt.Sprintf(want, value))) && !isNamed("spec.containerRuntimeConfig."+name+" is left out") {
			lost = append(lost, path)
		}
	}
	return lost
}

func lostMirrors(object unstructured.Unstructured, out string, isNamed func(string) bool) (lost []string) {
	for path, value := range leaves(object.Object["spec"], "spec") {
		text := fmt.Sprint(value)
		if text == allowContactingSource || text == neverContactSource && strings.Contains(out, "blocked = true") {
			continue
		}
		if !strings.Contains(out, "'"+text+"'") && !isNamed(text) && !isNamed("spec."+topOf(strings.TrimPrefix(path, "spec."))+" is left out") {
			lost = append(lost, path)
		}
	}
	return lost
}

// lostByButane returns the values of Butane's own translation that are not in the result of convert.
func lostByButane(document, out string) (lost []string) {
	raw, _, err := butane.TranslateBytes([]byte(document), common.TranslateBytesOptions{Raw: true,
		TranslateOptions: common.TranslateOptions{NoResourceAutoCompression: true}})
	if err != nil {
		return []string{err.Error()}
	}
	var theirs, ours map[string]any
	if err := yaml.Unmarshal(raw, &theirs); err != nil {
		return []string{err.Error()}
	}
	if err := yaml.Unmarshal([]byte(out), &ours); err != nil {
		return []string{err.Error()}
	}
	if spec, isMachineConfig := ours["spec"].(map[string]any); isMachineConfig {
		ours, _ = spec["config"].(map[string]any)
	}
	after := leaves(ours, "")
	for path, value := range leaves(theirs, "") {
		if path != ".ignition.version" && !reflect.DeepEqual(after[path], value) {
			lost = append(lost, path)
		}
	}
	return lost
}
