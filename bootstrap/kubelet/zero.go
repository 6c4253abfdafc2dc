package kubelet

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// DropZeroValues removes the fields of a KubeletConfiguration whose zero value means the same as no value, as OpenShift
// does before it merges a KubeletConfig over its own: "", 0, 0s, false, and empty lists and objects, in fields that are
// not pointers in the Kubernetes type. Tools that write the complete type write them, such as the Node Tuning Operator.
// Fields that are pointers are kept, because there a zero value is a decision.
func DropZeroValues(fields map[string]any) {
	dropZeroValues(fields, reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]())
}

func dropZeroValues(fields map[string]any, of reflect.Type) {
	for name, value := range fields {
		at, ok := fieldNamed(of, name)
		if !ok {
			continue
		}
		if inner, isObject := value.(map[string]any); isObject && at.Type.Kind() == reflect.Struct {
			dropZeroValues(inner, at.Type)
		}
		if at.Type.Kind() != reflect.Pointer && isZero(fields[name], at.Type) {
			delete(fields, name)
		}
	}
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
	if quantity, ok := decoded.Interface().(interface{ IsZero() bool }); ok {
		return quantity.IsZero()
	}
	if got.Kind() == reflect.Slice || got.Kind() == reflect.Map {
		return got.Len() == 0
	}
	return got.IsZero()
}

// defaultedFields are the fields in which the kubelet reads a zero value as its default, and not as zero: those of
// SetDefaults_KubeletConfiguration that are not pointers, and that a pool can set.
var defaultedFields = []string{
	"configMapAndSecretChangeDetectionStrategy", "containerLogMaxSize", "containerRuntimeEndpoint", "contentType",
	"cpuManagerPolicy", "cpuManagerReconcilePeriod", "eventBurst", "evictionPressureTransitionPeriod", "fileCheckFrequency",
	"hairpinMode", "httpCheckFrequency", "imageMinimumGCAge", "kubeAPIBurst", "maxOpenFiles", "maxPods", "memoryManagerPolicy",
	"nodeLeaseDurationSeconds", "nodeStatusReportFrequency", "nodeStatusUpdateFrequency", "port", "registryBurst",
	"runtimeRequestTimeout", "streamingConnectionIdleTimeout", "syncFrequency", "topologyManagerPolicy", "topologyManagerScope",
	"volumePluginDir", "volumeStatsAggPeriod",
}

// CheckOver returns an error for each zero value that erases the value that a section inherits: the kubelet would use
// its default. An empty containerRuntimeEndpoint always erases one, because kubeadm sets it for each host: a host with
// CRI-O would lose its container runtime.
func (s Section) CheckOver(base Section, at *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		in, _ := fieldNamed(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), name)
		inherited, has := base.fields[name]
		switch {
		case !slices.Contains(defaultedFields, name) || !isZero(s.fields[name], in.Type):
		case name == "containerRuntimeEndpoint":
			errs = append(errs, field.Invalid(at.Child(name), s.fields[name], "would erase the endpoint that the host has: remove it, or set an endpoint"))
		case has && !isZero(inherited, in.Type):
			errs = append(errs, field.Invalid(at.Child(name), s.fields[name],
				fmt.Sprintf("would erase %v, which the worker pool sets, and the kubelet would use its default: remove it, or set a value", inherited)))
		}
	}
	return errs
}
