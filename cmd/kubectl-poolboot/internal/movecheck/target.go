package movecheck

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// caSecret is the name of the Secret with the CA of the config server.
const caSecret = "poolboot-ca"

// checkTarget returns the traps in the other management cluster.
func (f *facts) checkTarget(ctx context.Context, here, there client.Reader) (traps []trap, err error) {
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := there.List(ctx, &definitions); err != nil {
		return nil, fmt.Errorf("list CustomResourceDefinitions: %w", err)
	}
	if slices.ContainsFunc(definitions.Items, func(d apiextensionsv1.CustomResourceDefinition) bool {
		return slices.ContainsFunc(f.definitions, func(ours apiextensionsv1.CustomResourceDefinition) bool { return ours.UID == d.UID })
	}) {
		return []trap{{Lost, "the target", "it is this management cluster: clusterctl would delete the objects that it has just moved", "set --to-kubeconfig to the kubeconfig of the other management cluster"}}, nil
	}
	for _, kind := range f.kinds {
		if kind.definition == "" || !slices.ContainsFunc(f.nodes, func(n *node) bool { return n.moves && n.kind.definition == kind.definition }) {
			continue
		}
		at := slices.IndexFunc(definitions.Items, func(d apiextensionsv1.CustomResourceDefinition) bool { return d.Name == kind.definition })
		hangs := func(message, remedy string) {
			traps = append(traps, trap{Hangs, "CustomResourceDefinition " + kind.definition + " at the target", message, remedy})
		}
		switch {
		case at < 0:
			hangs("it does not exist: clusterctl would stop halfway", "install its provider at the target")
		case !slices.ContainsFunc(definitions.Items[at].Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == kind.Version && v.Served
		}):
			hangs("version "+kind.Version+" is not served: clusterctl would stop halfway", "install in the target the provider version that runs here, or a later one")
		case !metav1.HasLabel(definitions.Items[at].ObjectMeta, clusterctlv1.ClusterctlLabel):
			traps = append(traps, trap{Note, "CustomResourceDefinition " + kind.definition + " at the target", "it lacks the label " + clusterctlv1.ClusterctlLabel + ": its objects could not be moved again",
				"kubectl --kubeconfig FILE label crd " + kind.definition + " " + clusterctlv1.ClusterctlLabel + "="})
		}
	}
	var deployments appsv1.DeploymentList
	if err := there.List(ctx, &deployments); err != nil {
		return nil, fmt.Errorf("list Deployments: %w", err)
	}
	poolboot := withContainer(deployments.Items, isPoolboot)
	switch {
	case !slices.ContainsFunc(poolboot, hasReplicas):
		traps = append(traps, trap{Hangs, "Poolboot at the target", "it is not installed, or does not run: booting hosts would wait, and its webhooks would refuse what clusterctl creates", "install and start it, with the same name and CA"})
	case len(f.poolboot) > 0 && managerImage(f.poolboot[0]) != managerImage(poolboot[0]):
		traps = append(traps, trap{Note, "Poolboot at the target", fmt.Sprintf("%s runs in the target, %s runs here", managerImage(poolboot[0]), managerImage(f.poolboot[0])), "install the same version in the target, or a later one"})
	}
	if len(f.poolboot) > 0 && len(poolboot) > 0 {
		ours, err := caCertificate(ctx, here, f.poolboot[0].Namespace)
		if err != nil {
			return nil, err
		}
		theirs, err := caCertificate(ctx, there, poolboot[0].Namespace)
		if err != nil {
			return nil, err
		}
		if len(ours) > 0 && !bytes.Equal(ours, theirs) {
			effect, message := Note, "its CA is not the CA of this management cluster: hosts that were provisioned before the move do not trust the config server of the target"
			if n := f.agents(); n > 0 { // they get another CA only from a config server that they trust
				effect, message = Lost, message+fmt.Sprintf(". The agents of running hosts (%d) would never follow their pools again", n)
			}
			if slices.ContainsFunc(f.configs.Items, func(c bootstrapv1.PoolbootConfig) bool { return bootStage(&c) != "" }) {
				effect = Lost
			}
			traps = append(traps, trap{effect, fmt.Sprintf("Secret %s/%s at the target", poolboot[0].Namespace, caSecret), message,
				"copy the Secret of this management cluster to the target before Poolboot is installed there"})
		}
	}
	return traps, nil
}

// managerImage returns the image of Poolboot's manager.
func managerImage(d appsv1.Deployment) string {
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == "manager" {
			return c.Image
		}
	}
	return ""
}

// caCertificate returns the CA certificate of Poolboot in a namespace; nil when there is none.
func caCertificate(ctx context.Context, c client.Reader, namespace string) ([]byte, error) {
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: caSecret}, secret); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("get Secret %s/%s: %w", namespace, caSecret, err)
	}
	return secret.Data[corev1.TLSCertKey], nil
}
