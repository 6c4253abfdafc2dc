package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// heartbeatInterval is the time between two heartbeats of a Node without kubelet. Without them, kube-controller-manager
// says after 50 seconds that the Node is not Ready.
const heartbeatInterval = 10 * time.Second

// runFlows sets up what docs/flows.md starts from, and keeps it running until the demo is interrupted.
func runFlows(ctx context.Context, s *site.Site) error {
	fmt.Println("==> Creating the Cluster of docs/flows.md in the namespace edge")
	for _, arguments := range [][]string{{"create", "namespace", site.ClusterName}, {"config", "set-context", "--current", "--namespace", site.ClusterName}} {
		if _, err := s.Kubectl(ctx, s.Management, arguments...); err != nil {
			return err
		}
	}
	options := clusterapi.ClusterOptions{Namespace: site.ClusterName, Name: site.ClusterName, Workload: s.Workload}
	if _, err := clusterapi.CreateCluster(ctx, s.ManagementClient, options); err != nil {
		return err
	}
	if err := kubectl(ctx, s, "apply", "flows.yaml"); err != nil {
		return err
	}
	for name, role := range map[string]string{"cp-1": "control-plane", "upi-1": "worker"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{poolv1.NodeRoleLabelPrefix + role: ""}}}
		if err := s.WorkloadClient.Create(ctx, node); err != nil {
			return err
		}
		if err := sendHeartbeat(ctx, s, name); err != nil {
			return err
		}
		go func() {
			for range time.Tick(heartbeatInterval) {
				if err := sendHeartbeat(ctx, s, name); err != nil && ctx.Err() == nil {
					fmt.Fprintf(os.Stderr, "demo: heartbeat of Node %s: %v\n", name, err)
				}
			}
		}()
	}
	return waitForInterrupt(ctx, s, look.flows)
}

// sendHeartbeat does what the kubelet of a Node does that Poolboot did not boot.
func sendHeartbeat(ctx context.Context, s *site.Site, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	before := node.DeepCopy()
	node.Status.NodeInfo.KubeletVersion = "v1.36.3"
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
	return s.WorkloadClient.Status().Patch(ctx, node, client.MergeFrom(before))
}
