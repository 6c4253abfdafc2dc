// Package loopback provides a free port, a certificate authority and certificates for test servers on 127.0.0.1. It is
// independent of Kubernetes.
package loopback

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// lifetime is the validity of certificates. kube-controller-manager signs no certificate beyond its CA's expiration.
const lifetime = 48 * time.Hour

// Host is the address of all test servers.
const Host = "127.0.0.1"

// CA is a certificate authority for a test.
type CA struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// Pair is a certificate and its private key, both PEM.
type Pair struct {
	Cert []byte
	Key  []byte
}

// NewCA creates a self-signed certificate authority.
func NewCA(commonName string) (*CA, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: commonName}, key)
	if err != nil {
		return nil, fmt.Errorf("sign CA %q: %w", commonName, err)
	}
	return &CA{certificate: certificate, key: key}, nil
}

// Intermediate creates a certificate authority whose certificate this one signs.
func (ca *CA) Intermediate(commonName string) (*CA, error) {
	pair, err := ca.Issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	if err != nil {
		return nil, err
	}
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return nil, err
	}
	return &CA{certificate: both.Leaf, key: both.PrivateKey.(crypto.Signer)}, nil
}

// SelfSigned returns an authority with the same name and key, and a self-signed certificate.
func (ca *CA) SelfSigned() (*CA, error) {
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: ca.certificate.Subject.CommonName}, ca.key)
	if err != nil {
		return nil, err
	}
	return &CA{certificate: certificate, key: ca.key}, nil
}

// Pair returns the authority's own certificate and key, for programs that sign with it.
func (ca *CA) Pair() (Pair, error) { return encode(ca.certificate.Raw, ca.key) }

// PEM returns the authority's certificate.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.certificate.Raw})
}

// Server issues a certificate for servers on this machine that are reached as 127.0.0.1, localhost or one of names,
// which can be IP addresses.
func (ca *CA) Server(names ...string) (Pair, error) {
	return ca.ServerUntil(time.Now().Add(lifetime), names...)
}

// ServerUntil is Server with an expiration time, which can be in the past.
func (ca *CA) ServerUntil(expiration time.Time, names ...string) (Pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: Host},
		IPAddresses: []net.IP{net.ParseIP(Host)},
		DNSNames:    []string{"localhost"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		NotAfter:    expiration,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	return ca.Issue(template)
}

// Client issues a client certificate. Its common name is the user for the Kubernetes API server, its organizations are
// the user's groups.
func (ca *CA) Client(user string, groups ...string) (Pair, error) {
	return ca.Issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// Issue issues a certificate from a template, for tests of certificates that are not accepted. It sets the serial
// number, the key, the use for signatures, and the times that the template does not have.
func (ca *CA) Issue(template *x509.Certificate) (Pair, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return Pair{}, err
	}
	template.SerialNumber = serial
	if template.NotBefore.IsZero() {
		template.NotBefore = ca.certificate.NotBefore
	}
	if template.NotAfter.IsZero() {
		template.NotAfter = time.Now().Add(lifetime)
	}
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	key, err := newKey()
	if err != nil {
		return Pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return Pair{}, fmt.Errorf("sign certificate for %q: %w", template.Subject.CommonName, err)
	}
	return encode(der, key)
}

func newKey() (crypto.Signer, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func encode(der []byte, key crypto.Signer) (Pair, error) {
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return Pair{}, err
	}
	return Pair{Cert: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), Key: keyPEM}, nil
}
