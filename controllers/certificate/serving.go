package certificate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

// Serving certificates are what the API server, and who scrapes metrics, knows a kubelet by. A kubelet that has joined asks for
// them itself, when its configuration says serverTLSBootstrap, and Kubernetes approves none.

// servingUsages are those that a kubelet's serving certificate may have; key encipherment is left out for keys that can't do it.
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

// decideServing says whether a kubelet gets the serving certificate that it asks for: for its Node's name, and addresses that
// its host is known to have. What the Node says of itself does not count, for root on the host can have it say anything. Nothing
// is denied: another approver may know better, and what is known of the host may change.
func decideServing(f facts) (verdict, string) {
	if f.config.Status.Node == nil {
		return wait, "no Node is on record"
	}
	name := f.config.Status.Node.Name
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
		if address = address.Unmap(); !slices.Contains(f.addresses, address) {
			return leave, fmt.Sprintf("the host of Node %s is not known to have the address %s: if it has, add that to the annotation %s of its BareMetalHost",
				name, address, host.AddressesAnnotation)
		}
	}
	return approve, fmt.Sprintf("it is for the name of Node %s and addresses of its host", name)
}

// addressesOf returns the addresses that the host of a config is known to have: those of its BareMetalHost, or the one that a
// host without any enrolled from.
func (r *Reconciler) addressesOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) ([]netip.Addr, error) {
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	found, err := host.ForConfig(ctx, r.Client, config, machine)
	if notReady := (*host.NotReadyError)(nil); errors.As(err, &notReady) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if found == nil {
		address, err := netip.ParseAddr(config.Annotations[bootstrapv1.EnrolledFromAnnotation])
		if err != nil {
			return nil, nil //nolint:nilerr // It did not enrol.
		}
		return []netip.Addr{address.Unmap()}, nil
	}
	return host.Addresses(ctx, r.Client, found.Object)
}
