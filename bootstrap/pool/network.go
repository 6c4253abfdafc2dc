package pool

import poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"

// NetworkRendererOf returns the program that configures the network of a pool's hosts, which a pool inherits from
// worker, or "" if neither says it.
func NetworkRendererOf(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) poolv1.NetworkRenderer {
	if own := p.Spec.Hosts.NetworkRenderer; own != "" {
		return own
	}
	if parent, err := ParentOf(p, pools); err == nil && parent != nil {
		return parent.Spec.Hosts.NetworkRenderer
	}
	return ""
}

// NetworkRendererOfRole returns NetworkRendererOf the pool with a role, or "" if there is no such pool.
func NetworkRendererOfRole(role string, pools []poolv1.MachineConfigPool) poolv1.NetworkRenderer {
	if p, err := OfRole(pools, role); err == nil {
		return NetworkRendererOf(p, pools)
	}
	return ""
}
