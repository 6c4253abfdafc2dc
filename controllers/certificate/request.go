package certificate

import (
	"crypto/x509"
	"encoding/pem"
	"errors"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// How Kubernetes knows kubelets by their certificates.
const (
	nodeUserPrefix = "system:node:"
	nodesGroup     = "system:nodes"
)

// kubeletUsages are those that a kubelet's client certificate may have; a kubelet leaves key encipherment out for keys that
// can't do it.
var kubeletUsages = []certificatesv1.KeyUsage{
	certificatesv1.UsageDigitalSignature,
	certificatesv1.UsageKeyEncipherment,
	certificatesv1.UsageClientAuth,
}

// parse reads a PEM certificate request.
func parse(raw []byte) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return nil, errors.New("it is no PEM block of type CERTIFICATE REQUEST")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}
