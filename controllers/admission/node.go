package admission

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// validateNodeLabels checks labels that are to be put on the Nodes of a pool; role may be empty when it is not known.
func validateNodeLabels(nodeLabels map[string]string, role string, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(nodeLabels, path)
	for _, key := range slices.Sorted(maps.Keys(nodeLabels)) {
		switch {
		case key == poolv1.NodeMetal3UUIDLabel:
			errs = append(errs, field.Forbidden(path.Key(key), "it holds the UID of the Node's BareMetalHost and is set by Poolboot: leave it out"))
		case key == poolv1.NodePoolLabel && nodeLabels[key] != role:
			errs = append(errs, field.Forbidden(path.Key(key), "it holds the role of the Node's pool and is set by Poolboot: leave it out"))
		}
	}
	return errs
}

// ownTaints are put on every Node and taken away again by Poolboot and Cluster API themselves.
var ownTaints = []string{poolv1.NodeUnassignedTaint, clusterv1.NodeUninitializedTaint.Key, clusterv1.NodeOutdatedRevisionTaint.Key}

// validateTaints checks taints that are to be put on Nodes, by the rules of the API server and of kubelets.
func validateTaints(taints []corev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	seen := map[corev1.Taint]bool{}
	for i, taint := range taints {
		at := path.Index(i)
		for _, problem := range validation.IsQualifiedName(taint.Key) {
			errs = append(errs, field.Invalid(at.Child("key"), taint.Key, problem))
		}
		if slices.Contains(ownTaints, taint.Key) {
			errs = append(errs, field.Forbidden(at.Child("key"), taint.Key+" is put on Nodes and taken away by Poolboot or Cluster API: leave it out"))
		}
		for _, problem := range validation.IsValidLabelValue(taint.Value) {
			errs = append(errs, field.Invalid(at.Child("value"), taint.Value, problem))
		}
		if !slices.Contains(effects, taint.Effect) {
			errs = append(errs, field.NotSupported(at.Child("effect"), taint.Effect, effects))
		}
		if taint.TimeAdded != nil {
			errs = append(errs, field.Forbidden(at.Child("timeAdded"), "it is set when the taint is put on a Node: leave it out"))
		}
		key := corev1.Taint{Key: taint.Key, Effect: taint.Effect}
		if seen[key] {
			errs = append(errs, field.Duplicate(at, taint.Key+":"+string(taint.Effect)))
		}
		seen[key] = true
	}
	return errs
}
