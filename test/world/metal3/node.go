package metal3

import (
	"bytes"
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// workloadTimeout is the timeout of a request to a workload cluster. All Metal3Machines wait for it.
const workloadTimeout = 2 * time.Second

// uuidLabel is a label on a Node with the UID of its BareMetalHost.
const uuidLabel = "metal3.io/uuid"

// adoptNode finds the Node of a host and marks the Metal3Machine as provisioned. It finds the Node by the
// Metal3Machine's provider ID, or by the label with the host's UID. It sets a missing provider ID, and fails on a
// different one.
func (r *machineReconciler) adoptNode(ctx context.Context, s *machineScope, host *bmov1alpha1.BareMetalHost) error {
	providerID := fmt.Sprintf("metal3://%s/%s/%s", s.metal3Machine.Namespace, host.Name, s.metal3Machine.Name)
	workload, err := r.workloads.client(ctx, r.Client, client.ObjectKeyFromObject(s.cluster))
	if err != nil {
		return err
	}
	if s.metal3Machine.Spec.ProviderID == providerID {
		known, err := nodesWith(ctx, workload, providerID)
		if err != nil {
			return fmt.Errorf("error retrieving nodes: %w: %w", err, errRetry)
		}
		if len(known) > 0 {
			s.metal3Machine.Status.Initialization.Provisioned = ptr.To(true)
			return nil
		}
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes, client.MatchingLabels{uuidLabel: string(host.UID)}); err != nil {
		return fmt.Errorf("error retrieving nodes: %w: %w", err, errRetry)
	}
	switch {
	case len(nodes.Items) == 0:
		return fmt.Errorf("could not find node with label %s=%s: %w", uuidLabel, host.UID, errRetry)
	case len(nodes.Items) > 1:
		return fmt.Errorf("%d nodes have the label %s=%s", len(nodes.Items), uuidLabel, host.UID)
	}
	node := &nodes.Items[0]
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
	if !conditions.IsTrue(s.metal3Machine, infrav1.Metal3DataReadyCondition) {
		s.set(infrav1.Metal3DataReadyCondition, metav1.ConditionTrue, infrav1.SecretsSetExternallyReason, "")
	}
	return nil
}

// nodesWith returns the Node with a provider ID, or none.
func nodesWith(ctx context.Context, workload client.Client, providerID string) ([]corev1.Node, error) {
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		if nodes.Items[i].Spec.ProviderID == providerID {
			return nodes.Items[i : i+1], nil
		}
	}
	return nil, nil
}

// workloads are the clients of workload clusters, by Cluster. They are not safe for concurrent use: each reconciler has
// its own.
type workloads map[client.ObjectKey]workloadClient

type workloadClient struct {
	client.Client
	kubeconfig []byte
}

// client returns a client for a cluster, and creates a new one when the kubeconfig Secret has changed.
func (w workloads) client(ctx context.Context, management client.Reader, cluster client.ObjectKey) (client.Client, error) {
	content, err := kubeconfig.FromSecret(ctx, management, cluster)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Cluster %s: %w", cluster, err)
	}
	if known, ok := w[cluster]; ok && bytes.Equal(known.kubeconfig, content) {
		return known, nil
	}
	cfg, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Cluster %s: %w", cluster, err)
	}
	cfg.UserAgent = "metal3-simulator"
	cfg.QPS = -1
	cfg.Timeout = workloadTimeout
	workload, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("reach Cluster %s: %w: %w", cluster, err, errRetry)
	}
	w[cluster] = workloadClient{Client: workload, kubeconfig: content}
	return workload, nil
}
