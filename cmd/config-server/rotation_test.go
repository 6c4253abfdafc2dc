package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	programs "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// host is a host that runs the real Ignition, with some CAs in its user data.
type host struct {
	dir string
}

func newHost(s *configServer, m *machine, trusted ...*loopback.CA) *host {
	GinkgoHelper()
	pointer := ignition.Pointer{URL: s.url + m.path(), Token: m.token}
	for _, ca := range trusted {
		pointer.CA = append(pointer.CA, ca.PEM()...)
	}
	document, err := pointer.Marshal()
	Expect(err).NotTo(HaveOccurred())
	h := &host{dir: GinkgoT().TempDir()}
	Expect(os.WriteFile(filepath.Join(h.dir, "pointer.ign"), document, 0o600)).To(Succeed())
	return h
}

// fetch runs the fetch stage of Ignition. It returns when that is done, or when ctx ends.
func (h *host) fetch(ctx context.Context, console io.Writer) error {
	bin, err := programs.BinDir()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "ignition"), "-platform", "file", "-stage", "fetch", "-root", h.dir, "-log-to-stdout",
		"-config-cache", filepath.Join(h.dir, "ignition.json"), "-state-file", filepath.Join(h.dir, "state"), "-neednet", filepath.Join(h.dir, "neednet"))
	cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+filepath.Join(h.dir, "pointer.ign"))
	cmd.Stdout, cmd.Stderr = console, console
	return errors.Join(cmd.Run(), ctx.Err(), os.RemoveAll(filepath.Join(h.dir, "ignition.json")))
}

func (h *host) boots(ctx context.Context) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var console bytes.Buffer
	Expect(h.fetch(ctx, &console)).To(Succeed(), console.String)
}

// shows gives the server a certificate and those of its intermediate CAs, and returns when the server uses it.
func (s *configServer) shows(signer *loopback.CA, between ...*loopback.CA) {
	GinkgoHelper()
	pair, err := signer.Server()
	Expect(err).NotTo(HaveOccurred())
	serial := leafOf(pair).SerialNumber
	for _, ca := range between {
		pair.Cert = append(pair.Cert, ca.PEM()...)
	}
	writePair(s.certDir, pair)
	Eventually(func() (any, error) {
		conn, err := tls.Dial("tcp", s.url[len("https://"):], &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return nil, err
		}
		return conn.ConnectionState().PeerCertificates[0].SerialNumber, conn.Close()
	}).Should(Equal(serial))
}

func leafOf(pair loopback.Pair) *x509.Certificate {
	GinkgoHelper()
	both, err := tls.X509KeyPair(pair.Cert, pair.Key)
	Expect(err).NotTo(HaveOccurred())
	return both.Leaf
}

var _ = Describe("A change of the CA", func() {
	It("prevents no boot: neither of a host that trusts only the old CA, nor of one that trusts both", func(ctx SpecContext) {
		before := authority
		after, err := before.Intermediate("after")
		Expect(err).NotTo(HaveOccurred())
		s, m := serve(), newMachine(ctx, "rotation")
		m.prepare(ctx)
		old, both := newHost(s, m, before), newHost(s, m, before, after)

		By("before the change, and with a renewed certificate of the old CA")
		old.boots(ctx)
		both.boots(ctx)
		s.shows(before)
		old.boots(ctx)

		By("when the new CA signs, whose own certificate the old one has signed")
		s.shows(after, after)
		old.boots(ctx)
		both.boots(ctx)

		By("when the old CA is gone: a host that trusts both CAs boots, and one that trusts only the old CA retries until its chain is served again")
		root, err := after.SelfSigned()
		Expect(err).NotTo(HaveOccurred())
		s.shows(root)
		both.boots(ctx)
		newHost(s, m, root).boots(ctx)
		refused, cancel := context.WithCancel(ctx)
		defer cancel()
		out := gbytes.NewBuffer()
		go func() {
			defer GinkgoRecover()
			defer cancel()
			Eventually(out).Should(gbytes.Say("unknown authority"))
			Eventually(out).Should(gbytes.Say("attempt #2"))
		}()
		Expect(old.fetch(refused, out)).To(MatchError(context.Canceled), "it retries until it is canceled")
		s.shows(root, after)
		old.boots(ctx)
	})
})
