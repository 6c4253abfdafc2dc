// Package record reads the record of a boot from a PoolbootConfig and its pre-registered Node: the state of the token,
// whether the host has joined, the kind of host, the stage of the boot, and the names of the objects that belong to it.
// Each of these questions has one function here, and a test fails when other code reads the fields that the answer
// depends on. The package is pure: no client, no I/O.
package record

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Key returns the key of a PoolbootConfig. As text, <namespace>/<name>, it names the PoolbootConfig in the workload
// cluster: in an annotation of its Node and in its join credentials.
func Key(config *bootstrapv1.PoolbootConfig) types.NamespacedName {
	return types.NamespacedName{Namespace: config.Namespace, Name: config.Name}
}

// MachineName returns the name of the Machine that owns a PoolbootConfig. It is empty if no Machine does.
func MachineName(config *bootstrapv1.PoolbootConfig) string {
	for _, owner := range config.OwnerReferences {
		if owner.Kind == "Machine" {
			return owner.Name
		}
	}
	return ""
}

// HostName returns how messages name the host of a PoolbootConfig: by its Node or, as long as it has none, by its
// BareMetalHost, the name with which it enrolled, its Machine, or the PoolbootConfig.
func HostName(config *bootstrapv1.PoolbootConfig) string {
	return cmp.Or(config.Status.NodeRef.Name, config.Status.HostRef.Name, config.Spec.Host.BareMetalHostName, config.Spec.Host.NodeName,
		MachineName(config), config.Name)
}

// ClusterName returns the name of a PoolbootConfig's Cluster, from the label that Cluster API's contract requires. It
// is empty while the label is not set.
func ClusterName(config *bootstrapv1.PoolbootConfig) string {
	return config.Labels[clusterv1.ClusterNameLabel]
}

// ClusterKey returns the key of a PoolbootConfig's Cluster.
func ClusterKey(config *bootstrapv1.PoolbootConfig) types.NamespacedName {
	return types.NamespacedName{Namespace: config.Namespace, Name: ClusterName(config)}
}

// OverlayName returns the name of the overlay Secret of the PoolbootConfig with a UID.
func OverlayName(config types.UID) string { return bootstrapv1.OverlayNamePrefix + string(config) }

// OverlayOwner returns the UID of the PoolbootConfig that the overlay Secret with a name belongs to.
func OverlayOwner(name string) types.UID {
	return types.UID(strings.TrimPrefix(name, bootstrapv1.OverlayNamePrefix))
}

// AssignmentName returns the name of the assignment Secret of the PoolbootConfig with a UID.
func AssignmentName(config types.UID) string {
	return bootstrapv1.AssignmentNamePrefix + string(config)
}

// AssignmentOwner returns the UID of the PoolbootConfig that the assignment Secret with a name belongs to.
func AssignmentOwner(name string) types.UID {
	return types.UID(strings.TrimPrefix(name, bootstrapv1.AssignmentNamePrefix))
}

// HostKind is the kind of host that a PoolbootConfig is for.
type HostKind string

const (
	// MachineHost is the host of a Machine.
	MachineHost HostKind = "Machine"
	// BareMetalHost is a BareMetalHost without a Machine, with an annotation that requests a pool.
	BareMetalHost HostKind = "BareMetalHost"
	// EnrolledHost is a host without a Machine that enrolled with a token.
	EnrolledHost HostKind = "Enrolled"
	// AdoptedHost is a host that Poolboot did not boot. It can be that of a Machine with another bootstrap provider.
	AdoptedHost HostKind = "Adopted"
)

// HostKindOf returns the kind of host that a PoolbootConfig is for. It also returns MachineHost for a PoolbootConfig
// that no Machine owns yet, unless it names its host.
func HostKindOf(config *bootstrapv1.PoolbootConfig) HostKind {
	switch config.Spec.Host.Type {
	case "":
		return MachineHost
	case bootstrapv1.HostTypeBareMetalHost:
		return BareMetalHost
	case bootstrapv1.HostTypeNode:
		return AdoptedHost
	default:
		return EnrolledHost
	}
}

