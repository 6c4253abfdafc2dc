package convert

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// editIgnition lets a function change a MachineConfig's Ignition as it was written, in any spec version. The function
// reports whether it changed something. It sees keys as Ignition's parser does, which ignores their case. Malformed
// Ignition is not changed: checkConfig refuses it.
func editIgnition(config *poolv1.MachineConfig, edit func(document map[string]any) bool) {
	if config.Spec.Config == nil {
		return
	}
	var document map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(config.Spec.Config.Raw, &document); err != nil {
		return
	}
	correctCase(document)
	if !edit(document) {
		return
	}
	raw, err := json.Marshal(document)
	utilruntime.Must(err)
	config.Spec.Config = &runtime.RawExtension{Raw: raw}
}

// editedKeys are the keys in Ignition that functions for editIgnition use.
var editedKeys = []string{"storage", "files", "directories", "links", "path", "contents", "source", "compression", "systemd", "units", "name", "dropins"}

// correctCase gives keys in Ignition the case of editedKeys. Keys that differ only in case are kept, and refused by
// checkConfig.
func correctCase(part any) {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			correctCase(item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(part)) {
			value := part[key]
			correctCase(value)
			i := slices.IndexFunc(editedKeys, func(known string) bool { return strings.EqualFold(known, key) })
			if i < 0 {
				continue
			}
			if _, isTwice := part[editedKeys[i]]; !isTwice {
				delete(part, key)
				part[editedKeys[i]] = value
			}
		}
	}
}

// itemsAt returns the objects of a list in a document, each at its index: nil stands for an item that is no object.
func itemsAt(document map[string]any, path ...string) (items []map[string]any) {
	list, _, _ := unstructured.NestedFieldNoCopy(document, path...)
	values, _ := list.([]any)
	for _, value := range values {
		item, _ := value.(map[string]any)
		items = append(items, item)
	}
	return items
}

// editDropins lets a function change the contents of each drop-in of a MachineConfig. It gets the path of the contents.
func editDropins(config *poolv1.MachineConfig, edit func(at, unit, dropin, contents string) string) {
	editIgnition(config, func(document map[string]any) (changed bool) {
		for i, unit := range itemsAt(document, "systemd", "units") {
			unitName, _ := unit["name"].(string)
			for j, dropin := range itemsAt(unit, "dropins") {
				name, _ := dropin["name"].(string)
				before, _ := dropin["contents"].(string)
				at := fmt.Sprintf("spec.config.systemd.units[%d].dropins[%d].contents", i, j)
				if after := edit(at, unitName, name, before); after != before {
					dropin["contents"] = after
					changed = true
				}
			}
		}
		return changed
	})
}

// openShiftKubeletDirectory is the directory for drop-ins of the kubelet's configuration on OpenShift's hosts.
const openShiftKubeletDirectory = "/etc/openshift/kubelet.conf.d"

// moveKubeletDropins moves drop-ins of the kubelet's configuration from OpenShift's directory to that of the kubelet,
// with links and directories there: checkConfig refuses what must not be in the kubelet's.
func moveKubeletDropins(config *poolv1.MachineConfig, remark func(string, ...any)) {
	editIgnition(config, func(document map[string]any) (changed bool) {
		for _, kind := range []string{"files", "directories", "links"} {
			for i, entry := range itemsAt(document, "storage", kind) {
				was, _ := entry["path"].(string)
				name, isBelow := strings.CutPrefix(path.Clean(was)+"/", openShiftKubeletDirectory+"/")
				if !isBelow {
					continue
				}
				entry["path"] = path.Join(ignition.KubeletConfigDirectory, name)
				remark("note: MachineConfig %q: spec.config.storage.%s[%d]: %s becomes %s, which the kubelet reads", config.Name, kind, i, was, entry["path"])
				changed = true
			}
		}
		return changed
	})
}

// cleanKubeletDropins removes the values from drop-ins of the kubelet's configuration that would erase those of other
// drop-ins, and returns what is wrong with the remaining ones.
func cleanKubeletDropins(config *poolv1.MachineConfig, remark func(string, ...any)) (errs field.ErrorList) {
	editIgnition(config, func(document map[string]any) (changed bool) {
		for i, file := range itemsAt(document, "storage", "files") {
			name, _ := file["path"].(string)
			if !strings.HasPrefix(path.Clean(name), ignition.KubeletConfigDirectory+"/") || path.Ext(name) != ".conf" {
				continue // the kubelet does not read it
			}
			at := fmt.Sprintf("spec.config.storage.files[%d]", i)
			dropped, wrong := cleanKubeletDropin(file, func(severity, format string, args ...any) {
				remark("%s: MachineConfig %q: %s: %s: %s", severity, config.Name, at, name, fmt.Sprintf(format, args...))
			})
			changed = changed || dropped
			for _, err := range wrong {
				errs = append(errs, field.Invalid(field.NewPath(at), field.OmitValueType{}, fmt.Sprintf("%s: %s: %s", name, err.Field, input.DescribeField(err))))
			}
		}
		return changed
	})
	return errs
}

