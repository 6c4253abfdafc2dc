package main

import (
	"context"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// join records that the machine has joined: its token is revoked.
func (m *machine) join(ctx context.Context) {
	GinkgoHelper()
	before := m.config.DeepCopy()
	record.RevokeToken(m.config)
	Expect(admin.Patch(ctx, m.config, client.MergeFrom(before))).To(Succeed())
}

// assignment returns the machine's assignment Secret, as the manager creates it, and the document.
func (m *machine) assignment(clientCA *loopback.CA) (*corev1.Secret, []byte) {
	GinkgoHelper()
	document, err := assignment.Encode(assignment.Assignment{
		Node: m.config.Name, Config: assignment.RenderedConfig{Name: m.rendered, SHA512: strings.Repeat("a", 128)},
		Machine: json.RawMessage(`{"ignition":{"version":"3.5.0"}}`), Policy: update.DefaultPolicy(), MinReadySeconds: 10, ReadyDeadlineSeconds: 1200,
	})
	Expect(err).NotTo(HaveOccurred())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ownNamespace, Name: record.AssignmentName(m.config.UID),
			Labels: map[string]string{bootstrapv1.AssignmentLabel: string(m.config.UID)},
		},
		Data: map[string][]byte{bootstrapv1.AssignmentKey: document, bootstrapv1.AssignmentClientCAKey: clientCA.PEM()},
	}, document
}

// settings are those of the machine's agent.
func (m *machine) settings(s *configServer) *assignment.Settings {
	return &assignment.Settings{Server: s.url, Namespace: m.config.Namespace, Name: m.config.Name, PointerID: m.config.Name}
}

