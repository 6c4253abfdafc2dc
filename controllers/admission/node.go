package admission

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// validateSelected refuses labels that Poolboot sets by itself among those that a Node has because a pool's selector
// asks for them. What nodeLabels may hold is in the CRD.
func validateSelected(labels map[string]string, role string, path *field.Path) (errs field.ErrorList) {
	if _, has := labels[poolv1.NodeMetal3UUIDLabel]; has {
		errs = append(errs, field.Forbidden(path.Key(poolv1.NodeMetal3UUIDLabel), "it holds the UID of the Node's BareMetalHost and is set by Poolboot: leave it out"))
	}
	if of, has := labels[poolv1.NodePoolLabel]; has && of != role {
		errs = append(errs, field.Forbidden(path.Key(poolv1.NodePoolLabel), "it holds the role of the Node's pool and is set by Poolboot: leave it out"))
	}
	return errs
}
