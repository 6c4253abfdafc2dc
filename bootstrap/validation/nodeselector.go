package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// validateSelectorLabels refuses a node selector that requires labels which Poolboot sets. The rules for node.labels
// are in the CRD.
func validateSelectorLabels(labels map[string]string, role string, path *field.Path) (errs field.ErrorList) {
	if _, ok := labels[poolv1.NodeMetal3UUIDLabel]; ok {
		errs = append(errs, field.Forbidden(path.Key(poolv1.NodeMetal3UUIDLabel), "Poolboot sets it to the UID of the BareMetalHost of the Node: leave it out"))
	}
	if value, ok := labels[poolv1.NodePoolLabel]; ok && value != role {
		errs = append(errs, field.Forbidden(path.Key(poolv1.NodePoolLabel), "Poolboot sets it to the pool role of the Node: leave it out"))
	}
	return errs
}
