package movecheck

import (
	"context"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	secretutil "sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// This file finds the objects that clusterctl moves. It reads the kinds whose CustomResourceDefinitions have its label,
// Secrets and ConfigMaps; of these it moves the objects with the label for it, on them or on their kind, and all
// objects that Clusters and other heads of a hierarchy own.

// movableKind is a kind that clusterctl reads.
type movableKind struct {
	schema.GroupVersionKind
	definition string
	// moves is true when clusterctl moves every object of the kind, head when it also moves the objects that these own.
	moves, isHierarchy bool
}

// node is an object that clusterctl reads.
type node struct {
	*unstructured.Unstructured
	kind movableKind
	// moves is true when clusterctl moves it.
	moves bool
}

func (n node) String() string {
	return fmt.Sprintf("%s %s/%s", n.GetKind(), n.GetNamespace(), n.GetName())
}

// movableKinds returns the kinds that clusterctl reads.
func movableKinds(definitions []apiextensionsv1.CustomResourceDefinition) []movableKind {
	kinds := []movableKind{
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}},
		{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}},
	}
	for i := range definitions {
		crd := &definitions[i]
		if !metav1.HasLabel(crd.ObjectMeta, clusterctlv1.ClusterctlLabel) || crd.Spec.Scope != apiextensionsv1.NamespaceScoped {
			continue
		}
		group, kind := crd.Spec.Group, crd.Spec.Names.Kind
		head := metav1.HasLabel(crd.ObjectMeta, clusterctlv1.ClusterctlMoveHierarchyLabel) ||
			group == "cluster.x-k8s.io" && (kind == "Cluster" || kind == "ClusterClass") || group == "addons.cluster.x-k8s.io" && kind == "ClusterResourceSet"
		kinds = append(kinds, movableKind{GroupVersionKind: schema.GroupVersionKind{Group: group, Version: storageVersion(crd), Kind: kind}, definition: crd.Name,
			isHierarchy: head, moves: head || metav1.HasLabel(crd.ObjectMeta, clusterctlv1.ClusterctlMoveLabel)})
	}
	return kinds
}

// readNodes reads all objects of a namespace that clusterctl reads, and marks those that it moves.
func readNodes(ctx context.Context, live client.Reader, namespace string, kinds []movableKind) ([]*node, error) {
	var nodes []*node
	for _, kind := range kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			if meta.IsNoMatchError(err) {
				continue
			}
			return nil, fmt.Errorf("list %s of %s: %w", kind.Kind, kind.GroupVersion(), err)
		}
		for i := range list.Items {
			nodes = append(nodes, &node{Unstructured: &list.Items[i], kind: kind})
		}
	}
	findMoved(nodes)
	return nodes, nil
}

// findMoved marks the objects that clusterctl moves.
func findMoved(nodes []*node) {
	owned, clusters := map[types.UID][]*node{}, map[string]types.UID{}
	for _, n := range nodes {
		if n.kind.Group == "cluster.x-k8s.io" && n.kind.Kind == "Cluster" {
			clusters[n.GetName()] = n.GetUID()
		}
	}
	for _, n := range nodes {
		for _, owner := range n.GetOwnerReferences() {
			owned[owner.UID] = append(owned[owner.UID], n)
		}
		if n.kind.Kind == "Secret" && len(n.GetOwnerReferences()) == 0 { // its name has the Cluster's name
			if name, _, err := secretutil.ParseSecretName(n.GetName()); err == nil && clusters[name] != "" {
				owned[clusters[name]] = append(owned[clusters[name]], n)
			}
		}
	}
	var mark func(n *node)
	mark = func(n *node) {
		if !n.moves {
			n.moves = true
			for _, dependent := range owned[n.GetUID()] {
				mark(dependent)
			}
		}
	}
	for _, n := range nodes {
		if _, head := n.GetLabels()[clusterctlv1.ClusterctlMoveHierarchyLabel]; n.kind.isHierarchy || head {
			mark(n)
		}
	}
	byUID := map[types.UID]*node{}
	for _, n := range nodes {
		_, alone := n.GetLabels()[clusterctlv1.ClusterctlMoveLabel]
		n.moves = n.moves || n.kind.moves || alone
		byUID[n.GetUID()] = n
	}
	// clusterctl creates an object after all its owners. An object with an owner that is not moved stays too.
	isLeft := func(owner metav1.OwnerReference) bool { return byUID[owner.UID] != nil && !byUID[owner.UID].moves }
	for changed := true; changed; {
		changed = false
		for _, n := range nodes {
			if n.moves && slices.ContainsFunc(n.GetOwnerReferences(), isLeft) {
				n.moves, changed = false, true
			}
		}
	}
}

// reference is what a moved object names in its spec: an object of a kind in its own namespace. Cluster API and its
// providers write such references with an apiVersion, or with an apiGroup.
type reference struct {
	schema.GroupKind
	name string
}

