package certificate

import (
	"crypto/x509"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// How Kubernetes knows kubelets by their certificates.
const (
	nodeUserPrefix = workload.NodeUserPrefix
	nodesGroup     = "system:nodes"
)

// kubeletUsages are those that a kubelet's client certificate may have; a kubelet leaves key encipherment out for keys
// that can't do it.
var kubeletUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageClientAuth,
}

// keyOf returns the SHA-256, in hex, of the public key that a request is for; "" when it can't be read.
func keyOf(request *certificatesv1.CertificateSigningRequest) string {
	return join.PublicKeySHA256(request.Spec.Request)
}

// parse reads a PEM certificate request.
func parse(raw []byte) (*x509.CertificateRequest, error) { return join.ParseCertificateRequest(raw) }
