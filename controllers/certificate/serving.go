package certificate

import (
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// The API server and clients that scrape metrics verify a kubelet by its serving certificate. A kubelet with
// serverTLSBootstrap requests one itself after it has joined. Kubernetes does not approve these requests.

// isServingRequest reports whether a request is from the kubelet of a Node for its serving certificate, and is
// undecided.
func isServingRequest(request *certificatesv1.CertificateSigningRequest, node string) bool {
	return node != "" &&
		request.Spec.SignerName == certificatesv1.KubeletServingSignerName &&
		request.Spec.Username == workload.NodeUserPrefix+node &&
		slices.Contains(request.Spec.Groups, nodesGroup) &&
		isUndecided(request)
}

// decideServing decides a request for a serving certificate: it must be for the name of the Node, and for known
// addresses of its host that nothing else uses. The addresses in the Node's status do not count, because root on the
// host can write them. No request is denied: another approver can have more information, and the known addresses can
// change.
func decideServing(f facts) (verdict, string) {
	if !record.HasNode(f.config) {
		return wait, "no Node is recorded"
	}
	name := f.config.Status.NodeRef.Name
	if err := f.cluster.CheckNodeName(name); err != nil {
		return abstain, err.Error()
	}
	if why := f.nodeProblem(); why != "" {
		return wait, why
	}
	requested, requestedName, err := parseKubeletRequest(f.request, certificatesv1.UsageServerAuth)
	switch {
	case err != nil:
		return abstain, err.Error()
	case requestedName != name:
		return abstain, fmt.Sprintf("the common name is %q, not %s%s", requested.Subject.CommonName, workload.NodeUserPrefix, name)
	case len(requested.DNSNames)+len(requested.IPAddresses) == 0:
		return abstain, "it requests no name and no address"
	}
	for _, dns := range requested.DNSNames {
		if dns != name {
			return abstain, fmt.Sprintf("the name %s is not the name of Node %s", dns, name)
		}
	}
	for _, ip := range requested.IPAddresses {
		address, _ := netip.AddrFromSlice(ip)
		address = address.Unmap()
		if why := f.cluster.CheckAddress(address); why != "" {
			return abstain, fmt.Sprintf("the address %s cannot be an address of Node %s: %s", address, name, why)
		}
		if !slices.Contains(f.addresses.known, address) {
			return abstain, fmt.Sprintf("the address %[2]s is not a known address of the host of Node %[1]s: if the host has it, %[3]s", name, address, f.addresses.remedy)
		}
		if other, used := f.addresses.usedBy[address]; used {
			return abstain, fmt.Sprintf("%s also has the address %s: if it is an address of the host of Node %s, %s", other, address, name, f.addresses.remedy)
		}
	}
	return approve, fmt.Sprintf("it is for the name of Node %s and known addresses of its host", name)
}
