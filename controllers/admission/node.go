package admission

import (
	"maps"
	"slices"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
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

// validateTaints refuses the taints that are not a user's to set. The rest of a taint's rules are in the CRD.
func validateTaints(taints []nodev1.Taint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, taint := range taints {
		if slices.Contains(ownTaints, taint.Key) {
			errs = append(errs, field.Forbidden(path.Index(i).Child("key"), taint.Key+" is put on Nodes and taken away by Poolboot or Cluster API: leave it out"))
		}
	}
	return errs
}
