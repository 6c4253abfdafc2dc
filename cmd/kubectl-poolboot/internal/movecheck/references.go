package movecheck

import (
	"context"
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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

// kindsWithoutReference are kinds of Metal3 to whose objects others refer without the kind. An IPPool without
// spec.clusterName has no owner.
var kindsWithoutReference = []schema.GroupKind{{Group: "infrastructure.cluster.x-k8s.io", Kind: "Metal3DataTemplate"}, {Group: "ipam.metal3.io", Kind: "IPPool"}}

// addWithoutReference adds the objects of kindsWithoutReference to needed.
func (f *facts) addWithoutReference(ctx context.Context, live client.Reader) error {
	for _, kind := range kindsWithoutReference {
		definition := f.definitionOf(kind)
		if definition == nil {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: storageVersion(definition), Kind: kind.Kind + "List"})
		if err := live.List(ctx, list, client.InNamespace(f.namespace)); err != nil {
			return fmt.Errorf("list %s of namespace %s: %w", kind.Kind, f.namespace, err)
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
