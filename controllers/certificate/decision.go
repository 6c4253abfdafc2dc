package certificate

import (
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// verdict is what is to become of a certificate signing request.
type verdict int

const (
	// wait leaves the request as it is: what it rests on may yet come.
	wait verdict = iota
	// approve lets Kubernetes sign it.
	approve
	// deny ends it.
	deny
)

// facts is all that a verdict rests on.
type facts struct {
	request *certificatesv1.CertificateSigningRequest
	// config is the PoolbootConfig whose credential made the request.
	config *bootstrapv1.PoolbootConfig
	// node is the Node that the config records; nil when it does not stand.
	node *corev1.Node
	// pools are those of the cluster.
	pools []poolv1.MachineConfigPool
}

// isOurs says whether a request was made with a config's join credential, for a kubelet's client certificate, and is
// undecided.
func isOurs(request *certificatesv1.CertificateSigningRequest, credentialID string) bool {
	return credentialID != "" &&
		request.Spec.SignerName == certificatesv1.KubeAPIServerClientKubeletSignerName &&
		request.Spec.Username == bootstrapapi.BootstrapUserPrefix+credentialID &&
		slices.Contains(request.Spec.Groups, join.Group) &&
		len(request.Status.Certificate) == 0 &&
		!slices.ContainsFunc(request.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
			return c.Type == certificatesv1.CertificateApproved || c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
		})
}

// decide says what is to become of a request and why. The one certificate that a join credential can get is that of a
// kubelet, for the Node that was made beforehand for its Machine, while that Node stands in its pool. A request for
// another Node, or with another key than the first, is denied; one that is only early waits.
func decide(f facts) (verdict, string) {
	name, err := kubeletOf(f.request)
	if err != nil {
		return deny, "a join credential is for a kubelet's client certificate only: " + err.Error()
	}
	if other := f.config.Status.Boot.Certificate; join.IsUsed(f.config) && other.PublicKeySHA256 != keyOf(f.request) {
		return deny, fmt.Sprintf("the credential has got its one certificate, for another key: somebody else has the credential, or the host lost its disk; "+
			"delete the Machine of PoolbootConfig %s, its replacement gets a new one", f.config.Name)
	}
	recorded := f.config.Status.Node
	if recorded == nil {
		return wait, "no Node is made for the Machine yet"
	}
	if name != recorded.Name {
		return deny, fmt.Sprintf("the credential is for Node %s, not for Node %s", recorded.Name, name)
	}
	switch {
	case f.node == nil:
		return wait, fmt.Sprintf("Node %s does not stand yet", name)
	case f.node.Annotations[poolv1.NodeConfigAnnotation] != client.ObjectKeyFromObject(f.config).String():
		return wait, fmt.Sprintf("Node %s was not made for PoolbootConfig %s", name, client.ObjectKeyFromObject(f.config))
	case string(f.node.UID) != recorded.UID:
		return wait, fmt.Sprintf("Node %s has UID %s, on record is %s", name, f.node.UID, recorded.UID)
	}
	decision, err := pool.Decide(f.node.Labels, f.pools)
	switch {
	case err != nil:
		return wait, fmt.Sprintf("Node %s: %s", name, err)
	case decision.Role == "" || decision.Role != f.config.Status.Pool:
		return wait, fmt.Sprintf("Node %s is in pool %q, on record is %q", name, decision.Role, f.config.Status.Pool)
	}
	return approve, fmt.Sprintf("Node %s stands in pool %q", name, decision.Role)
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
