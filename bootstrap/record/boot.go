package record

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// HasNode reports whether a Node is on record for a PoolbootConfig. The Node was pre-registered, or was found after the
// record was lost.
func HasNode(config *bootstrapv1.PoolbootConfig) bool { return config.Status.NodeRef.IsDefined() }

// HasCredential reports whether a join credential is on record for a PoolbootConfig. It is on record from the
// preparation of the boot until it is deleted.
func HasCredential(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.Boot.CredentialID != ""
}

// IsCredential reports whether the join credential with an ID is the one on record.
func IsCredential(config *bootstrapv1.PoolbootConfig, id string) bool {
	return config.Status.Boot.CredentialID == id
}

// IsCredentialUsed reports whether the join credential on record was used to obtain its certificate. A credential
// obtains only one certificate.
func IsCredentialUsed(config *bootstrapv1.PoolbootConfig) bool {
	certificate := config.Status.Certificate
	return certificate.IsDefined() && IsCredential(config, certificate.CredentialID)
}

// HasRequested reports whether a host has ever sent a boot request for a PoolbootConfig.
func HasRequested(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.Requests.RequestedTime != nil
}

// IsRequestPending reports whether a host has sent a boot request that is not answered. The answer repeats the time of
// the request, which identifies it: times of different clocks are never compared.
func IsRequestPending(config *bootstrapv1.PoolbootConfig) bool {
	requested := config.Status.Requests.RequestedTime
	return requested != nil && !requested.Equal(config.Status.Boot.AnsweredRequestTime)
}

// WasPrepared reports whether the boot of a PoolbootConfig was ever prepared. It can have been withdrawn since.
func WasPrepared(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.Boot.PreparedTime != nil
}

// IsServed reports whether the host has received the configuration that was last prepared. The config server records
// this while the host continues its boot.
func IsServed(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.Requests.ServedTime != nil
}

// IsIgnitionFailed reports whether the host has reported that its first boot failed, and has not requested its
// configuration again since.
func IsIgnitionFailed(config *bootstrapv1.PoolbootConfig) bool {
	requests := config.Status.Requests
	isRetry := func(at *metav1.MicroTime) bool {
		return at != nil && at.After(requests.IgnitionFailure.ReportedTime.Time)
	}
	return requests.IgnitionFailure.Stage != "" && !isRetry(requests.RequestedTime) && !isRetry(requests.ServedTime)
}

// versionsStage is the stage that a host reports when Ignition succeeded, and its versions keep it from joining.
const versionsStage = "versions"

// IsVersionSkew reports whether the last failure that the host reported is that its kubelet or kubeadm does not fit the
// version of the API server.
func IsVersionSkew(config *bootstrapv1.PoolbootConfig) bool {
	return config.Status.Requests.IgnitionFailure.Stage == versionsStage
}

// IsPrepared reports whether a boot is prepared: the Node, the join credential and the overlay exist.
func IsPrepared(config *bootstrapv1.PoolbootConfig) bool {
	return conditions.IsTrue(config, bootstrapv1.BootPreparedCondition)
}

// IsWaitingForHost reports whether nothing is prepared because no host needs it: no host has sent a boot request yet,
// or the boot was withdrawn.
func IsWaitingForHost(config *bootstrapv1.PoolbootConfig) bool {
	prepared := conditions.Get(config, bootstrapv1.BootPreparedCondition)
	return prepared != nil && prepared.Status == metav1.ConditionUnknown &&
		(prepared.Reason == bootstrapv1.WaitingForHostReason || prepared.Reason == bootstrapv1.WaitingForRequestReason)
}

// IsWithdrawn reports whether the boot was withdrawn because the host is deprovisioned or replaced by another host, and
// no host has sent a boot request since.
func IsWithdrawn(config *bootstrapv1.PoolbootConfig) bool {
	return WasPrepared(config) && !IsRequestPending(config) && IsWaitingForHost(config)
}

// IsCredentialLost reports whether the host has a join credential that it can no longer use. The host must send another
// boot request or be replaced.
func IsCredentialLost(config *bootstrapv1.PoolbootConfig) bool {
	return conditions.GetReason(config, bootstrapv1.BootPreparedCondition) == bootstrapv1.JoinCredentialExpiredReason
}

// IsNodeInPool reports whether the Node of a PoolbootConfig is Ready in its pool now.
func IsNodeInPool(config *bootstrapv1.PoolbootConfig) bool {
	return conditions.IsTrue(config, bootstrapv1.NodeInPoolCondition)
}

// IsNodeOutsidePool reports whether the labels of the Node of a PoolbootConfig decide no pool. It can be Ready.
func IsNodeOutsidePool(config *bootstrapv1.PoolbootConfig) bool {
	switch conditions.GetReason(config, bootstrapv1.NodeInPoolCondition) {
	case bootstrapv1.NodeOutsidePoolReason, bootstrapv1.PoolConflictReason, bootstrapv1.ControlPlaneNodeReason:
		return true
	}
	return false
}

// IsNodeMissing reports whether the Node on record no longer exists.
func IsNodeMissing(config *bootstrapv1.PoolbootConfig) bool {
	return conditions.GetReason(config, bootstrapv1.NodeInPoolCondition) == bootstrapv1.NodeMissingReason
}

// IsBootComplete reports whether a boot is complete: the host has joined, or its Node is Ready in its pool and its
// token is about to be revoked.
func IsBootComplete(config *bootstrapv1.PoolbootConfig) bool {
	return HasJoined(config) || IsNodeInPool(config)
}

// IsReleased reports whether the token of a PoolbootConfig's host is revoked and its join credential is deleted. Until
// both are on record, the record of the boot is not complete.
func IsReleased(config *bootstrapv1.PoolbootConfig) bool {
	return HasJoined(config) && !HasCredential(config)
}
