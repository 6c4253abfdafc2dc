package clusterapi

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// waitForDefaulting waits until the API server calls the core's webhooks. Without defaults, the reconciler of a
// MachineDeployment creates MachineSets repeatedly.
func waitForDefaulting(ctx context.Context, cfg *rest.Config) error {
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return err
	}
	reference := clusterv1.ContractVersionedObjectReference{APIGroup: "example.com", Kind: "Probe", Name: "probe"}
	var last error
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		labels := map[string]string{"probe": "probe"}
		probe := &clusterv1.MachineDeployment{
			ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault},
			Spec: clusterv1.MachineDeploymentSpec{
				ClusterName: "probe",
				Selector:    metav1.LabelSelector{MatchLabels: labels},
				Template: clusterv1.MachineTemplateSpec{
					ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
					Spec: clusterv1.MachineSpec{
						ClusterName:       "probe",
						Version:           "v1.36.0",
						Bootstrap:         clusterv1.Bootstrap{ConfigRef: reference},
						InfrastructureRef: reference,
					},
				},
			},
		}
		last = c.Create(ctx, probe, client.DryRunAll)
		return last == nil && probe.Labels[clusterv1.ClusterNameLabel] == "probe", nil
	})
	if err != nil {
		return fmt.Errorf("webhooks of Cluster API do not respond: %w; last error: %w", err, last)
	}
	return nil
}
