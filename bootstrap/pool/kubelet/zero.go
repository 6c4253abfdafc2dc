package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// DropZeroValues removes the fields of a KubeletConfiguration whose zero value means the same as no value, as OpenShift
// does before it merges a KubeletConfig over its own: "", 0, 0s, false, and empty lists and objects, in fields that are
// not pointers in the Kubernetes type. Tools that write the complete type write them, such as the Node Tuning Operator.
// Fields that are pointers are kept, because there a zero value is a decision. It returns the paths of the removed
// fields.
func DropZeroValues(fields map[string]any) []string {
	return dropZeroValues(fields, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "")
}

func dropZeroValues(fields map[string]any, of reflect.Type, prefix string) (dropped []string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		at, ok := fieldNamed(of, name)
		if !ok {
			continue
		}
		var within []string
		if inner, isObject := fields[name].(map[string]any); isObject && at.Type.Kind() == reflect.Struct {
			within = dropZeroValues(inner, at.Type, prefix+name+".")
		}
		if at.Type.Kind() != reflect.Pointer && isZero(fields[name], at.Type) {
			delete(fields, name)
			within = []string{prefix + name}
		}
		dropped = append(dropped, within...)
	}
	return dropped
}

// fieldNamed returns the field of a struct with a name in JSON.
func fieldNamed(of reflect.Type, name string) (reflect.StructField, bool) {
	for _, at := range reflect.VisibleFields(of) {
		if tag, _, _ := strings.Cut(at.Tag.Get("json"), ","); tag == name {
			return at, true
		}
	}
	return reflect.StructField{}, false
}

// isZero reports whether a value in JSON is the zero value of a type, or an empty list or object. A value of another
// type is not.
func isZero(value any, of reflect.Type) bool {
	raw, err := json.Marshal(value)
	if err != nil {
		return false
	}
	decoded := reflect.New(of)
	if json.Unmarshal(raw, decoded.Interface()) != nil {
		return false
	}
	got := decoded.Elem()
	if duration, ok := decoded.Interface().(*logsapi.TimeOrMetaDuration); ok {
		return duration.Duration.Duration == 0
	}
	if quantity, ok := decoded.Interface().(interface{ IsZero() bool }); ok {
		return quantity.IsZero()
	}
	if got.Kind() == reflect.Slice || got.Kind() == reflect.Map {
		return got.Len() == 0
	}
	return got.IsZero()
}

// defaultedFields are the numbers, durations and lists in which the kubelet reads a zero value as its default, and not
// as zero or none: those of SetDefaults_KubeletConfiguration that are not pointers and that a pool can set, and the
// lists for TLS and DNS. In text, the kubelet always reads "" as no value: see erases.
var defaultedFields = []string{
	"clusterDNS", "cpuManagerReconcilePeriod", "eventBurst", "evictionPressureTransitionPeriod", "fileCheckFrequency",
	"httpCheckFrequency", "imageMinimumGCAge", "kubeAPIBurst", "logging.flushFrequency", "maxOpenFiles", "maxPods",
	"nodeLeaseDurationSeconds", "nodeStatusReportFrequency", "nodeStatusUpdateFrequency", "port", "registryBurst",
	"runtimeRequestTimeout", "streamingConnectionIdleTimeout", "syncFrequency", "tlsCipherSuites", "tlsCurvePreferences",
	"volumeStatsAggPeriod",
}

// erases reports whether a value of a field means that the field has no value. An empty object does not: it is merged
// by key. A staticPodPath of "" disables static Pods.
func erases(path string, value any, of reflect.Type) bool {
	isText := of.Kind() == reflect.String && path != "staticPodPath"
	return (isText || slices.Contains(defaultedFields, path)) && isZero(value, of)
}

// DropUnset removes the values of a KubeletConfiguration that erase a value below it when it is merged: null, and zero
// values that the kubelet reads as no value. It returns the paths of these fields.
func DropUnset(fields map[string]any) []string {
	return dropUnset(fields, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "")
}

func dropUnset(fields map[string]any, of reflect.Type, prefix string) (dropped []string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		in, known := fieldNamed(of, name)
		if !known {
			continue
		}
		path := prefix + name
		if inner, isObject := fields[name].(map[string]any); isObject && in.Type.Kind() == reflect.Struct {
			dropped = append(dropped, dropUnset(inner, in.Type, path+".")...)
		} else if fields[name] == nil || erases(path, fields[name], in.Type) {
			dropped = append(dropped, path)
			delete(fields, name)
		}
	}
	return dropped
}

// CheckOver returns an error for each zero value that erases the value that a section inherits: the kubelet would use
// its default. An empty containerRuntimeEndpoint always erases one, because kubeadm sets it for each host: a host with
// CRI-O would lose its container runtime.
func (s Section) CheckOver(base Section, at *field.Path) field.ErrorList {
	return checkOver(s.fields, base.fields, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "", at)
}

func checkOver(fields, base map[string]any, of reflect.Type, prefix string, at *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		in, known := fieldNamed(of, name)
		if !known {
			continue // a key of a map
		}
		value, path, at := fields[name], prefix+name, at.Child(name)
		inherited, has := base[name]
		if inner, isObject := value.(map[string]any); isObject && in.Type.Kind() == reflect.Struct {
			innerBase, _ := inherited.(map[string]any)
			errs = append(errs, checkOver(inner, innerBase, in.Type, path+".", at)...)
			continue
		}
		switch {
		case !erases(path, value, in.Type):
		case path == "containerRuntimeEndpoint":
			errs = append(errs, field.Invalid(at, value, "would erase the endpoint that the host has: remove it, or set an endpoint"))
		case has && !isZero(inherited, in.Type):
			if _, isList := inherited.([]any); isList {
				inherited = "the list"
			}
			errs = append(errs, field.Invalid(at, value,
				fmt.Sprintf("would erase %v, which the worker pool sets, and the kubelet would use its default: remove it, or set a value", inherited)))
		}
	}
	return errs
}
