package registration

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Naming is the input of Name.
type Naming struct {
	// Config is the PoolbootConfig of the host.
	Config *bootstrapv1.PoolbootConfig
	// Machine is the owner of Config. It is nil for a host without a Machine, and if the Machine no longer exists.
	Machine *clusterv1.Machine
	// Host is the name of the BareMetalHost that boots. It is empty while no host is known.
	Host string
}

// Name returns the name of the Node of a host. It returns "" while the name depends on a host that is not chosen yet.
// All other code uses this function.
//
// The name on record is kept, unless the Node is named after its host and another host boots now. If no name is on
// record, such as before the first boot and after clusterctl move, the first of these applies:
//
//   - spec.host.nodeName, for a host without a Machine
//   - the name of the Node that Cluster API found for the Machine
//   - the name of the BareMetalHost, with nodeNameSource: Host
//   - the name of the Machine
func Name(of Naming) string {
	config := of.Config
	host := of.Host
	if host == "" && config.Status.HostRef.IsDefined() {
		host = config.Status.HostRef.Name
	}
	switch {
	case record.HasNode(config) && (!NamedAfterHost(config) || !hostChanged(config, of.Host)):
		return config.Status.NodeRef.Name
	case record.IsMachineless(config):
		return config.Spec.Host.NodeName
	case of.Machine != nil && of.Machine.Status.NodeRef.IsDefined():
		return of.Machine.Status.NodeRef.Name
	case NamedAfterHost(config):
		return host
	case of.Machine != nil:
		return of.Machine.Name
	}
	return record.MachineName(config)
}

// NamedAfterHost reports whether a Node gets the name of the BareMetalHost of its Machine.
func NamedAfterHost(config *bootstrapv1.PoolbootConfig) bool {
	return !record.IsMachineless(config) && config.Spec.NodeNamedAfter() == bootstrapv1.NodeNameSourceHost
}

// Rename returns the instruction to give the Node of a host another name, for messages.
func Rename(config *bootstrapv1.PoolbootConfig) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return "register the BareMetalHost under another name"
	case record.EnrolledHost:
		return "have the host enroll under another name"
	case record.AdoptedHost:
		return "create a PoolbootConfig with the name of another Node"
	}
	if NamedAfterHost(config) {
		return "give the BareMetalHost another name"
	}
	return "give the Machine another name"
}

// hostChanged reports whether a host is known and is not the one on record.
func hostChanged(config *bootstrapv1.PoolbootConfig, host string) bool {
	return host != "" && config.Status.HostRef.IsDefined() && config.Status.HostRef.Name != host
}
