package certificate

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

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
