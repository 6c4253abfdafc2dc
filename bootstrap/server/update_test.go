package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

var _ = Describe("The agent of a running host", func() {
	var (
		w        *world
		ca       *loopback.CA
		rendered string // the config that machine-0 should run
		document []byte
		s        *site
	)
	BeforeEach(func() {
		w, ca = newWorld(), newCA()
		rendered = w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", "")
		w.inState("machine-0", bootstrapv1.TokenStateRevoked)
		document = w.assign("machine-0", "edge-7", rendered, ca.PEM())
		s = serve(w, short)
	})
	renderedPathOf := func(name string) string {
		return "/rendered/default/" + name + "?config=machine-0&pointer=" + pointerID
	}
	by := func(certificate tls.Certificate, method, target string) (reply, []byte) {
		GinkgoHelper()
		return s.sendBy(s.with(certificate), method, target, "", nil)
	}

	It("gets what the host should run with the certificate of the kubelet, byte for byte", func() {
		response, body := by(kubelet(ca, "edge-7"), http.MethodGet, updatePath)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(string(body)).To(Equal(string(document)))
		Expect(response.Header.Get("Cache-Control")).To(Equal("no-store"))
		Expect(response.Header.Get("Content-Type")).To(Equal("application/json"))
		response, body = by(kubelet(ca, "edge-7"), http.MethodHead, updatePath)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(response.ContentLength).To(BeEquivalentTo(len(document)))
		Expect(body).To(BeEmpty())
		Expect(s.logged()).NotTo(ContainSubstring(secretInAssignment))
	})

	It("gets what the host should run with a certificate of an intermediate CA, or of the next CA while both are valid", func() {
		intermediate, err := ca.Intermediate("kubelets")
		Expect(err).NotTo(HaveOccurred())
		chain := kubelet(intermediate, "edge-7")
		own, err := intermediate.Pair()
		Expect(err).NotTo(HaveOccurred())
		parent, err := tls.X509KeyPair(own.Cert, own.Key)
		Expect(err).NotTo(HaveOccurred())
		chain.Certificate = append(chain.Certificate, parent.Certificate...)
		response, body := by(chain, http.MethodGet, updatePath)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))

		next := newCA()
		w.assign("machine-0", "edge-7", rendered, append(ca.PEM(), next.PEM()...))
		for _, issuer := range []*loopback.CA{ca, next} {
			response, body = by(kubelet(issuer, "edge-7"), http.MethodGet, updatePath)
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		}
	})

	It("gets what a host that enrolled should run", func() {
		id := access.PointerID("default", "edge", "machine-0")
		w.set(func() { w.records["machine-0"].PointerID, w.records["machine-0"].Enrollment = id, "edge" })
		response, body := by(kubelet(ca, "edge-7"), http.MethodGet, "/update/default/machine-0/"+id)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		response, body = by(kubelet(ca, "edge-7"), http.MethodGet, "/rendered/default/"+rendered+"?config=machine-0&pointer="+id)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	})

	It("of an adopted host of the control plane gets what that should run, and no host of another cluster or with another name does", func() {
		w.set(func() { w.records["machine-0"].PointerID = bootstrapv1.AdoptedPointerID })
		w.assign("machine-0", "cp-1", rendered, ca.PEM())
		adopted := "/update/default/machine-0/" + bootstrapv1.AdoptedPointerID
		response, body := by(kubelet(ca, "cp-1"), http.MethodGet, adopted)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		for why, certificate := range map[string]tls.Certificate{
			"If it is in another one":                 kubelet(newCA(), "cp-1"),
			"its common name is not system:node:cp-1": kubelet(ca, "cp-2"),
		} {
			for _, target := range []string{adopted, "/rendered/default/" + rendered + "?config=machine-0&pointer=" + bootstrapv1.AdoptedPointerID} {
				response, body = by(certificate, http.MethodGet, target)
				Expect(response.StatusCode).To(BeElementOf(http.StatusUnauthorized, http.StatusForbidden), target)
				Expect(string(body)).To(And(ContainSubstring(why), Not(ContainSubstring(secretInAssignment))))
			}
		}
		response, _ = s.send(http.MethodGet, adopted, "")
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), "everybody knows the path")
		response, _ = by(kubelet(ca, "cp-1"), http.MethodGet, "/config/infra/default/machine-0/"+bootstrapv1.AdoptedPointerID)
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), "it does not boot")
	})

	It("downloads the rendered config that the host should run, and no other", func() {
		other := w.addRendered("worker", "worker")
		response, body := by(kubelet(ca, "edge-7"), http.MethodGet, renderedPathOf(rendered))
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(string(unpack(body))).To(ContainSubstring("/etc/infratest"))
		Expect(response.Header.Get("Cache-Control")).To(ContainSubstring("private"))
		response, body = by(kubelet(ca, "edge-7"), http.MethodGet, renderedPathOf(other))
		Expect(response.StatusCode).To(Equal(http.StatusForbidden), string(body))
		Expect(w.requests()).To(BeZero(), "the host does not boot")
	})

	It("downloads the next rendered config as soon as this replica has the assignment that names it", func() {
		next := w.addRendered("infra", "next")
		s = serve(w, long)
		done := make(chan reply, 1)
		go func() {
			defer GinkgoRecover()
			response, _ := by(kubelet(ca, "edge-7"), http.MethodGet, renderedPathOf(next))
			done <- response
		}()
		Eventually(func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.assignmentReads
		}).Should(BeNumerically(">=", 3)) // authorized, looked up, and looked up after it subscribed
		w.assign("machine-0", "edge-7", next, ca.PEM())
		s.handler.AssignmentChanged("machine-0")
		Eventually(done).Should(Receive(HaveField("StatusCode", http.StatusOK)))
	})

	// A certificate that is refused gets nothing, from either path.
	DescribeTable("is refused with any other certificate", func(certificate func() tls.Certificate, code int, message string) {
		chain := certificate()
		for _, target := range []string{updatePath, renderedPathOf(rendered)} {
			response, body := by(chain, http.MethodGet, target)
			Expect(response.StatusCode).To(Equal(code), string(body))
			Expect(string(body)).To(And(ContainSubstring(message), Not(ContainSubstring(secretInAssignment))))
		}
		response, body := by(chain, http.MethodPost, updatePath)
		Expect(response.StatusCode).To(Equal(code), string(body))
		Expect(w.registrationRequests()).To(BeZero())
	},
		Entry("of another Node of the cluster", func() tls.Certificate { return kubelet(ca, "edge-8") }, http.StatusForbidden, "its common name is not system:node:edge-7"),
		Entry("of a Node with a longer name", func() tls.Certificate { return kubelet(ca, "edge-77") }, http.StatusForbidden, "common name"),
		Entry("of a Node of another cluster with the same name", func() tls.Certificate { return kubelet(newCA(), "edge-7") }, http.StatusUnauthorized, "did not issue it"),
		Entry("that is self-signed", func() tls.Certificate {
			own, err := loopback.NewCA("system:node:edge-7")
			Expect(err).NotTo(HaveOccurred())
			pair, err := own.Pair()
			Expect(err).NotTo(HaveOccurred())
			certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
			Expect(err).NotTo(HaveOccurred())
			return certificate
		}, http.StatusUnauthorized, "did not issue it"),
		Entry("of another user", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.Subject.CommonName = "edge-7"
			return issue(ca, template)
		}, http.StatusForbidden, "common name"),
		Entry("of an administrator", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.Subject.Organization = []string{"system:masters"}
			return issue(ca, template)
		}, http.StatusForbidden, "organization is not system:nodes"),
		Entry("without an organization", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.Subject.Organization = nil
			return issue(ca, template)
		}, http.StatusForbidden, "organization is not system:nodes"),
		Entry("of the kubelet's server", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
			return issue(ca, template)
		}, http.StatusUnauthorized, "not for the authentication of a client"),
		Entry("that has expired", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.NotBefore, template.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
			return issue(ca, template)
		}, http.StatusUnauthorized, "check the clock"),
		Entry("that is not valid yet", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.NotBefore, template.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
			return issue(ca, template)
		}, http.StatusUnauthorized, "check the clock"),
		Entry("of a CA that was replaced", func() tls.Certificate {
			old := kubelet(ca, "edge-7")
			w.assign("machine-0", "edge-7", rendered, newCA().PEM())
			return old
		}, http.StatusUnauthorized, "did not issue it"),
		Entry("of a CA with the name of the Node", func() tls.Certificate {
			template := kubeletTemplate("edge-7")
			template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
			return issue(ca, template)
		}, http.StatusForbidden, "is that of a CA"),
		Entry("that a kubelet has signed with its own", func() tls.Certificate {
			template := kubeletTemplate("edge-8")
			pair, err := ca.Issue(template)
			Expect(err).NotTo(HaveOccurred())
			return signedByLeaf(pair, kubeletTemplate("edge-7"))
		}, http.StatusUnauthorized, "did not issue it"),
	)

	It("is refused without a certificate, and then nothing is read", func() {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			response, body := s.send(method, updatePath, token)
			Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
			Expect(string(body)).To(ContainSubstring("a client certificate is required"))
		}
		Expect(w.lookups()).To(BeZero())
	})

	DescribeTable("retries while the server does not know the host", func(change func(), target string) {
		change()
		response, body := by(kubelet(ca, "edge-7"), http.MethodGet, target)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		Expect(response.Header.Get("Retry-After")).NotTo(BeEmpty())
		Expect(string(body)).NotTo(ContainSubstring("assigned wrongly"), "that is for the log")
	},
		Entry("of another name", func() {}, "/update/default/machine-1/"+pointerID),
		Entry("of another namespace", func() {}, "/update/other/machine-0/"+pointerID),
		Entry("with another pointer ID", func() {}, "/update/default/machine-0/0a6bd5b5"),
		Entry("with a PoolbootConfig that was restored without its token", func() { w.inState("machine-0", "") }, updatePath),
		Entry("without an assignment", func() { w.set(func() { delete(w.assigned, "machine-0") }) }, updatePath),
		Entry("with an assignment that can't be read", func() { w.set(func() { w.assignmentErr = errors.New("assigned wrongly") }) }, updatePath),
	)

	It("cannot boot the host again: a certificate never replaces the token", func() {
		w.addOverlay("machine-0", rendered, life)
		agent := s.with(kubelet(ca, "edge-7"))
		for _, request := range []struct{ method, target, bearer string }{
			{http.MethodGet, configPath, ""},
			{http.MethodGet, configPath, token},
			{http.MethodPost, configPath, ""},
			{http.MethodGet, "/config/infra/default/edge?name=edge-7", ""},
			{http.MethodGet, renderedPathOf(rendered), token}, // a revoked token is not better with a certificate
		} {
			response, body := s.sendBy(agent, request.method, request.target, request.bearer, nil)
			Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), request.target+": "+string(body))
			Expect(string(body)).NotTo(ContainSubstring(secretInOverlay))
		}
	})

	It("is refused for good only if the API server confirms it", func() {
		now := newWorld()
		now.addRecord(pointerID, "machine-0", "")
		now.inState("machine-0", bootstrapv1.TokenStateRevoked)
		next := newCA()
		now.assign("machine-0", "edge-7", rendered, next.PEM())
		live := &server.Sources{Records: now, Enrollments: enrollmentsOf{now}, Overlays: overlaysOf{now}, Assignments: assignmentsOf{now}}
		cutOff := &server.Sources{Records: outOfReach[types.NamespacedName, server.Record]{}, Assignments: outOfReach[types.UID, server.Assigned]{}}

		s = serve(w, short, func(o *server.Options) { o.Live = live })
		for _, target := range []string{updatePath, renderedPathOf(rendered)} {
			response, body := by(kubelet(next, "edge-7"), http.MethodGet, target)
			Expect(response.StatusCode).To(Equal(http.StatusOK), "the cache has the CA of yesterday: "+string(body))
			response, _ = by(kubelet(newCA(), "edge-7"), http.MethodGet, target)
			Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
		}
		s = serve(w, short, func(o *server.Options) { o.Live = cutOff })
		for _, target := range []string{updatePath, renderedPathOf(rendered)} {
			response, body := by(kubelet(next, "edge-7"), http.MethodGet, target)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		}
		response, _ := by(kubelet(ca, "edge-7"), http.MethodGet, updatePath)
		Expect(response.StatusCode).To(Equal(http.StatusOK), "caches are enough for an answer")
		response, _ = s.get(updatePath, "")
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), "without a certificate there is nothing to confirm")
	})
})

