package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Names in the client certificate of a kubelet, as the Node authorizer of Kubernetes requires them.
const (
	nodesOrganization = "system:nodes"
	nodeNamePrefix    = "system:node:"
)

// Limits of the chain that a client sends. No kubelet needs more, and strangers that send one cost little memory.
const (
	maxChainLength = 4
	maxChainBytes  = 16 << 10
)

// limitChain is the function tls.Config.VerifyPeerCertificate. It only limits the size: which CA is the right one
// depends on the host, and the host is known from the URL of the request.
func limitChain(chain [][]byte, _ [][]*x509.Certificate) error {
	size := 0
	for _, certificate := range chain {
		size += len(certificate)
	}
	if len(chain) > maxChainLength || size > maxChainBytes {
		return fmt.Errorf("the client sent %d certificates with %d bytes: at most %d with %d bytes are accepted", len(chain), size, maxChainLength, maxChainBytes)
	}
	return nil
}

// chainOf returns the certificates that the client of a request has sent. The handshake has verified that the client
// has the key of the first one, and nothing else.
func chainOf(r *http.Request) []*x509.Certificate {
	if r.TLS == nil {
		return nil
	}
	return r.TLS.PeerCertificates
}

// checkKubelet returns why a chain of certificates is not that of the kubelet of the assignment's Node, or nil if it
// is. The certificate must be valid at the moment for the authentication of a client, and only the CA of the assignment
// counts.
func (a *Assigned) checkKubelet(chain []*x509.Certificate, now time.Time) *refusal {
	if len(chain) == 0 {
		return noCertificate()
	}
	leaf, intermediates := chain[0], x509.NewCertPool()
	for _, certificate := range chain[1:] {
		intermediates.AddCert(certificate)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: a.clientCA, Intermediates: intermediates, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	switch {
	case err != nil:
		return unauthorized("the client certificate is not accepted: " + describeInvalid(err, now))
	case leaf.IsCA:
		return forbidden("the client certificate is that of a CA: send that of the host's kubelet")
	case !slices.Contains(leaf.Subject.Organization, nodesOrganization):
		return forbidden("the client certificate is not that of a kubelet: its organization is not %s: send that of the host's kubelet", nodesOrganization)
	case leaf.Subject.CommonName != nodeNamePrefix+a.Node:
		return forbidden("the client certificate is not that of this host's kubelet: its common name is not %s%s: send that of this host", nodeNamePrefix, a.Node)
	}
	return nil
}

func noCertificate() *refusal {
	return unauthorized("a client certificate is required: send that of the host's kubelet")
}

// describeInvalid describes the error of a verification, without the text of any certificate.
func describeInvalid(err error, now time.Time) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &unknown):
		return "the CA in the Secret of the cluster's kubeconfig did not issue it: if the host is in that cluster, add the CA that did to certificate-authority-data there. " +
			"If it is in another one, install its agent by a PoolbootConfig of that Cluster"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		return fmt.Sprintf("it, or a CA in its chain, is valid from %s to %s, and the time is %s: check the clock of the host, and whether its kubelet renews its certificate",
			invalid.Cert.NotBefore.UTC().Format(time.RFC3339), invalid.Cert.NotAfter.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		return "it is not for the authentication of a client: send that of the host's kubelet"
	}
	return "its chain is malformed, or is restricted to another use: send that of the host's kubelet"
}

// authorizeKubelet returns the record of the host in the URL, and its assignment, if the request has the certificate of
// its kubelet.
func (v *view) authorizeKubelet(ctx context.Context, r *http.Request, target route) (*Record, *Assigned, error) {
	if len(chainOf(r)) == 0 {
		return nil, nil, noCertificate() // without reading anything
	}
	record, err := v.findRecord(ctx, target)
	if err != nil {
		return nil, nil, err
	}
	assigned, err := v.findAssigned(ctx, r, record, nil)
	if err != nil {
		return nil, nil, err
	}
	endTurn(ctx)
	return record, assigned, nil
}

// findAssigned returns what the host of a record should run, if the request has the certificate of its kubelet.
func (v *view) findAssigned(ctx context.Context, r *http.Request, record *Record, changed *subscription) (*Assigned, error) {
	changed.add(object{assignment: record.UID})
	assigned, err := v.Assignments.Get(ctx, record.UID)
	if err != nil {
		return nil, unavailable(fmt.Errorf("finding the assignment of PoolbootConfig %s: %w", record.NamespacedName, err))
	}
	if assigned == nil {
		return nil, notReady("the assignment of this host does not exist yet. Try again")
	}
	if refused := assigned.checkKubelet(chainOf(r), v.opts.Now()); refused != nil {
		return nil, refused
	}
	return assigned, nil
}
