package update

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// leaseDuration is the duration of the Lease of a Node that does not say it: the default of the kubelet.
	leaseDuration = 40
	// leaseSlack is how much later than due a Lease can be renewed. A kubelet renews it after a quarter of its
	// duration.
	leaseSlack = 5 * time.Second
)

// leaseKey is the Lease of a Node of a Cluster.
type leaseKey struct {
	cluster client.ObjectKey
	node    string
}

// leaseLook is a look at a Lease.
type leaseLook struct {
	// renewTime is by the clock of the host, and only compared for equality.
	renewTime metav1.MicroTime
	// began is when the look began. The Lease was renewed after renewedAfter, which is zero if that was not seen. Both
	// are by the clock of this manager.
	began, renewedAfter time.Time
}

// isRenewed reports whether the kubelet of a Node renews its Lease: this look sees another time in it than an earlier
// one, which was no longer ago than a kubelet takes for that. So a host without power is seen before its Node is not
// Ready, whatever the clocks say. The first look never sees it.
func (r *Updates) isRenewed(ctx context.Context, w client.Reader, cluster client.ObjectKey, node string) (bool, error) {
	look := leaseLook{began: r.now()}
	lease, err := workload.GetIfExists[coordinationv1.Lease](ctx, w, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: node})
	if err != nil {
		return false, fmt.Errorf("read the Lease of Node %s: %w", node, err)
	}
	if lease == nil || lease.Spec.RenewTime == nil {
		return false, nil
	}
	look.renewTime = *lease.Spec.RenewTime
	key := leaseKey{cluster, node}
	if known, ok := r.leases.Get(key); ok {
		last := known.(leaseLook)
		look.renewedAfter = last.renewedAfter
		if !last.renewTime.Equal(&look.renewTime) {
			look.renewedAfter = last.began
			if look.began.Before(last.began) { // another look was faster
				look.renewedAfter = look.began
			}
		}
	}
	r.leases.Add(key, look)
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, leaseDuration)) * time.Second
	return r.now().Sub(look.renewedAfter) <= duration/4+leaseSlack, nil
}
