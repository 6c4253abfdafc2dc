package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"math/big"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

const (
	updatePath = "/update/default/machine-0/" + pointerID
	// secretInAssignment represents a secret in the machine's part of an assignment.
	secretInAssignment = "the-password-of-a-proxy"
)

// newCA returns the CA of the kubelets of a cluster.
func newCA() *loopback.CA {
	GinkgoHelper()
	ca, err := loopback.NewCA("cluster")
	Expect(err).NotTo(HaveOccurred())
	return ca
}

// kubeletTemplate returns the template of the client certificate of a kubelet.
func kubeletTemplate(node string) *x509.Certificate {
	return &x509.Certificate{
		Subject:               pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
}

// issue returns the certificate of a template.
func issue(ca *loopback.CA, template *x509.Certificate) tls.Certificate {
	GinkgoHelper()
	pair, err := ca.Issue(template)
	Expect(err).NotTo(HaveOccurred())
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	Expect(err).NotTo(HaveOccurred())
	return certificate
}

// kubelet returns the client certificate of the kubelet of a Node.
func kubelet(ca *loopback.CA, node string) tls.Certificate {
	GinkgoHelper()
	return issue(ca, kubeletTemplate(node))
}

// with returns a client that sends a certificate, whatever CAs the server names.
func (s *site) with(certificate tls.Certificate) *http.Client {
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &certificate, nil }
	DeferCleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// newDocument returns the document of an assignment.
func newDocument(node, rendered string) []byte {
	GinkgoHelper()
	document, err := assignment.Encode(assignment.Assignment{
		Node: node, Config: assignment.RenderedConfig{Name: rendered, SHA512: strings.Repeat("a", 128)},
		Machine: json.RawMessage(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/proxy","contents":{"source":"data:,` + secretInAssignment + `"}}]}}`),
		Policy:  update.DefaultPolicy(), MinReadySeconds: 10, ReadyDeadlineSeconds: 1200,
	})
	Expect(err).NotTo(HaveOccurred())
	return document
}

// assign adds or replaces the assignment of a host, and returns its document.
func (w *world) assign(config types.UID, node, rendered string, clientCA []byte) []byte {
	GinkgoHelper()
	document := newDocument(node, rendered)
	assigned, err := server.PackAssignment(document, clientCA)
	Expect(err).NotTo(HaveOccurred())
	w.set(func() { w.assigned[config] = assigned })
	return document
}

// registrationRequests returns the number of writes of RecordRegistrationRequest.
func (w *world) registrationRequests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.registrations)
}

// signedByLeaf returns a certificate that the owner of another certificate has signed, with both in the chain.
func signedByLeaf(parent loopback.Pair, template *x509.Certificate) tls.Certificate {
	GinkgoHelper()
	signer, err := tls.X509KeyPair(parent.Cert, parent.Key)
	Expect(err).NotTo(HaveOccurred())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(7), time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Leaf, key.Public(), signer.PrivateKey)
	Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der, signer.Leaf.Raw}, PrivateKey: key}
}