// IsMachineless reports whether a PoolbootConfig is no Machine's bootstrap config.
func IsMachineless(config *bootstrapv1.PoolbootConfig) bool { return HostKindOf(config) != MachineHost }

// IsAdopted reports whether Poolboot did not boot the host of a PoolbootConfig.
func IsAdopted(config *bootstrapv1.PoolbootConfig) bool { return HostKindOf(config) == AdoptedHost }

// IsPreview reports whether the host of a PoolbootConfig was adopted, and is to stay, or become again, as it was found.
func IsPreview(config *bootstrapv1.PoolbootConfig) bool {
	return config.Spec.Host.Adoption == bootstrapv1.AdoptionPreview
}

// IsAsFound reports whether the host of a PoolbootConfig was adopted and is as it was found, in no pool.
func IsAsFound(config *bootstrapv1.PoolbootConfig) bool {
	update := &config.Status.Update
	return IsPreview(config) && (update.Desired.Name == "" || update.Desired.Name == agentv1.AsFoundConfig) && update.Slot == ""
}

// LacksConfiguration reports whether a host has joined, and nothing is recorded about what it runs, as just after
// clusterctl move. An adopted host that is to be as it was found needs no rendered config for that.
func LacksConfiguration(config *bootstrapv1.PoolbootConfig) bool {
	return HasJoined(config) && config.Status.Boot.ServedConfiguration.Name == "" && !IsPreview(config)
}

// IsEnrolled reports whether the host of a PoolbootConfig enrolled with a token. Such a host needs no data Secret.
func IsEnrolled(config *bootstrapv1.PoolbootConfig) bool { return HostKindOf(config) == EnrolledHost }

// BindsTokenToAddresses reports whether the token of a PoolbootConfig's host is accepted only from the addresses of the
// host.
func BindsTokenToAddresses(config *bootstrapv1.PoolbootConfig) bool {
	return !config.Spec.IsInline() && config.Spec.ConfigSource.Server.TokenBinding == bootstrapv1.TokenBindingHostAddresses
}

// RefusesAddress reports whether the config server refuses the token of a PoolbootConfig's host from an address.
func RefusesAddress(config *bootstrapv1.PoolbootConfig, address string) bool {
	return BindsTokenToAddresses(config) && !slices.Contains(config.Status.HostAddresses, address)
}

// TokenAddresses returns the addresses from which the latest token of a PoolbootConfig's host was used, in the order of
// their first use.
func TokenAddresses(config *bootstrapv1.PoolbootConfig) []string {
	noted := slices.SortedFunc(slices.Values(config.Status.Requests.Addresses), ByFirstUse)
	var latest []string
	for _, address := range noted {
		if _, err := netip.ParseAddr(address.Address); err == nil && address.Token == noted[len(noted)-1].Token {
			latest = append(latest, address.Address)
		}
	}
	return latest
}

// ByFirstUse compares two addresses by the time when a token was first used from them.
func ByFirstUse(a, b bootstrapv1.TokenAddress) int {
	return cmp.Or(a.FirstUsedTime.Compare(b.FirstUsedTime.Time), cmp.Compare(a.Address, b.Address))
}

// ConfigOfNode returns the PoolbootConfig for which a Node was pre-registered, from its annotation. It returns false if
// Poolboot did not pre-register the Node.
func ConfigOfNode(node metav1.Object) (types.NamespacedName, bool) {
	namespace, name, found := strings.Cut(node.GetAnnotations()[poolv1.NodeConfigAnnotation], "/")
	if !found || namespace == "" || name == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}

// IsNodeOf reports whether a Node was pre-registered for a PoolbootConfig.
func IsNodeOf(node metav1.Object, config *bootstrapv1.PoolbootConfig) bool {
	owner, found := ConfigOfNode(node)
	return found && owner == Key(config)
}

// HasKubelet reports whether a kubelet has used a Node. Only a kubelet reports a version.
func HasKubelet(node *corev1.Node) bool { return node.Status.NodeInfo.KubeletVersion != "" }
