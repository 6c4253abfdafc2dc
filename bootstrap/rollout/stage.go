package rollout

import (
	"time"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// StagePatience is how long a stage of an update can last beyond spec.updates.readyDeadlineSeconds of the pool. Then
// health checks of the Machine count again, and the host needs a person.
const StagePatience = 10 * time.Minute

// StageDeadline returns how long a stage of an update can last in a pool.
func StageDeadline(p *poolv1.MachineConfigPool) time.Duration {
	return time.Duration(p.Spec.Updates.ReadyDeadline())*time.Second + StagePatience
}

// StageLeft returns how much is left of the deadline of the stage that is recorded for a host, or 0 if it is over. The
// host must be in a stage.
func StageLeft(config *bootstrapv1.PoolbootConfig, deadline time.Duration, now time.Time) time.Duration {
	return max(deadline-now.Sub(config.Status.Update.StageTime.Time), 0)
}

// IsInterrupted reports whether it is recorded that a host is changed, reboots or is verified for its update. Meanwhile
// its Node can be not Ready.
func IsInterrupted(config *bootstrapv1.PoolbootConfig) bool {
	switch config.Status.Update.Stage {
	case bootstrapv1.UpdateApplying, bootstrapv1.UpdateRebooting, bootstrapv1.UpdateVerifying:
		return config.Status.Update.StageTime != nil
	}
	return false
}
