package certificate

import (
	"crypto/x509"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// User and group of kubelets.
const (
	nodeUserPrefix = workload.NodeUserPrefix
	nodesGroup     = "system:nodes"
)

// kubeletUsages are the usages that the client certificate of a kubelet can have. A kubelet omits key encipherment if
// its key does not support it.
var kubeletUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageClientAuth,
}

// publicKeyHash returns the SHA-256 hash, in hex, of the public key in a request, and "" if the request is malformed.
func publicKeyHash(request *certificatesv1.CertificateSigningRequest) string {
	return join.PublicKeySHA256(request.Spec.Request)
}

// parse parses a certificate request in PEM format.
func parse(raw []byte) (*x509.CertificateRequest, error) { return join.ParseCertificateRequest(raw) }
