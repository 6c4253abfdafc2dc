package hosts_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// kubeletCertificate returns a template for the certificate of a Node.
func kubeletCertificate(node string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// identify gives the host another certificate, as the kubelet does when it renews its own.
func (h *runningHost) identify(ctx context.Context, ca *loopback.CA, template *x509.Certificate, chain ...[]byte) {
	GinkgoHelper()
	pair, err := ca.Issue(template)
	Expect(err).NotTo(HaveOccurred())
	h.configs++
	name := fmt.Sprintf("%s/kubelet-client-%d.pem", ignition.KubeletPKIDirectory, h.configs)
	writeFile(ctx, h.Host, name, string(bytes.Join(append([][]byte{pair.Cert}, append(chain, pair.Key)...), nil)))
	Expect(h.Run(ctx, "ln", "-sfn", name, certificate)).To(BeEmpty())
}

// servingPair returns a certificate of the config server with the same key and CA, and other times.
func (h *runningHost) servingPair(begin, end time.Time) tls.Certificate {
	GinkgoHelper()
	own := h.pool.serving
	parsed, err := x509.ParseCertificate(own.Certificate[0])
	Expect(err).NotTo(HaveOccurred())
	template := *parsed
	template.NotBefore, template.NotAfter = begin, end
	return selfSigned(&template, own.PrivateKey.(*ecdsa.PrivateKey))
}

// packed returns a gzip file.
func packed(text string) []byte {
	var buffer bytes.Buffer
	writer := gzip.NewWriter(&buffer)
	_, _ = writer.Write([]byte(text))
	_ = writer.Close()
	return buffer.Bytes()
}

// describeServers has the specs about certificates and the config server.
func describeServers(host func() *runningHost) {
	It("changes nothing with a certificate that is not accepted, and goes on with the one that its kubelet renews", func(ctx SpecContext) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("before")), "before")
		foreign, err := loopback.NewCA("foreign")
		Expect(err).NotTo(HaveOccurred())
		own := h.pool.cluster.ClientCA()
		expired := kubeletCertificate(h.pool.node)
		expired.NotAfter = time.Now().Add(-time.Minute)
		revision := ""
		refused := func(what string, ca *loopback.CA, template *x509.Certificate) {
			GinkgoHelper()
			By("using a certificate " + what)
			cursor := journalCursor(ctx, h.Host)
			h.identify(ctx, ca, template)
			if revision == "" {
				revision = h.assign(ctx, h.config("after"))
			} else {
				h.wake(ctx)
			}
			Eventually(ctx, h.log(ctx, cursor)).WithTimeout(30 * time.Second).Should(ContainSubstring("401"))
			h.expectOnly(ctx, "before")
		}
		refused("that has expired", own, expired)
		refused("of a foreign CA", foreign, kubeletCertificate(h.pool.node))
		refused("of another Node", own, kubeletCertificate("host-1"))
		h.identify(ctx, own, kubeletCertificate(h.pool.node))
		h.wake(ctx)
		h.expectDone(ctx, revision, "after")

		By("replacing the CA for the kubelets of the cluster")
		next, err := own.Intermediate("next") // the API server accepts both
		Expect(err).NotTo(HaveOccurred())
		h.pool.mu.Lock()
		h.pool.clientCA = x509.NewCertPool()
		Expect(h.pool.clientCA.AppendCertsFromPEM(next.PEM())).To(BeTrue())
		h.pool.mu.Unlock()
		cursor := journalCursor(ctx, h.Host)
		revision = h.assign(ctx, h.config("next"))
		Eventually(ctx, h.log(ctx, cursor)).WithTimeout(30 * time.Second).Should(ContainSubstring("401"))
		h.expectOnly(ctx, "after")
		h.identify(ctx, next, kubeletCertificate(h.pool.node), next.PEM())
		h.wake(ctx)
		h.expectDone(ctx, revision, "next")
	}, SpecTimeout(3*time.Minute))

	It("changes nothing while the config server answers wrongly or not at all, and waits for one that answers slowly", func(ctx SpecContext) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("before")), "before")
		h.pool.mu.Lock()
		earlier := h.pool.document
		h.pool.mu.Unlock()
		right := h.pool.serving
		DeferCleanup(func() { h.pool.setIntercept(nil); h.pool.serve(right) })
		isRendered := func(r *http.Request) bool { return strings.HasPrefix(path.Base(r.URL.Path), "rendered-") }
		another, revision := h.pool.rendered["rendered-1"], ""
		for _, way := range []struct {
			name, reason string
			intercept    func(http.ResponseWriter, *http.Request) bool
		}{
			{"closes the connection", "EOF", func(w http.ResponseWriter, _ *http.Request) bool {
				connection, _, err := http.NewResponseController(w).Hijack()
				return err == nil && connection.Close() == nil
			}},
			{"fails", "500", func(w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}},
			{"does not know the host", "404", func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusNotFound); return true }},
			{"sends the host to another server", "302", func(w http.ResponseWriter, r *http.Request) bool {
				http.Redirect(w, r, "https://example.com/", http.StatusFound)
				return true
			}},
			{"sends something else", "another revision", func(w http.ResponseWriter, _ *http.Request) bool { _, _ = io.WriteString(w, "<html>"); return true }},
			{"sends an earlier assignment", "another revision", func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write(earlier); return true }},
			{"sends another config", "another SHA-512", func(w http.ResponseWriter, r *http.Request) bool {
				if isRendered(r) {
					_, _ = w.Write(packed(string(another)))
				}
				return isRendered(r)
			}},
			{"ends in the middle of a config", "malformed gzip file", func(w http.ResponseWriter, r *http.Request) bool {
				if isRendered(r) {
					_, _ = w.Write(packed(strings.Repeat("{", 1000))[:20])
				}
				return isRendered(r)
			}},
			{"sends without end", "more than", func(w http.ResponseWriter, _ *http.Request) bool {
				for err := error(nil); err == nil; {
					_, err = w.Write(make([]byte, 1<<20))
				}
				return true
			}},
		} {
			By("using a config server that " + way.name)
			h.pool.setIntercept(way.intercept)
			if revision == "" {
				revision = h.assign(ctx, h.config("after"))
			}
			h.wake(ctx)
			Eventually(ctx, h.reason(ctx)).WithTimeout(30 * time.Second).Should(ContainSubstring(way.reason))
			h.expectOnly(ctx, "before")
		}
		foreign, _ := servingCertificate(h.pool.address)
		for name, serving := range map[string]tls.Certificate{
			"unknown authority": foreign,
			"not yet valid":     h.servingPair(time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)), // as for a clock that is an hour slow
		} {
			By("using a config server whose certificate is of an " + name)
			h.pool.serve(serving)
			h.pool.setIntercept(nil)
			h.wake(ctx)
			Eventually(ctx, h.reason(ctx)).WithTimeout(30 * time.Second).Should(ContainSubstring(name))
			h.expectOnly(ctx, "before")
		}
		h.pool.serve(right)

		By("using a config server that is slow")
		h.pool.setIntercept(func(w http.ResponseWriter, r *http.Request) bool {
			select {
			case <-time.After(3 * time.Second):
			case <-r.Context().Done():
			}
			return false
		})
		h.wake(ctx)
		h.expectDone(ctx, revision, "after")
		Eventually(ctx, h.reason(ctx)).WithTimeout(30 * time.Second).Should(BeEmpty())
	}, SpecTimeout(3*time.Minute))
}
