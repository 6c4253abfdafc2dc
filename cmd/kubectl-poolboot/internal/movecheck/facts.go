package movecheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// facts are what decides whether a move is safe, as the management cluster has it.
type facts struct {
	namespace string
	kinds     []movableKind
	nodes     []*node
	clusters  clusterv1.ClusterList
	classes   clusterv1.ClusterClassList
	machines  clusterv1.MachineList
	hosts     bmov1alpha1.BareMetalHostList
	configs   bootstrapv1.PoolbootConfigList
	// needed are objects that must be moved, also of kinds that clusterctl does not read, and referrers what refers to
	// them.
	needed    []client.Object
	referrers map[types.UID]string
	// ironic and operator are the Deployments of Ironic and of the baremetal-operator; operatorValidates is true when
	// the webhooks of the latter have failurePolicy Fail.
	ironic, operator  []appsv1.Deployment
	operatorValidates bool
	// poolboot are the Deployments of Poolboot.
	poolboot []appsv1.Deployment
	// definitions are the CustomResourceDefinitions.
	definitions []apiextensionsv1.CustomResourceDefinition
}

// gather reads all facts. Kinds that are not installed have no objects.
func gather(ctx context.Context, live client.Reader, namespace string) (*facts, error) {
	f := &facts{namespace: namespace, referrers: map[types.UID]string{}}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	var deployments appsv1.DeploymentList
	var webhooks admissionv1.ValidatingWebhookConfigurationList
	var secrets corev1.SecretList
	for _, list := range []client.ObjectList{&definitions, &deployments, &webhooks} {
		if err := live.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	for _, list := range []client.ObjectList{&f.clusters, &f.classes, &f.machines, &f.hosts, &f.configs, &secrets} {
		if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil && !meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("list %T of namespace %s: %w", list, namespace, err)
		}
	}
	hostSecrets := sets.New[string]()
	for i := range f.hosts.Items {
		spec := &f.hosts.Items[i].Spec
		hostSecrets.Insert(spec.BMC.CredentialsName, spec.PreprovisioningNetworkDataName)
		for _, data := range []*corev1.SecretReference{spec.UserData, spec.MetaData, spec.NetworkData} {
			if data != nil && (data.Namespace == "" || data.Namespace == namespace) {
				hostSecrets.Insert(data.Name)
			}
		}
	}
	for i := range secrets.Items {
		if s := &secrets.Items[i]; s.Type == poolv1.EnrollmentTokenType || hostSecrets.Has(s.Name) {
			f.needed = append(f.needed, s)
		}
	}
	f.ironic = withContainer(deployments.Items, func(_ *appsv1.Deployment, c *corev1.Container) bool {
		return c.Name == "ironic" || strings.HasPrefix(imageName(c), "ironic")
	})
	f.operator = withContainer(deployments.Items, isOperator)
	f.operatorValidates = slices.ContainsFunc(webhooks.Items, validatesHosts)
	f.poolboot = withContainer(deployments.Items, isPoolboot)
	f.definitions = definitions.Items
	f.kinds = movableKinds(definitions.Items)
	var err error
	if f.nodes, err = readNodes(ctx, live, namespace, f.kinds); err != nil {
		return nil, err
	}
	if err := f.addNeeded(ctx, live); err != nil {
		return nil, err
	}
	return f, f.addReferenced(ctx, live)
}

// withContainer returns the Deployments with a container that matches, those without replicas included.
func withContainer(deployments []appsv1.Deployment, matches func(*appsv1.Deployment, *corev1.Container) bool) (found []appsv1.Deployment) {
	for i := range deployments {
		d := &deployments[i]
		if slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return matches(d, &c) }) {
			found = append(found, *d)
		}
	}
	return found
}

// hasReplicas reports whether a Deployment has replicas, or will have some.
func hasReplicas(d appsv1.Deployment) bool {
	return ptr.Deref(d.Spec.Replicas, 1) > 0 || d.Status.Replicas > 0
}

// imageName returns the last part of an image's name, without tag or digest.
func imageName(c *corev1.Container) string {
	name := c.Image[strings.LastIndex(c.Image, "/")+1:]
	name, _, _ = strings.Cut(name, "@")
	name, _, _ = strings.Cut(name, ":")
	return name
}

func isOperator(_ *appsv1.Deployment, c *corev1.Container) bool {
	return imageName(c) == "baremetal-operator"
}

func isPoolboot(d *appsv1.Deployment, c *corev1.Container) bool {
	return d.Labels[clusterv1.ProviderNameLabel] == "bootstrap-poolboot" && c.Name == "manager"
}

// validatesHosts reports whether a webhook has the API server refuse changes of BareMetalHosts while it does not
// answer.
func validatesHosts(configuration admissionv1.ValidatingWebhookConfiguration) bool {
	return slices.ContainsFunc(configuration.Webhooks, func(w admissionv1.ValidatingWebhook) bool {
		return ptr.Deref(w.FailurePolicy, admissionv1.Fail) == admissionv1.Fail && slices.ContainsFunc(w.Rules, func(r admissionv1.RuleWithOperations) bool {
			return slices.Contains(r.APIGroups, bmov1alpha1.GroupVersion.Group) && slices.Contains(r.Resources, "baremetalhosts")
		})
	})
}

// isMoved reports whether an object is moved.
func (f *facts) isMoved(uid types.UID) bool {
	return slices.ContainsFunc(f.nodes, func(n *node) bool { return n.GetUID() == uid && n.moves })
}
