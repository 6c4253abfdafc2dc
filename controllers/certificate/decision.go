package certificate

import (
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
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
