package host_test

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

func dataURL(text []byte) string {
	return "data:;base64," + base64.StdEncoding.EncodeToString(text)
}

func certificatePEM(certificate *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
}

func portOf(node *corev1.Node) string {
	return strconv.Itoa(int(node.Status.DaemonEndpoints.KubeletEndpoint.Port))
}
