package certificate

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// verdict is the decision on a certificate signing request.
type verdict int

const (
	// wait leaves the request open and checks it again: the reason can be temporary.
	wait verdict = iota
	// approve approves the request.
	approve
	// contested is the same as wait, but sends an event: the request can be from a thief of the credential.
	contested
	// deny denies the request.
	deny
	// abstain leaves the request open for other approvers, and reports why Poolboot does not approve it.
	abstain
)

// pickupTimeout is how long to wait for the kubelet whose certificate was approved. A kubelet writes the status of its
// Node some seconds after it gets its certificate.
const pickupTimeout = 20 * time.Second

// isClientRequest reports whether a request is for a kubelet's client certificate, was created with the given join
// credential, and is undecided.
func isClientRequest(request *certificatesv1.CertificateSigningRequest, credentialID string) bool {
	return credentialID != "" &&
		request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
		request.Spec.Username == bootstrapapi.BootstrapUserPrefix+credentialID &&
		slices.Contains(request.Spec.Groups, join.Group) &&
		isUndecided(request)
}

func isUndecided(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) == 0 &&
		!slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
		})
}

// decide decides a request for any signer. It abstains from requests that are not for Poolboot to decide.
func decide(f facts) (verdict, string) {
	if !belongsTo(f.request, f.config) {
		return abstain, "the request is not from the kubelet of a host that Poolboot boots"
	}
	switch f.request.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return decideClient(f)
	case certificatesv1.KubeletServingSignerName:
		return decideServing(f)
	default:
		return abstain, "the request is for another signer"
	}
}

// decideClient decides a request with a join credential, and explains why. A join credential can get one certificate:
// that of the kubelet for the pre-registered Node, while this Node is in its pool. A request for another Node is
// denied. A request that is only too early waits.
//
// A kubelet creates a new key whenever it starts without a certificate (client-go, util/certificate). If it restarts
// during its join, its earlier request remains, and no client uses its certificate. So a second key can replace the
// approved one, but only if no kubelet used the first certificate for pickupTimeout. While a kubelet uses it, a second
// key is denied.
func decideClient(f facts) (verdict, string) {
	requested, name, err := parseKubeletRequest(f.request, certificatesv1.UsageClientAuth)
	if err == nil && len(requested.DNSNames)+len(requested.IPAddresses) > 0 {
		err = errors.New("it requests subject alternative names")
	}
	if err != nil {
		return deny, "a join credential is only for a client certificate of a kubelet: " + err.Error()
	}
	recorded := f.config.Status.NodeRef
	if !recorded.IsDefined() {
		return wait, "the Node is not pre-registered yet"
	}
	if name != recorded.Name {
		return deny, fmt.Sprintf("the join credential is for Node %s, not for Node %s", recorded.Name, name)
	}
	if err := f.cluster.CheckNodeName(name); err != nil {
		return deny, err.Error()
	}
	if why := f.nodeProblem(); why != "" {
		return wait, why
	}
	decision, err := pool.Decide(f.node.Labels, f.pools)
	switch {
	case err != nil:
		return wait, fmt.Sprintf("Node %s: %s", name, err)
	case decision.Role == "" || decision.Role != f.config.Status.PoolRole:
		return wait, fmt.Sprintf("Node %s is in pool %q, but its recorded pool is %q", name, decision.Role, f.config.Status.PoolRole)
	}
	if isForAnotherKey(f) {
		switch {
		case hasKubelet(f.node):
			return deny, fmt.Sprintf("Node %s already has a kubelet, which uses the certificate of the join credential: another client has the join credential", name)
		case f.now.Sub(f.config.Status.Certificate.GrantedTime.Time) < pickupTimeout:
			return contested, fmt.Sprintf("a certificate for Node %s was just approved for another key: the host restarted, or another client has the join credential; "+
				"this request waits %s for the kubelet with that key", name, pickupTimeout)
		}
		return approve, fmt.Sprintf("Node %s is in pool %q, and no kubelet used the certificate that was approved before", name, decision.Role)
	}
	return approve, fmt.Sprintf("Node %s is in pool %q", name, decision.Role)
}

// isForAnotherKey reports whether the join credential was already used for another key.
func isForAnotherKey(f facts) bool {
	return record.IsCredentialUsed(f.config) && f.config.Status.Certificate.PublicKeySHA256 != join.PublicKeySHA256(f.request.Spec.Request)
}

// hasKubelet reports whether a kubelet updates the status of a Node.
func hasKubelet(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown && c.Reason != registration.WaitingForKubeletReason
	})
}

// nodeProblem returns why the recorded Node cannot be used, and "" if it can.
func (f facts) nodeProblem() string {
	recorded := f.config.Status.NodeRef
	switch {
	case f.node == nil:
		return fmt.Sprintf("Node %s does not exist yet", recorded.Name)
	case !record.IsNodeOf(f.node, f.config):
		return fmt.Sprintf("Node %s was not pre-registered for PoolbootConfig %s", recorded.Name, client.ObjectKeyFromObject(f.config))
	case string(f.node.UID) != recorded.UID:
		return fmt.Sprintf("Node %s has UID %s, but the recorded UID is %s", recorded.Name, f.node.UID, recorded.UID)
	}
	return ""
}

// nodesGroup is the group of kubelets.
const nodesGroup = "system:nodes"

// parseKubeletRequest parses a request for a certificate of a kubelet, and returns the name of its Node. The usage auth
// is that of a client or of a serving certificate. It checks the rules that both have in common: the subject is that of
// a kubelet, and it requests no other usages. A kubelet omits key encipherment if its key does not support it.
func parseKubeletRequest(
	request *certificatesv1.CertificateSigningRequest, auth certificatesv1.KeyUsage,
) (requested *x509.CertificateRequest, node string, err error) {
	if requested, err = join.ParseCertificateRequest(request.Spec.Request); err != nil {
		return nil, "", err
	}
	node, ok := strings.CutPrefix(requested.Subject.CommonName, workload.NodeUserPrefix)
	switch {
	case !ok || node == "":
		err = fmt.Errorf("the common name is %q, not %s<name>", requested.Subject.CommonName, workload.NodeUserPrefix)
	case !slices.Equal(requested.Subject.Organization, []string{nodesGroup}):
		err = fmt.Errorf("the organization is %q, not %q", requested.Subject.Organization, nodesGroup)
	case len(requested.EmailAddresses)+len(requested.URIs) > 0:
		err = fmt.Errorf("it requests e-mail addresses or URIs")
	case !slices.Contains(request.Spec.Usages, auth):
		err = fmt.Errorf("it does not request the usage %q", auth)
	}
	allowed := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment, auth}
	for _, usage := range request.Spec.Usages {
		if err == nil && !slices.Contains(allowed, usage) {
			err = fmt.Errorf("it requests the usage %q", usage)
		}
	}
	return requested, node, err
}

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
			// Its network does not count: root on the host could claim the address of a neighbor, or a virtual one.
			return abstain, fmt.Sprintf("the address %[2]s is not a known address of the host of Node %[1]s: if only this host ever has it, %[3]s. "+
				"If it is a virtual or temporary address, give the kubelet another one with --node-ip", name, address, f.addresses.remedy)
		}
		if other, used := f.addresses.usedBy[address]; used {
			return abstain, fmt.Sprintf("%s also has the address %s: if it is an address of the host of Node %s, %s", other, address, name, f.addresses.remedy)
		}
	}
	return approve, fmt.Sprintf("it is for the name of Node %s and known addresses of its host", name)
}
