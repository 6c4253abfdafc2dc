package metal3

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// uuidLabel on a Node holds the UID of its BareMetalHost.
const uuidLabel = "metal3.io/uuid"

// adoptNode looks for the Node that joined from a host and, if there is one, marks the Metal3Machine as provisioned. A Node
// is found by its provider ID once the Metal3Machine has one, before that by the label with the host's UID. A Node without
// provider ID gets it; one with another is an error.
func (r *machineReconciler) adoptNode(ctx context.Context, s *machineScope, host *bmov1alpha1.BareMetalHost) error {
	providerID := fmt.Sprintf("metal3://%s/%s/%s", s.metal3Machine.Namespace, host.Name, s.metal3Machine.Name)
	workload, err := r.workload(ctx, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return fmt.Errorf("error retrieving nodes: %w: %w", err, errRetry)
	}
	var labelled []*corev1.Node
	for i := range nodes.Items {
		node := &nodes.Items[i]
		if s.metal3Machine.Spec.ProviderID == providerID && node.Spec.ProviderID == providerID {
			labelled = []*corev1.Node{node}
			break
		}
		if node.Labels[uuidLabel] == string(host.UID) {
			labelled = append(labelled, node)
		}
	}
	switch {
	case len(labelled) == 0:
		return fmt.Errorf("could not find node with label %s=%s: %w", uuidLabel, host.UID, errRetry)
	case len(labelled) > 1:
		return fmt.Errorf("%d nodes have the label %s=%s", len(labelled), uuidLabel, host.UID)
	}
	node := labelled[0]
	switch node.Spec.ProviderID {
	case providerID:
	case "":
		before := node.DeepCopy()
		node.Spec.ProviderID = providerID
		if err := workload.Patch(ctx, node, client.StrategicMergeFrom(before)); err != nil {
			return fmt.Errorf("set providerID of node %s: %w", node.Name, err)
		}
	default:
		return fmt.Errorf("node %s uses unsupported providerID %s, not %s", node.Name, node.Spec.ProviderID, providerID)
	}
	s.metal3Machine.Spec.ProviderID = providerID
	s.metal3Machine.Status.Initialization.Provisioned = ptr.To(true)
	return nil
}

// workload returns a client for a cluster, made anew at each call from its kubeconfig Secret, as the real provider does.
func (r *machineReconciler) workload(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	content, err := kubeconfig.FromSecret(ctx, r.Client, cluster)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Cluster %s: %w", cluster, err)
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Cluster %s: %w", cluster, err)
	}
	cfg.UserAgent = "metal3-simulator"
	workload, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("reach Cluster %s: %w: %w", cluster, err, errRetry)
	}
	return workload, nil
}