// cleanKubeletDropin removes the values from a drop-in that would erase others, and returns whether there are any. The
// errors name values with which the kubelet would not start.
func cleanKubeletDropin(file map[string]any, remark func(severity, format string, args ...any)) (changed bool, wrong field.ErrorList) {
	var fields map[string]any
	text, err := yaml.YAMLToJSON([]byte(contentsOf(file)))
	if err != nil || kjson.UnmarshalCaseSensitivePreserveInts(text, &fields) != nil || len(fields) == 0 {
		return false, nil // the checks of Ignition and the kubelet name it
	}
	if dropped := kubelet.DropUnset(fields); len(dropped) > 0 {
		remark("note", "without %s: an empty value means the default, and would erase the value of another drop-in", strings.Join(dropped, ", "))
		cleaned, err := yaml.Marshal(fields)
		utilruntime.Must(err) // it was read from JSON
		file["contents"] = map[string]any{"source": ignition.DataURL(cleaned)}
		changed = true
	}
	fields["apiVersion"], fields["kind"] = kubelet.APIVersion, kubelet.Kind // the checks of Ignition name others
	text, err = yaml.Marshal(fields)
	utilruntime.Must(err)
	text, err = yaml.YAMLToJSON(text)
	utilruntime.Must(err)
	section, errs := kubelet.Parse(text, nil)
	for _, err := range errs {
		isUnknown := err.Type == field.ErrorTypeInvalid && err.BadValue == (field.OmitValueType{})
		switch {
		case err.Type == field.ErrorTypeForbidden: // for the section of a pool only
		case isUnknown:
			remark("warning", "%s has no effect: %s", err.Field, err.Detail)
		default:
			wrong = append(wrong, err)
		}
	}
	return changed, append(wrong, section.CheckValues(nil)...)
}

// maxDropin limits the decompressed contents of a drop-in that are searched.
const maxDropin = 1 << 20

// contentsOf returns the contents of a file in Ignition of any spec version. Without valid contents in the document, it
// returns "": the checks refuse such a drop-in.
func contentsOf(file map[string]any) string {
	contents, _ := file["contents"].(map[string]any)
	source, _ := contents["source"].(string)
	compression, _ := contents["compression"].(string)
	text, _ := ignition.Contents(types.Resource{Source: &source, Compression: &compression}, maxDropin)
	return string(text)
}

// keepsNamespace matches the line of a unit that keeps a mount namespace, as units for telco hosts do.
var keepsNamespace = regexp.MustCompile(`^\s*ExecStart\s*=.*\bunshare\s.*--mount=`)

// sharesNetworkNamespaces makes the directory of network namespaces a mount that all mount namespaces share. Otherwise,
// ip(8) makes it one when it creates the first network namespace on the host, and this mount hides those of running
// Pods from the kubelet and the container runtime in the other mount namespace.
const sharesNetworkNamespaces = `ExecStartPre=/bin/sh -c "mkdir -p /run/netns; mountpoint -q /run/netns || mount --bind /run/netns /run/netns; mount --make-shared /run/netns"`

// shareNetworkNamespaces adds this to units that keep a mount namespace.
func shareNetworkNamespaces(config *poolv1.MachineConfig, remark func(string, ...any)) {
	editIgnition(config, func(document map[string]any) (changed bool) {
		for i, unit := range itemsAt(document, "systemd", "units") {
			contents, _ := unit["contents"].(string)
			lines := strings.Split(contents, "\n")
			at := slices.IndexFunc(lines, keepsNamespace.MatchString)
			if at < 0 || strings.Contains(contents, "/run/netns") {
				continue
			}
			unit["contents"] = strings.Join(slices.Insert(lines, at, sharesNetworkNamespaces), "\n")
			changed = true
			remark("note: MachineConfig %q: %s: %s first makes /run/netns a mount: otherwise, the first \"ip netns add\" on a host hides the network namespaces of its Pods from the kubelet",
				config.Name, fmt.Sprintf("spec.config.systemd.units[%d].contents", i), unit["name"])
		}
		return changed
	})
}