// referencesIn returns the references in a value of an object to objects in a namespace.
func referencesIn(value any, namespace string) (found []reference) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			found = append(found, referencesIn(item, namespace)...)
		}
	case map[string]any:
		kind, _ := value["kind"].(string)
		name, _ := value["name"].(string)
		group, hasGroup := value["apiGroup"].(string)
		if version, ok := value["apiVersion"].(string); ok && !hasGroup {
			parsed, err := schema.ParseGroupVersion(version)
			group, hasGroup = parsed.Group, err == nil
		}
		in, isElsewhere := value["namespace"].(string)
		isElsewhere = isElsewhere && in != "" && in != namespace
		if kind != "" && name != "" && hasGroup && !isElsewhere {
			found = append(found, reference{schema.GroupKind{Group: group, Kind: kind}, name})
		}
		for _, item := range value {
			found = append(found, referencesIn(item, namespace)...)
		}
	}
	return found
}

// addReferenced adds the objects to needed to which objects refer that would be moved, and that would not be moved
// themselves, such as templates of MachineHealthChecks: nothing owns them.
func (f *facts) addReferenced(ctx context.Context, live client.Reader) error {
	seen := map[reference]bool{}
	for _, n := range f.nodes {
		if !n.moves || n.kind.definition == "" { // Secrets and ConfigMaps refer to nothing
			continue
		}
		for _, ref := range referencesIn(n.Object["spec"], f.namespace) {
			definition := f.definitionOf(ref.GroupKind)
			if seen[ref] || definition == nil || definition.Spec.Scope != apiextensionsv1.NamespaceScoped {
				continue
			}
			seen[ref] = true
			object, err := f.read(ctx, live, ref, definition)
			if err != nil {
				return err
			}
			isNeeded := func(o client.Object) bool { return object != nil && o.GetUID() == object.GetUID() }
			if object != nil && !f.isMoved(object.GetUID()) && !slices.ContainsFunc(f.needed, isNeeded) {
				f.needed = append(f.needed, object)
				f.referrers[object.GetUID()] = n.String()
			}
		}
	}
	return nil
}

// read returns an object to which another one refers, or nil if it does not exist.
func (f *facts) read(ctx context.Context, live client.Reader, ref reference, definition *apiextensionsv1.CustomResourceDefinition) (client.Object, error) {
	for _, n := range f.nodes {
		if n.kind.GroupKind() == ref.GroupKind && n.GetName() == ref.name {
			return n.Unstructured, nil
		}
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(ref.WithVersion(storageVersion(definition)))
	err := live.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: ref.name}, object)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get %s %s/%s: %w", ref.Kind, f.namespace, ref.name, err)
	}
	return object, nil
}

// neededKinds are kinds whose objects must be moved, by their group. To those of Metal3DataTemplate and IPPool, others
// refer without the kind, and an IPPool without spec.clusterName has no owner.
var neededKinds = map[string][]string{
	bmov1alpha1.GroupVersion.Group:    {"BareMetalHost", "HardwareData"},
	bootstrapv1.GroupVersion.Group:    {"PoolbootConfig", "PoolbootConfigTemplate"},
	poolv1.GroupVersion.Group:         {"MachineConfigPool", "MachineConfig", "Enrollment"},
	clusterv1.GroupVersion.Group:      {"MachineDrainRule"},
	"infrastructure.cluster.x-k8s.io": {"Metal3Machine", "Metal3DataTemplate"},
	"ipam.metal3.io":                  {"IPPool"},
}

// addNeeded adds the objects of neededKinds to needed.
func (f *facts) addNeeded(ctx context.Context, live client.Reader) error {
	for i := range f.definitions {
		definition, kind := &f.definitions[i], f.definitions[i].Spec.Names.Kind
		if !slices.Contains(neededKinds[definition.Spec.Group], kind) {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: definition.Spec.Group, Version: storageVersion(definition), Kind: kind + "List"})
		if err := live.List(ctx, list, client.InNamespace(f.namespace)); err != nil {
			return fmt.Errorf("list %s of namespace %s: %w", kind, f.namespace, err)
		}
		for i := range list.Items {
			f.needed = append(f.needed, &list.Items[i])
		}
	}
	return nil
}

// storageVersion returns the version of a kind in which its objects are stored.
func storageVersion(definition *apiextensionsv1.CustomResourceDefinition) string {
	for _, version := range definition.Spec.Versions {
		if version.Storage {
			return version.Name
		}
	}
	return ""
}

// definitionOf returns the definition of a kind, or nil if there is none.
func (f *facts) definitionOf(kind schema.GroupKind) *apiextensionsv1.CustomResourceDefinition {
	for i := range f.definitions {
		if d := &f.definitions[i]; d.Spec.Group == kind.Group && d.Spec.Names.Kind == kind.Kind {
			return d
		}
	}
	return nil
}
