package update

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// predicted returns what was predicted for the update that a host has just completed. It returns "" if there was none,
// if the agent does not say what it did, or if one of the rendered configs does not exist any more. It is called before
// the record says that the host runs the second one, so it is called once for each update.
func (r *Updates) predicted(ctx context.Context, h *host, in poolContext) update.Effect {
	before, after := h.Config.Status.Boot.ServedConfiguration.Name, h.Config.Status.Update.Desired.Name
	if !h.runsDesired() || h.Report.Effect == "" || before == "" || before == after {
		return ""
	}
	var specs []poolv1.MachineConfigSpec
	isMoved := false
	for _, name := range []string{before, after} {
		config, err := workload.GetIfExists[poolv1.MachineConfig](ctx, r.Client, client.ObjectKey{Namespace: h.Config.Namespace, Name: name})
		if err != nil || config == nil {
			return ""
		}
		specs = append(specs, config.Spec)
		isMoved = isMoved || config.Labels[poolv1.RenderedForLabel] != in.pool.Name
	}
	worker, err := pool.OfRole(in.pools, poolv1.RoleWorker)
	if err != nil {
		worker = nil
	}
	effect, err := pool.PredictUpdate(in.pool, worker, specs[0], specs[1], isMoved)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(2).Info("The effect of an update can't be predicted", "error", err.Error())
		return ""
	}
	return effect
}

// comparePrediction compares what the agent of a host says that it did with what was predicted.
func (r *Updates) comparePrediction(h *host, predicted update.Effect) {
	if predicted == "" || predicted == h.Report.Effect {
		return
	}
	metrics.PredictionDiffers(h.Config)
	r.Recorder.Eventf(h.Config, nil, corev1.EventTypeWarning, bootstrapv1.EventPredictionDiffers, action,
		"the effect of the update of Node %s to %s was %s, and %s was predicted: see the actions in the journal of poolboot-agent.service on the host",
		h.Node.Name, h.Config.Status.Update.Desired.Name, h.Report.Effect, predicted)
}
