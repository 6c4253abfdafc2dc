package storm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// partLabel is the label of a Node that decides in which pool of a fleet it is.
const partLabel = "example.com/part"

// Spread distributes the hosts of a fleet evenly over n pools with the same MachineConfigs and the same limit, and
// waits until they are up to date there.
func (f *Fleet) Spread(ctx context.Context, n int) error {
	roles := []string{role}
	for i := 1; i < n; i++ {
		roles = append(roles, fmt.Sprintf("%s-%d", role, i+1))
	}
	wanted := map[string]string{}
	for i, c := range f.current() {
		r := roles[i%n]
		wanted[c.Name] = r
		node := &corev1.Node{}
		if err := f.site.WorkloadClient.Get(ctx, client.ObjectKey{Name: c.Status.NodeRef.Name}, node); err != nil {
			return err
		}
		labeled := node.DeepCopy()
		labeled.Labels[partLabel] = r
		if err := f.site.WorkloadClient.Patch(ctx, labeled, client.MergeFrom(node)); err != nil {
			return err
		}
	}
	first := f.Pool(role)
	if err := f.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(first), first); err != nil {
		return err
	}
	for _, r := range roles {
		p := first.DeepCopy()
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{poolv1.NodeRoleLabelPrefix + role: "", partLabel: r}}
		if r == role {
			if err := f.site.ManagementClient.Patch(ctx, p, client.MergeFrom(first)); err != nil {
				return err
			}
			continue
		}
		p.ObjectMeta, p.Spec.PoolRole, p.Status = metav1.ObjectMeta{Name: r, Namespace: f.Namespace}, r, poolv1.MachineConfigPoolStatus{}
		if err := f.site.ManagementClient.Create(ctx, p); err != nil {
			return err
		}
	}
	return f.wait(ctx, "are in their pools", func(c *bootstrapv1.PoolbootConfig) bool {
		return c.Status.PoolRole == wanted[c.Name] && conditions.IsTrue(c, bootstrapv1.UpdatedCondition)
	})
}

// SetClusterLimit sets what applies to all pools of the Cluster together, or nothing.
func (f *Fleet) SetClusterLimit(ctx context.Context, settings poolv1.ClusterUpdateSettings) error {
	worker := f.Pool(poolv1.RoleWorker)
	if err := f.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(worker), worker); err != nil {
		return err
	}
	limited := worker.DeepCopy()
	limited.Spec.Updates.Cluster = settings
	return f.site.ManagementClient.Patch(ctx, limited, client.MergeFrom(worker))
}

// WaitUntilPoolsUpdated waits until all hosts run a rendered config with the content of a named one, that of any pool.
func (f *Fleet) WaitUntilPoolsUpdated(ctx context.Context, rendered string) error {
	return f.wait(ctx, "are updated", func(c *bootstrapv1.PoolbootConfig) bool {
		return conditions.IsTrue(c, bootstrapv1.UpdatedCondition) && pool.HasSameContent(c.Status.Boot.ServedConfiguration.Name, rendered)
	})
}
