package certificate

import (
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Serving certificates are what the API server, and who scrapes metrics, knows a kubelet by. A kubelet that has joined
// asks for them itself, when its configuration says serverTLSBootstrap, and Kubernetes approves none.

// servingUsages are those that a kubelet's serving certificate may have; key encipherment is left out for keys that
// can't do it.
var servingUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageServerAuth,
}

// isServing says whether a request is one of a Node's kubelet for its serving certificate, and is undecided.
func isServing(request *certificatesv1.CertificateSigningRequest, node string) bool {
	return node != "" &&
		request.Spec.SignerName == certificatesv1.KubeletServingSignerName &&
		request.Spec.Username == nodeUserPrefix+node &&
		slices.Contains(request.Spec.Groups, nodesGroup) &&
		undecided(request)
}

// decideServing says whether a kubelet gets the serving certificate that it asks for: for its Node's name, and
// addresses that its host is known to have and that stand for nothing else. What the Node says of itself does not
// count, for root on the host can have it say anything. Nothing is denied: another approver may know better, and what
// is known of the host may change.
func decideServing(f facts) (verdict, string) {
	if !record.HasNode(f.config) {
		return wait, "no Node is on record"
	}
	name := f.config.Status.NodeRef.Name
	if err := f.cluster.CheckNodeName(name); err != nil {
		return leave, err.Error()
	}
	if why := f.nodeMissing(); why != "" {
		return wait, why
	}
	wanted, err := parse(f.request.Spec.Request)
	if err != nil {
		return leave, err.Error()
	}
	switch {
	case wanted.Subject.CommonName != nodeUserPrefix+name:
		return leave, fmt.Sprintf("the common name is %q, not %s%s", wanted.Subject.CommonName, nodeUserPrefix, name)
	case !slices.Equal(wanted.Subject.Organization, []string{nodesGroup}):
		return leave, fmt.Sprintf("the organization is %q, not %q", wanted.Subject.Organization, nodesGroup)
	case len(wanted.EmailAddresses)+len(wanted.URIs) > 0:
		return leave, "it asks for e-mail addresses or URIs"
	case len(wanted.DNSNames)+len(wanted.IPAddresses) == 0:
		return leave, "it asks for no name and no address"
	case !slices.Contains(f.request.Spec.Usages, certificatesv1.UsageServerAuth):
		return leave, fmt.Sprintf("it does not ask for the usage %q", certificatesv1.UsageServerAuth)
	}
	for _, usage := range f.request.Spec.Usages {
		if !slices.Contains(servingUsages, usage) {
			return leave, fmt.Sprintf("it asks for the usage %q", usage)
		}
	}
	for _, dns := range wanted.DNSNames {
		if dns != name {
			return leave, fmt.Sprintf("the name %s is not that of Node %s", dns, name)
		}
	}
	for _, ip := range wanted.IPAddresses {
		address, _ := netip.AddrFromSlice(ip)
		address = address.Unmap()
		if why := f.cluster.CheckAddress(address); why != "" {
			return leave, fmt.Sprintf("the address %s can't be that of Node %s: %s", address, name, why)
		}
		if !slices.Contains(f.addresses.known, address) {
			return leave, fmt.Sprintf("the host of Node %s is not known to have the address %s: if it has, %s", name, address, f.addresses.cure)
		}
		if other, taken := f.addresses.taken[address]; taken {
			return leave, fmt.Sprintf("%s has the address %s too: if it is that of the host of Node %s, %s", other, address, name, f.addresses.cure)
		}
	}
	return approve, fmt.Sprintf("it is for the name of Node %s and addresses of its host", name)
}
