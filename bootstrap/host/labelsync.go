package host

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// LabelSyncAnnotation is the annotation of a Metal3Cluster with the prefixes of labels that Metal3 syncs, separated by
// commas. Of these prefixes, it sets the labels of each Node to those of its BareMetalHost, every minute: it removes
// other labels and changes other values.
const LabelSyncAnnotation = "metal3.io/metal3-label-sync-prefixes"

// LabelSync is the label sync of Metal3 for the Nodes of a Cluster.
type LabelSync struct {
	// Metal3Cluster is the Metal3Cluster of the Cluster, as namespace/name.
	Metal3Cluster string
	// Prefixes are the prefixes of the labels that are synced.
	Prefixes map[string]bool
}

// LabelSyncOf returns the label sync of a Cluster. It has no prefixes if nothing is synced, or if the Cluster is not
// one of Metal3.
func LabelSyncOf(ctx context.Context, c client.Reader, cluster *clusterv1.Cluster) (LabelSync, error) {
	ref := cluster.Spec.InfrastructureRef
	if ref.Kind != "Metal3Cluster" || ref.APIGroup != metal3MachineKind.Group {
		return LabelSync{}, nil
	}
	metal3Cluster, err := external.GetObjectFromContractVersionedRef(ctx, c, ref, cluster.Namespace)
	if err != nil {
		return LabelSync{}, fmt.Errorf("Metal3Cluster %s: %w", klog.KRef(cluster.Namespace, ref.Name), err)
	}
	sync := LabelSync{Metal3Cluster: klog.KObj(metal3Cluster).String(), Prefixes: map[string]bool{}}
	for prefix := range strings.SplitSeq(metal3Cluster.GetAnnotations()[LabelSyncAnnotation], ",") {
		if prefix = strings.TrimSpace(prefix); prefix != "" {
			sync.Prefixes[prefix] = true
		}
	}
	return sync, nil
}

// PrefixOf returns the prefix of a label if labels with that prefix are synced, and "" otherwise.
func (s LabelSync) PrefixOf(key string) string {
	prefix, _, found := strings.Cut(key, "/")
	if !found || !s.Prefixes[prefix] {
		return ""
	}
	return prefix
}
