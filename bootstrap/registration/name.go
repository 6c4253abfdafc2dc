package registration

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Naming is all that decides which name a Node has.
type Naming struct {
	// Config is the PoolbootConfig that the Node's host boots by.
	Config *bootstrapv1.PoolbootConfig
	// Machine owns the config; nil for a host without a Machine, and when the Machine does not exist any more.
	Machine *clusterv1.Machine
	// Host is the name of the BareMetalHost that boots; empty while it is not known.
	Host string
}

// Name returns the name that a Node has, or is to be registered with; "" while that depends on a host that is not
// chosen. It is the only place where that is decided.
//
// A name that is on record stays, unless it is that of a host and another host boots now. Without a record, as before
// the first boot and after clusterctl move, it is that of a host without a Machine; that of the Node which Cluster API
// found for the Machine; with nodeName: Host that of the host; else the Machine's.
func Name(of Naming) string {
	config := of.Config
	host := of.Host
	if host == "" && config.Status.HostRef.IsDefined() {
		host = config.Status.HostRef.Name
	}
	switch {
	case record.HasNode(config) && (!NamedAfterHost(config) || !isAnotherHost(config, of.Host)):
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
	for _, owner := range config.OwnerReferences {
		if owner.Kind == machineKind {
			return owner.Name
		}
	}
	return ""
}

// NamedAfterHost says whether a Node gets the name of the BareMetalHost that its Machine is on.
func NamedAfterHost(config *bootstrapv1.PoolbootConfig) bool {
	return !record.IsMachineless(config) && config.Spec.NodeNamedAfter() == bootstrapv1.NodeNameSourceHost
}

// Rename says how a host's Node gets another name.
func Rename(config *bootstrapv1.PoolbootConfig) string {
	switch record.HostKindOf(config) {
	case record.BareMetalHost:
		return "register the BareMetalHost under another name"
	case record.EnrolledHost:
		return "have the host enroll under another name"
	}
	if NamedAfterHost(config) {
		return "give the BareMetalHost another name"
	}
	return "give the Machine another name"
}

// isAnotherHost says whether a host is not the one on record.
func isAnotherHost(config *bootstrapv1.PoolbootConfig, host string) bool {
	return host != "" && config.Status.HostRef.IsDefined() && config.Status.HostRef.Name != host
}

const machineKind = "Machine"
