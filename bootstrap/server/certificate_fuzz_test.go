package server

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// FuzzCheckKubelet verifies that a certificate is accepted if, and only if, the CA of the assignment issued it to the
// Node of the assignment, for a client, and it is valid now.
func FuzzCheckKubelet(f *testing.F) {
	own, err := loopback.NewCA("own")
	if err != nil {
		f.Fatal(err)
	}
	foreign, err := loopback.NewCA("own")
	if err != nil {
		f.Fatal(err)
	}
	pool, err := parseBundle(own.PEM())
	if err != nil {
		f.Fatal(err)
	}
	assigned, now := &Assigned{Node: "edge-7", clientCA: pool}, time.Now()
	f.Add("system:node:edge-7", "system:nodes", int64(-60), int64(60), uint8(0))
	f.Add("system:node:edge-7", "system:masters,system:nodes", int64(-60), int64(60), uint8(0))
	f.Add("system:node:edge-8", "system:nodes", int64(-60), int64(60), uint8(0))
	f.Add("system:node:edge-7 ", "system:nodes ", int64(-60), int64(60), uint8(0))
	f.Add("system:node:edge-7", "system:nodes", int64(60), int64(120), uint8(0))
	f.Add("system:node:edge-7", "system:nodes", int64(-60), int64(-30), uint8(0))
	for what := range uint8(8) {
		f.Add("system:node:edge-7", "system:nodes", int64(-60), int64(60), what)
	}
	f.Fuzz(func(t *testing.T, name, organizations string, from, to int64, what uint8) {
		const isForeign, isCA, isServer = 1, 2, 4
		const day = 24 * 60 * 60
		from, to = from%day, to%day
		template := &x509.Certificate{
			Subject:               pkix.Name{CommonName: name, Organization: strings.Split(organizations, ",")},
			NotBefore:             now.Add(time.Duration(from) * time.Second),
			NotAfter:              now.Add(time.Duration(to) * time.Second),
			ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			BasicConstraintsValid: true, IsCA: what&isCA != 0,
		}
		if what&isServer != 0 {
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}
		ca := own
		if what&isForeign != 0 {
			ca = foreign
		}
		pair, err := ca.Issue(template)
		if err != nil {
			return // not a certificate
		}
		certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
		if err != nil {
			return
		}
		wanted := name == "system:node:edge-7" && slices.Contains(strings.Split(organizations, ","), "system:nodes") && what&(isForeign|isCA|isServer) == 0 &&
			from <= 0 && to >= 1 // a certificate has whole seconds
		refused := assigned.checkKubelet([]*x509.Certificate{certificate.Leaf}, now)
		if to != 0 && (refused == nil) != wanted {
			t.Errorf("%q of %q from %d to %d, %d: %v, and accepted should be %t", name, organizations, from, to, what, refused, wanted)
		}
		if refused != nil && refused.code != 401 && refused.code != 403 {
			t.Errorf("%q of %q: %d", name, organizations, refused.code)
		}
	})
}

// FuzzParseBundle verifies that a bundle without a certificate is never accepted, because an empty pool must not become
// that of the operating system.
func FuzzParseBundle(f *testing.F) {
	ca, err := loopback.NewCA("own")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.PEM())
	f.Add(slices.Concat(ca.PEM(), ca.PEM()[:40]))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, bundle []byte) {
		pool, err := parseBundle(bundle)
		if (pool == nil) == (err == nil) || pool != nil && pool.Equal(x509.NewCertPool()) {
			t.Errorf("%q: %v, %v", bundle, pool, err)
		}
	})
}
