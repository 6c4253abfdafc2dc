package convert

import (
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

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