var _ = It("The client CA can be in a bundle with other PEM blocks, and can have headers", func() {
	ca := newCA()
	block, _ := pem.Decode(ca.PEM())
	block.Headers = map[string]string{"Comment": "of the cluster"}
	bundle := slices.Concat([]byte("a comment\n"), pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: []byte("x")}),
		pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: []byte("x")}), pem.EncodeToMemory(block))
	w := newWorld()
	w.addRecord(pointerID, "machine-0", "")
	w.inState("machine-0", bootstrapv1.TokenStateRevoked)
	w.assign("machine-0", "edge-7", w.addRendered("infra", "infra"), bundle)
	s := serve(w, short)
	response, body := s.sendBy(s.with(kubelet(ca, "edge-7")), http.MethodGet, updatePath, "", nil)
	Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
})

var _ = DescribeTable("An assignment that can't be served is refused", func(document func() []byte, clientCA func() []byte, why string) {
	_, err := server.PackAssignment(document(), clientCA())
	Expect(err).To(MatchError(And(ContainSubstring(why), Not(ContainSubstring(secretInAssignment)))))
},
	Entry("without a document", func() []byte { return nil }, func() []byte { return newCA().PEM() }, "malformed"),
	Entry("with a part of a document", func() []byte { return newDocument("edge-7", "rendered-a-0")[:300] }, func() []byte { return newCA().PEM() }, "malformed"),
	Entry("without a CA", func() []byte { return newDocument("edge-7", "rendered-a-0") }, func() []byte { return nil }, "no certificate"),
	Entry("with a CA that is no PEM", func() []byte { return newDocument("edge-7", "rendered-a-0") }, func() []byte { return []byte("x") }, "no certificate"),
	Entry("with PEM blocks of other types only", func() []byte { return newDocument("edge-7", "rendered-a-0") }, func() []byte {
		return []byte(strings.ReplaceAll(string(newCA().PEM()), "CERTIFICATE", "TRUSTED CERTIFICATE"))
	}, "no certificate"),
	Entry("with a malformed CA", func() []byte { return newDocument("edge-7", "rendered-a-0") }, func() []byte {
		return []byte(strings.Replace(string(newCA().PEM()), "MII", "MIA", 1))
	}, "malformed"),
)
