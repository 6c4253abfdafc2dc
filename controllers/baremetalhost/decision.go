package baremetalhost

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/hostpool"
)

// requestsPool reports whether a host has an annotation for a pool.
func requestsPool(host *bmov1alpha1.BareMetalHost) bool {
	return metav1.HasAnnotation(host.ObjectMeta, poolv1.HostPoolAnnotation) || metav1.HasAnnotation(host.ObjectMeta, poolv1.HostClusterAnnotation)
}

// releaseReason returns why a host no longer needs its PoolbootConfig, and "" while it does.
//
// The Cluster is not an owner of the PoolbootConfig: the garbage collector deletes an object only after all its owners
// are deleted, and the host continues to exist.
func releaseReason(s *scope) string {
	host, config := s.host, s.config
	booted := record.HasRequested(config) || record.HasNode(config) || record.HasJoined(config)
	state := host.Status.Provisioning.State
	switch {
	case !metav1.IsControlledBy(config, host):
		return "it belongs to an earlier BareMetalHost with this name"
	case !host.DeletionTimestamp.IsZero():
		return "the host is being deleted"
	case s.target.Cluster == nil:
		return "Cluster " + record.ClusterName(config) + " is deleted"
	case !s.clusterExists():
		return "Cluster " + record.ClusterName(config) + " is being deleted"
	case hostpool.PredatesCluster(config, s.target.Cluster):
		return "it belongs to an earlier Cluster " + record.ClusterName(config)
	case host.Spec.ConsumerRef != nil:
		return fmt.Sprintf("%s %s is the consumer of the host", host.Spec.ConsumerRef.Kind, host.Spec.ConsumerRef.Name)
	case host.Annotations[poolv1.HostPoolAnnotation] == "":
		return "the host no longer has the annotation " + poolv1.HostPoolAnnotation
	case host.Annotations[poolv1.HostClusterAnnotation] != record.ClusterName(config):
		return "the annotation " + poolv1.HostClusterAnnotation + " of the host no longer names Cluster " + record.ClusterName(config)
	case state == bmov1alpha1.StateDeprovisioning,
		booted && (state == bmov1alpha1.StateAvailable || state == bmov1alpha1.StateReady || state == bmov1alpha1.StatePreparing):
		return "the host was deprovisioned"
	}
	return ""
}

// refusalReason returns why a host cannot boot into a pool of a Cluster, and nil if it can. The Cluster is nil if it
// does not exist.
func refusalReason(host *bmov1alpha1.BareMetalHost, cluster *clusterv1.Cluster) *hostpool.Obstacle {
	for _, key := range []string{poolv1.HostPoolAnnotation, poolv1.HostClusterAnnotation} {
		if host.Annotations[key] == "" {
			return hostpool.NewObstacle(poolv1.EventHostRequestInvalid, "the host needs both annotations %s and %s to boot into a pool: add %s",
				poolv1.HostPoolAnnotation, poolv1.HostClusterAnnotation, key)
		}
	}
	switch {
	case host.Spec.ConsumerRef != nil:
		return hostpool.NewObstacle(poolv1.EventHostHasConsumer, "%s %s is the consumer of the host (spec.consumerRef): remove the annotations %s and %s, or the consumer",
			host.Spec.ConsumerRef.Kind, host.Spec.ConsumerRef.Name, poolv1.HostPoolAnnotation, poolv1.HostClusterAnnotation)
	case access.CheckName("*", host.Name) != "":
		return hostpool.NewObstacle(poolv1.EventHostRequestInvalid, "the Node gets the name of the host, and %s: use another name for the host", access.CheckName("*", host.Name))
	case cluster != nil && access.ClusterOf(cluster).CheckNodeName(host.Name) != nil:
		return hostpool.NewObstacle(poolv1.EventHostRequestInvalid, "the Node gets the name of the host, and %s: use another name for the host", access.ClusterOf(cluster).CheckNodeName(host.Name))
	case host.Spec.ExternallyProvisioned:
		return hostpool.NewObstacle(poolv1.EventHostRequestInvalid, "a host with spec.externallyProvisioned gets no user data: enroll it with an enrollment token")
	case host.Spec.Image.IsLiveISO():
		return hostpool.NewObstacle(bootstrapv1.HostImageIgnoresUserDataReason, "an image with spec.image.format live-iso gets no user data: use a disk image")
	}
	return nil
}

// decideUserData returns a problem with the user data of a host, and whether to set it to the data Secret. isTaken is
// true if the host has other user data that exists. Metal3 leaves the user data of a deleted Machine on a host that it
// released after a move, and does not install a host whose user data does not exist. So that user data is replaced,
// also while the host is being installed.
func decideUserData(host *bmov1alpha1.BareMetalHost, config *bootstrapv1.PoolbootConfig, isTaken bool) (problem *hostpool.Obstacle, set bool) {
	state := host.Status.Provisioning.State
	isInstalled := state == bmov1alpha1.StateProvisioning && host.Spec.UserData == nil || state == bmov1alpha1.StateProvisioned
	switch {
	case hasOwnUserData(host, config):
		return nil, false
	case isTaken && (isInstalled || state == bmov1alpha1.StateProvisioning):
		return hostpool.NewObstacle(bootstrapv1.UserDataTakenReason, "BareMetalHost %s is %s, and its spec.userData is Secret %s, which is not Poolboot's: remove its spec.image, "+
			"remove spec.userData when the host is available, and add the image again; or remove the annotation %s", host.Name, state, host.Spec.UserData.Name, poolv1.HostPoolAnnotation), false
	case isTaken:
		return hostpool.NewObstacle(bootstrapv1.UserDataTakenReason, "spec.userData of BareMetalHost %s is Secret %s, which is not Poolboot's: remove it, and Poolboot sets its own; or remove the annotation %s",
			host.Name, host.Spec.UserData.Name, poolv1.HostPoolAnnotation), false
	case isInstalled:
		return hostpool.NewObstacle(bootstrapv1.HostProvisionedBeforeReason, "BareMetalHost %s is %s without the user data of Poolboot: remove its spec.image, and add it again after the host is available",
			host.Name, state), false
	}
	return nil, true
}

// hasOwnUserData reports whether the user data of a host is the data Secret of its PoolbootConfig.
func hasOwnUserData(host *bmov1alpha1.BareMetalHost, config *bootstrapv1.PoolbootConfig) bool {
	return host.Spec.UserData != nil && host.Spec.UserData.Name == config.Name &&
		(host.Spec.UserData.Namespace == host.Namespace || host.Spec.UserData.Namespace == "")
}

// userDataRef returns the reference to the data Secret of a PoolbootConfig.
func userDataRef(config *bootstrapv1.PoolbootConfig) *corev1.SecretReference {
	return &corev1.SecretReference{Namespace: config.Namespace, Name: config.Name}
}
