package e2e

import (
	"context"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// listOverlays lists the overlay Secrets of a config.
func listOverlays(ctx context.Context, config *bootstrapv1.PoolbootConfig) []corev1.Secret {
	var list corev1.SecretList
	ExpectWithOffset(1, lab.ManagementClient.List(ctx, &list, client.MatchingLabels{bootstrapv1.OverlayLabel: string(config.UID)})).To(Succeed())
	return list.Items
}

// listJoinTokens lists the bootstrap tokens that exist for a config, also those that its status does not name.
func listJoinTokens(ctx context.Context, config *bootstrapv1.PoolbootConfig) []corev1.Secret {
	var list corev1.SecretList
	ExpectWithOffset(1, lab.WorkloadClient.List(ctx, &list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingFields{"type": string(bootstrapapi.SecretTypeBootstrapToken)})).To(Succeed())
	var own []corev1.Secret
	for _, secret := range list.Items {
		if join.IsCredentialOf(&secret, client.ObjectKeyFromObject(config).String()) {
			own = append(own, secret)
		}
	}
	return own
}

// listNodes lists the Nodes that were created for a config.
func listNodes(ctx context.Context, config *bootstrapv1.PoolbootConfig) []corev1.Node {
	var list corev1.NodeList
	ExpectWithOffset(1, lab.WorkloadClient.List(ctx, &list)).To(Succeed())
	var own []corev1.Node
	for _, node := range list.Items {
		if node.Annotations[poolv1.NodeConfigAnnotation] == client.ObjectKeyFromObject(config).String() {
			own = append(own, node)
		}
	}
	return own
}

// findLeftovers returns a function that lists the objects of a config in both clusters.
func findLeftovers(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) func() []string {
	return func() []string {
		var found []string
		for _, c := range t.Configs(ctx, config.Labels[clusterv1.MachineDeploymentNameLabel]) {
			found = append(found, "PoolbootConfig "+c.Name)
		}
		for _, s := range append(listOverlays(ctx, config), listJoinTokens(ctx, config)...) {
			found = append(found, "Secret "+s.Name)
		}
		data := &corev1.Secret{}
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), data)
		ExpectWithOffset(1, client.IgnoreNotFound(err)).To(Succeed())
		if err == nil && !metav1.IsControlledBy(data, config) { // the garbage collector, which does not run here, deletes controlled objects
			found = append(found, "Secret "+data.Name)
		}
		for _, n := range listNodes(ctx, config) {
			found = append(found, "Node "+n.Name)
		}
		return found
	}
}

// listEvents returns a function that lists the notes of a config's events with a reason.
func listEvents(ctx context.Context, config *bootstrapv1.PoolbootConfig, reason string) func() []string {
	return func() []string {
		var list eventsv1.EventList
		ExpectWithOffset(1, lab.ManagementClient.List(ctx, &list, client.InNamespace(config.Namespace))).To(Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.Regarding.Name == config.Name && event.Reason == reason {
				notes = append(notes, event.Note)
			}
		}
		return notes
	}
}
