package update

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// requestReboot records that a host is to leave its boot, if its operating system needs that and its pool says so. That
// changes what the host should run, so it is an update under all limits. A host that is in an update is not told
// something else because of this. It returns after which time to look again, or 0.
func (r *Updates) requestReboot(ctx context.Context, h *host, in poolContext) (time.Duration, error) {
	if h.Report.RebootRequired.BootID == "" || h.HasBegun() || !h.runsDesired() || record.IsAsFound(h.Config) {
		return 0, nil
	}
	now := r.now()
	decision := rollout.DecideReboot(h.Report.RebootRequired, record.RebootRequestOf(h.Config), in.pool, now)
	if !decision.IsDue {
		return decision.Wait, nil
	}
	err := h.scope.PatchMetadata(ctx, func(config *bootstrapv1.PoolbootConfig) {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.RebootFromAnnotation, record.RebootRequest{Boot: h.Report.RebootRequired.BootID, Time: now}.String())
	})
	h.Config = h.scope.Config
	return 0, err
}