// request sends a request with the client certificate of the kubelet of a Node.
func request(clientCA *loopback.CA, node, method, target string) (code int, body []byte, err error) {
	pair, err := clientCA.Client("system:node:"+node, "system:nodes")
	if err != nil {
		return 0, nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		return 0, nil, err
	}
	agent := hostClient()
	agent.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{certificate}
	asked, err := http.NewRequest(method, target, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := agent.Do(asked)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, errors.Join(err, response.Body.Close())
}

var _ = Describe("The config server, for the agents of running hosts", func() {
	It("serves what each host should run, and follows every change, with the rights of config/rbac", func(ctx SpecContext) {
		clientCA, err := loopback.NewCA("workload")
		Expect(err).NotTo(HaveOccurred())
		s, m := serve(), newMachine(ctx, "runs")
		m.join(ctx)
		updateURL, err := m.settings(s).UpdateURL()
		Expect(err).NotTo(HaveOccurred())
		renderedURL, err := m.settings(s).RenderedURL(m.rendered)
		Expect(err).NotTo(HaveOccurred())
		get := func(node, target string) func() (int, error) {
			return func() (int, error) {
				code, _, err := request(clientCA, node, http.MethodGet, target)
				return code, err
			}
		}
		Eventually(get("runs", updateURL)).Should(Equal(http.StatusServiceUnavailable), "there is no assignment yet")
		secret, document := m.assignment(clientCA)
		Expect(admin.Create(ctx, secret)).To(Succeed())
		Eventually(get("runs", updateURL)).Should(Equal(http.StatusOK))
		_, body, err := request(clientCA, "runs", http.MethodGet, updateURL)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(body)).To(Equal(string(document)))
		Expect(assignment.Decode(body, assignment.Revision(document))).To(HaveField("Node", "runs"))
		Expect(get("runs", renderedURL)()).To(Equal(http.StatusOK))
		Expect(get("other", updateURL)()).To(Equal(http.StatusForbidden), "which the API server confirmed")

		By("refusing the certificates of a CA that was replaced, in every replica at once")
		next, err := loopback.NewCA("workload")
		Expect(err).NotTo(HaveOccurred())
		secret.Data[bootstrapv1.AssignmentClientCAKey] = next.PEM()
		Expect(admin.Update(ctx, secret)).To(Succeed())
		Eventually(get("runs", updateURL)).Should(Equal(http.StatusUnauthorized))

		By("serving nothing of a Secret that can't be read, or was deleted")
		secret.Data[bootstrapv1.AssignmentKey] = []byte("{")
		Expect(admin.Update(ctx, secret)).To(Succeed())
		clientCA = next
		Eventually(get("runs", updateURL)).Should(Equal(http.StatusServiceUnavailable))
		Eventually(s.session.Err).Should(gbytes.Say("Delete the Secret; the manager creates it again"))
		Expect(admin.Delete(ctx, secret)).To(Succeed())
		Consistently(get("runs", updateURL), time.Second).Should(Equal(http.StatusServiceUnavailable))
	})

	It("serves an assignment only from a Secret with the label, and an overlay from none of these", func(ctx SpecContext) {
		clientCA, err := loopback.NewCA("workload")
		Expect(err).NotTo(HaveOccurred())
		s, m := serve(), newMachine(ctx, "assigned")
		secret, _ := m.assignment(clientCA)
		secret.Labels = nil
		Expect(admin.Create(ctx, secret)).To(Succeed())
		updateURL, err := m.settings(s).UpdateURL()
		Expect(err).NotTo(HaveOccurred())
		get := func() (int, error) {
			code, _, err := request(clientCA, "assigned", http.MethodGet, updateURL)
			return code, err
		}
		Consistently(get, time.Second).Should(Equal(http.StatusServiceUnavailable))
		secret.Labels = map[string]string{bootstrapv1.AssignmentLabel: string(m.config.UID)}
		Expect(admin.Update(ctx, secret)).To(Succeed())
		Eventually(get).Should(Equal(http.StatusOK))
		code, body, err := s.send(m.path(), m.token)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusServiceUnavailable), string(body))
	})

	It("records that a host requests the registration of its Node, and answers when the manager has registered it", func(ctx SpecContext) {
		clientCA, err := loopback.NewCA("workload")
		Expect(err).NotTo(HaveOccurred())
		s, m := serve(), newMachine(ctx, "registers")
		m.join(ctx)
		secret, _ := m.assignment(clientCA)
		Expect(admin.Create(ctx, secret)).To(Succeed())
		updateURL, err := m.settings(s).UpdateURL()
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() (int, error) {
			code, _, err := request(clientCA, "registers", http.MethodGet, updateURL)
			return code, err
		}).Should(Equal(http.StatusOK))
		got := make(chan answer, 1)
		go func() {
			code, body, err := request(clientCA, "registers", http.MethodPost, updateURL)
			got <- answer{code, body, err}
		}()
		requested := func() *metav1.MicroTime {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)).To(Succeed())
			return m.config.Status.Requests.RegistrationRequestedTime
		}
		Eventually(requested).ShouldNot(BeNil())
		Expect(m.config.ManagedFields).To(ContainElement(And(HaveField("Manager", fieldOwner), HaveField("Subresource", "status"),
			WithTransform(func(e metav1.ManagedFieldsEntry) string { return e.FieldsV1.GetRawString() },
				MatchJSON(`{"f:status":{".":{},"f:requests":{".":{},"f:registrationRequestedTime":{}}}}`)))))
		m.config.Status.Update.RegisteredTime = m.config.Status.Requests.RegistrationRequestedTime
		Expect(admin.Status().Update(ctx, m.config)).To(Succeed())
		var host answer
		Eventually(got).Should(Receive(&host))
		Expect(host.err).NotTo(HaveOccurred())
		Expect(host.code).To(Equal(http.StatusNoContent), string(host.body))
	})

	It("serves the agents of a directory", func() {
		directory, program := GinkgoT().TempDir(), []byte("the agent")
		Expect(os.WriteFile(filepath.Join(directory, "poolboot-agent-amd64"), program, 0o600)).To(Succeed())
		s := serve("--agent-directory", directory)
		sum := sha512.Sum512(program)
		target, err := assignment.AgentURL(s.url, hex.EncodeToString(sum[:]))
		Expect(err).NotTo(HaveOccurred())
		code, _, err := s.send(strings.TrimPrefix(target, s.url), "")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusOK))
	})

	It("does not start without the agents that its flag names", func() {
		s := launch("--agent-directory", GinkgoT().TempDir())
		Eventually(s.session).Should(gexec.Exit(1))
		Expect(s.session.Err).To(gbytes.Say("--agent-directory: .* must have 1 to 8"))
	})
})
