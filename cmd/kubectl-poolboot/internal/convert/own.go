package convert

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// own are Poolboot's objects in the files. They are printed as they are written, in a namespace.
type own struct {
	cluster, namespace string
	// configs are MachineConfigs, and others are the other objects: first those of pools.
	configs, others []input.Item
	// pools are the pools, with their namespace.
	pools []poolv1.MachineConfigPool
}

// selectOwn returns Poolboot's objects. Those without a namespace are for that of the result.
func selectOwn(objects *input.Objects, cluster, namespace string, remark func(string, ...any)) own {
	all := own{cluster: cluster, namespace: namespace}
	var rest []input.Item
	for _, object := range objects.Own() {
		remark("note: %s %q is kept: it is an object of Poolboot", object.Kind.Kind, object.GetName())
		switch typed := object.Object.(type) {
		case *poolv1.MachineConfig:
			all.configs = append(all.configs, object)
		case *poolv1.MachineConfigPool:
			p := typed.DeepCopy()
			p.Namespace = cmp.Or(p.Namespace, namespace)
			all.pools = append(all.pools, *p)
			all.others = append(all.others, object)
		default:
			rest = append(rest, object)
		}
	}
	all.others = append(all.others, rest...)
	for _, object := range input.Of[client.Object](objects) {
		if kind := object.GetObjectKind().GroupVersionKind(); kind.Group != input.PoolKind.Group && !strings.HasSuffix(kind.Group, ".openshift.io") && !slices.ContainsFunc(all.others, func(of input.Item) bool { return of.Object == object }) {
			remark("note: %s %q is ignored: it is no object of OpenShift", kind.Kind, object.GetName())
		}
	}
	return all
}

// written returns an object as it is printed.
func (o own) written(of input.Item) *unstructured.Unstructured {
	written := of.Written()
	written.SetNamespace(cmp.Or(written.GetNamespace(), o.namespace))
	return written
}

// has reports whether one of the pools has a role in the Cluster for which objects are converted.
func (o own) has(role string) bool {
	ofOther := func(p poolv1.MachineConfigPool) bool {
		return p.Spec.ClusterName != o.cluster || p.Namespace != o.namespace
	}
	_, err := pool.OfRole(slices.DeleteFunc(slices.Clone(o.pools), ofOther), role)
	return !errors.As(err, new(*pool.NotFoundError))
}

// keyOf returns the key of an object among those of the result, most of which are in one namespace.
func keyOf(object client.Object, namespace string) string {
	key := object.GetObjectKind().GroupVersionKind().Kind + " "
	if of := object.GetNamespace(); of != namespace {
		key += of + "/"
	}
	return key + object.GetName()
}
