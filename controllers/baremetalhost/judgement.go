package baremetalhost

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

// finding is what is wrong, or was done, by the reason of the event or condition that says so.
type finding struct{ reason, message string }

func found(reason, format string, args ...any) *finding {
	return &finding{reason: reason, message: fmt.Sprintf(format, args...)}
}

// asks says whether a person asks for a host to boot into a pool.
func asks(host *bmov1alpha1.BareMetalHost) bool {
	return metav1.HasAnnotation(host.ObjectMeta, poolv1.HostPoolAnnotation) || metav1.HasAnnotation(host.ObjectMeta, poolv1.HostClusterAnnotation)
}

// releaseReason returns why a host no longer needs its PoolbootConfig, and "" while it does.
//
// The Cluster is no owner of the PoolbootConfig, because the garbage collector keeps an object as long as one of its
// owners exists, and the host does.
func releaseReason(s *scope) string {
	host, config := s.host, s.config
	booted := record.HasRequested(config) || record.HasNode(config) || record.HasJoined(config)
	state := host.Status.Provisioning.State
	switch {
	case !metav1.IsControlledBy(config, host):
		return "it is that of an earlier BareMetalHost of this name"
	case !host.DeletionTimestamp.IsZero():
		return "the host is being deleted"
	case s.place.Cluster == nil:
		return "Cluster " + record.ClusterName(config) + " is deleted"
	case !s.clusterStays():
		return "Cluster " + record.ClusterName(config) + " is being deleted"
	case hostpool.PredatesCluster(config, s.place.Cluster):
		return "it is that of an earlier Cluster " + record.ClusterName(config)
	case host.Spec.ConsumerRef != nil:
		return fmt.Sprintf("%s %s has taken the host", host.Spec.ConsumerRef.Kind, host.Spec.ConsumerRef.Name)
	case host.Annotations[poolv1.HostPoolAnnotation] == "":
		return "the host asks for no pool any more"
	case host.Annotations[poolv1.HostClusterAnnotation] != record.ClusterName(config):
		return "the host asks for no pool of Cluster " + record.ClusterName(config) + " any more"
	case state == bmov1alpha1.StateDeprovisioning,
		booted && (state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady || state == bmov1alpha1.StatePreparing):
		return "the host has been deprovisioned"
	}
	return ""
}

// refusal says why a host that asks for a pool of a Cluster, which may not exist, gets no record; nil when nothing
// about the host is in the way.
func refusal(host *bmov1alpha1.BareMetalHost, cluster *clusterv1.Cluster) *finding {
	for _, key := range []string{poolv1.HostPoolAnnotation, poolv1.HostClusterAnnotation} {
		if host.Annotations[key] == "" {
			return found(poolv1.EventHostRequestInvalid, "a host that asks for a pool needs both annotations %s and %s: add %s",
				poolv1.HostPoolAnnotation, poolv1.HostClusterAnnotation, key)
		}
	}
	switch {
	case host.Spec.ConsumerRef != nil:
		return found(poolv1.EventHostHasConsumer, "%s %s has taken the host, by spec.consumerRef: remove the annotations %s and %s, or the consumer",
			host.Spec.ConsumerRef.Kind, host.Spec.ConsumerRef.Name, poolv1.HostPoolAnnotation, poolv1.HostClusterAnnotation)
	case enroll.Allows("*", host.Name) != "":
		return found(poolv1.EventHostRequestInvalid, "the Node gets the host's name, and %s: name the host otherwise", enroll.Allows("*", host.Name))
	case cluster != nil && identity.Of(cluster).CheckNodeName(host.Name) != nil:
		return found(poolv1.EventHostRequestInvalid, "the Node gets the host's name, and %s: name the host otherwise", identity.Of(cluster).CheckNodeName(host.Name))
	case host.Spec.ExternallyProvisioned:
		return found(poolv1.EventHostRequestInvalid, "a host with spec.externallyProvisioned gets no user data: let it come with an enrollment token")
	case host.Spec.Image.IsLiveISO():
		return found(bootstrapv1.HostImageIgnoresUserDataReason, "an image with spec.image.format live-iso gets no user data: give the host a disk image")
	}
	return nil
}

// judgeUserData says what of the user data of a host is to be told, and whether it is to be set to the data Secret.
func judgeUserData(host *bmov1alpha1.BareMetalHost, config *bootstrapv1.PoolbootConfig) (told *finding, set bool) {
	switch state := host.Status.Provisioning.State; {
	case isOwn(host, config):
		return nil, false
	case host.Spec.UserData != nil:
		return found(bootstrapv1.UserDataTakenReason, "spec.userData of BareMetalHost %s is Secret %s, not Poolboot's: remove it, and Poolboot sets its own; or remove the annotation %s",
			host.Name, host.Spec.UserData.Name, poolv1.HostPoolAnnotation), false
	case state == bmov1alpha1.StateProvisioning || state == bmov1alpha1.StateProvisioned:
		return found(bootstrapv1.HostProvisionedBeforeReason, "BareMetalHost %s is %s without user data: remove its spec.image, and put it back once the host is available",
			host.Name, state), false
	}
	return nil, true
}

// isOwn says whether the user data of a host is the data Secret of its record.
func isOwn(host *bmov1alpha1.BareMetalHost, config *bootstrapv1.PoolbootConfig) bool {
	return host.Spec.UserData != nil && host.Spec.UserData.Name == config.Name &&
		(host.Spec.UserData.Namespace == host.Namespace || host.Spec.UserData.Namespace == "")
}

// userData names the data Secret of a record.
func userData(config *bootstrapv1.PoolbootConfig) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: config.Namespace, Name: config.Name}
}
