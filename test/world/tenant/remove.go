package tenant

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// remove deletes the tenant's objects at once, without what their controllers do when a user deletes them. While a
// Cluster exists, Cluster API and Poolboot are connected to its workload cluster, and get all changes of the Nodes of
// all tenants.
func (t *Tenant) remove(ctx context.Context) {
	GinkgoHelper()
	clusters := &clusterv1.ClusterList{}
	t.removeEach(ctx, clusters, func(cluster client.Object) error {
		return t.patch(ctx, cluster, `{"spec":{"paused":true}}`)
	})
	for _, list := range []client.ObjectList{
		&clusterv1.MachineHealthCheckList{}, &clusterv1.MachineDeploymentList{}, &clusterv1.MachineSetList{}, &clusterv1.MachineList{},
		&infrav1.Metal3RemediationList{}, &infrav1.Metal3DataClaimList{}, &infrav1.Metal3DataList{}, &infrav1.Metal3MachineList{}, &bmov1alpha1.BareMetalHostList{},
		&bootstrapv1.PoolbootConfigList{}, &poolv1.EnrollmentList{}, &poolv1.MachineConfigPoolList{}, &poolv1.MachineConfigList{},
		&infrav1.Metal3ClusterList{}, clusters,
	} {
		t.removeEach(ctx, list, func(object client.Object) error {
			err := client.IgnoreNotFound(t.site.ManagementClient.Delete(ctx, object))
			if err != nil || len(object.GetFinalizers()) == 0 {
				return err
			}
			return t.patch(ctx, object, `{"metadata":{"finalizers":null}}`)
		})
	}
}

// removeEach calls a function for each object of a kind, again after errors.
func (t *Tenant) removeEach(ctx context.Context, list client.ObjectList, do func(client.Object) error) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		err := t.site.ManagementClient.List(ctx, list, client.InNamespace(t.Namespace))
		if meta.IsNoMatchError(err) {
			return nil // Metal3 is not installed
		}
		if err != nil {
			return err
		}
		return meta.EachListItem(list, func(item runtime.Object) error { return do(item.(client.Object)) })
	}).Should(Succeed())
}

func (t *Tenant) patch(ctx context.Context, object client.Object, patch string) error {
	return client.IgnoreNotFound(t.site.ManagementClient.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(patch))))
}
