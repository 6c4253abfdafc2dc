package certificate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// verdict is what is to become of a certificate signing request.
type verdict int

const (
	// wait leaves the request as it is: what it rests on may yet come.
	wait verdict = iota
	// approve lets Kubernetes sign it.
	approve
	// contest leaves it like wait, and tells: it may be a thief's.
	contest
	// deny ends it.
	deny
	// leave leaves it to others, and says why it is not approved.
	leave
)

// pickUpTime is how long the kubelet that a certificate was approved for is waited for. A kubelet that has its
// certificate writes its Node's status some seconds later.
const pickUpTime = 20 * time.Second

// facts is all that a verdict rests on.
type facts struct {
	request *certificatesv1.CertificateSigningRequest
	// config is the PoolbootConfig whose credential made the request.
	config *bootstrapv1.PoolbootConfig
	// node is the Node that the config records; nil when it does not stand.
	node *corev1.Node
	// pools are those of the cluster.
	pools []poolv1.MachineConfigPool
	// now is when all this was so.
	now time.Time
	// cluster is what the Node's cluster is known by.
	cluster identity.Cluster
	// addresses are what is known of the host's addresses, for serving certificates only.
	addresses addresses
}

// isOurs says whether a request was made with a config's join credential, for a kubelet's client certificate, and is
// undecided.
func isOurs(request *certificatesv1.CertificateSigningRequest, credentialID string) bool {
	return credentialID != "" &&
		request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
		request.Spec.Username == bootstrapapi.BootstrapUserPrefix+credentialID &&
		slices.Contains(request.Spec.Groups, join.Group) &&
		undecided(request)
}

func undecided(request *certificatesv1.CertificateSigningRequest) bool {
	return len(request.Status.Certificate) == 0 &&
		!slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
		})
}

// judge says what is to become of a request, of whatever signer it is. What is not Poolboot's to decide is left to
// others.
func judge(f facts) (verdict, string) {
	if !concerns(f.request, f.config) {
		return leave, "the request is not one of a kubelet of Poolboot's host"
	}
	switch f.request.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName:
		return decide(f)
	case certificatesv1.KubeletServingSignerName:
		return decideServing(f)
	default:
		return leave, "the request is for another signer"
	}
}

// decide says what is to become of a request and why. The one certificate that a join credential can get is that of a
// kubelet, for the Node that was made beforehand for its Machine, while that Node stands in its pool. A request for
// another Node is denied; one that is only early waits.
//
// A kubelet makes a new key whenever it starts without a certificate (client-go, util/certificate), so one that starts
// again in the middle of its join leaves a request behind that nobody will come with. That is why another key may take
// the place of one that was approved, but only when no kubelet has come with it for pickUpTime; and while one works, it
// is denied.
func decide(f facts) (verdict, string) {
	name, err := kubeletOf(f.request)
	if err != nil {
		return deny, "a join credential is for a kubelet's client certificate only: " + err.Error()
	}
	recorded := f.config.Status.NodeRef
	if !recorded.IsDefined() {
		return wait, "no Node is made for the Machine yet"
	}
	if name != recorded.Name {
		return deny, fmt.Sprintf("the credential is for Node %s, not for Node %s", recorded.Name, name)
	}
	if err := f.cluster.CheckNodeName(name); err != nil {
		return deny, err.Error()
	}
	if why := f.nodeMissing(); why != "" {
		return wait, why
	}
	decision, err := pool.Decide(f.node.Labels, f.pools)
	switch {
	case err != nil:
		return wait, fmt.Sprintf("Node %s: %s", name, err)
	case decision.Role == "" || decision.Role != f.config.Status.PoolRole:
		return wait, fmt.Sprintf("Node %s is in pool %q, on record is %q", name, decision.Role, f.config.Status.PoolRole)
	}
	if isForAnotherKey(f) {
		switch {
		case hasKubelet(f.node):
			return deny, fmt.Sprintf("Node %s has a kubelet, with the one certificate that the credential gets: somebody else has the credential", name)
		case f.now.Sub(f.config.Status.Boot.Certificate.GrantedTime.Time) < pickUpTime:
			return contest, fmt.Sprintf("a certificate for Node %s was just approved for another key: the host started again, or somebody else has the credential; "+
				"this request waits %s for who has that key", name, pickUpTime)
		}
		return approve, fmt.Sprintf("Node %s stands in pool %q, and nobody came with the certificate approved before", name, decision.Role)
	}
	return approve, fmt.Sprintf("Node %s stands in pool %q", name, decision.Role)
}

// isForAnotherKey says whether a credential was used for another key before.
func isForAnotherKey(f facts) bool {
	return record.IsCredentialUsed(f.config) && f.config.Status.Boot.Certificate.PublicKeySHA256 != keyOf(f.request)
}

// hasKubelet says whether a kubelet reports on a Node.
func hasKubelet(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status != corev1.ConditionUnknown && c.Reason != registration.WaitingForKubeletReason
	})
}

// nodeMissing says why the Node that is on record does not stand; "" when it does.
func (f facts) nodeMissing() string {
	recorded := f.config.Status.NodeRef
	switch {
	case f.node == nil:
		return fmt.Sprintf("Node %s does not stand yet", recorded.Name)
	case !record.IsNodeOf(f.node, f.config):
		return fmt.Sprintf("Node %s was not made for PoolbootConfig %s", recorded.Name, client.ObjectKeyFromObject(f.config))
	case string(f.node.UID) != recorded.UID:
		return fmt.Sprintf("Node %s has UID %s, on record is %s", recorded.Name, f.node.UID, recorded.UID)
	}
	return ""
}

// kubeletOf returns the name of the Node whose kubelet a request would make its bearer. The rules for such requests are
// those of the signer kubernetes.io/kube-apiserver-client-kubelet.
func kubeletOf(request *certificatesv1.CertificateSigningRequest) (string, error) {
	wanted, err := parse(request.Spec.Request)
	if err != nil {
		return "", err
	}
	name, isNode := strings.CutPrefix(wanted.Subject.CommonName, nodeUserPrefix)
	switch {
	case !isNode || name == "":
		return "", fmt.Errorf("the common name is %q, not %s<name>", wanted.Subject.CommonName, nodeUserPrefix)
	case !slices.Equal(wanted.Subject.Organization, []string{nodesGroup}):
		return "", fmt.Errorf("the organization is %q, not %q", wanted.Subject.Organization, nodesGroup)
	case len(wanted.DNSNames)+len(wanted.EmailAddresses)+len(wanted.IPAddresses)+len(wanted.URIs) > 0:
		return "", fmt.Errorf("it asks for subject alternative names")
	}
	for _, usage := range request.Spec.Usages {
		if !slices.Contains(kubeletUsages, usage) {
			return "", fmt.Errorf("it asks for the usage %q", usage)
		}
	}
	if !slices.Contains(request.Spec.Usages, certificatesv1.UsageClientAuth) {
		return "", fmt.Errorf("it does not ask for the usage %q", certificatesv1.UsageClientAuth)
	}
	return name, nil
}
