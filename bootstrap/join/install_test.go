package join_test

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// The script runs as on a host, with a config server at an address of this machine.
var _ = Describe("A host that installs its agent after its boot", func() {
	const program = "#!/bin/sh\n"
	var (
		in        join.Input
		root      string
		served    string // the program that the config server sends
		answered  int    // the status of the assignment
		revision  string // what the Node says, if it is not the revision of the assignment
		padding   int64  // how many bytes follow the program
		adoptedBy string // the PoolbootConfig that the Node names
		trusted   string // a directory with the CAs that the image of the host trusts
	)
	path := func(name string) string { return filepath.Join(root, name) }
	BeforeEach(func() {
		root, served, answered, revision, padding, trusted = GinkgoT().TempDir(), program, http.StatusOK, "", 0, ""
		in = newInput(bootstrapv1.JoinTypeKubelet)
		in.Config.Spec.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline
		in.Config.Annotations = nil
		in.Offer.Agent.SHA512 = map[string]string{runtime.GOARCH: fmt.Sprintf("%x", sha512.Sum512([]byte(program)))}
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			in := in
			in.Config = in.Config.DeepCopy()
			in.Config.Annotations = map[string]string{bootstrapv1.PointerIDAnnotation: "1-2",
				bootstrapv1.ForceUpdateAnnotation: fmt.Sprintf(`"%s":"%0128d"`, runtime.GOARCH, 0)}
			document, err := join.Document(in)
			if err != nil {
				panic(err)
			}
			switch {
			case strings.HasPrefix(r.URL.Path, "/agent/"+in.Offer.Agent.SHA512[runtime.GOARCH]):
				packed := gzip.NewWriter(w)
				_, _ = packed.Write([]byte(served))
				_, _ = io.CopyN(packed, zeros{}, padding)
				_ = packed.Close()
			case len(r.TLS.PeerCertificates) == 0:
				w.WriteHeader(http.StatusUnauthorized)
			case r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" && r.Method == http.MethodPost:
				review := authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "system:node:infra-x7k2p"}}}
				pretty, _ := json.MarshalIndent(review, "", "  ")
				_, _ = w.Write(pretty)
			case r.URL.Path == "/api/v1/nodes/infra-x7k2p": // as an API server answers curl
				node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
					agentv1.OfferedAnnotation: cmp.Or(revision, assignment.Revision(document)), poolv1.NodeConfigAnnotation: adoptedBy}}}
				pretty, _ := json.MarshalIndent(node, "", "  ")
				_, _ = w.Write(pretty)
			case r.URL.Path == "/update/metal/infra-boot/1-2" || r.URL.Path == "/update/metal/infra-boot/"+bootstrapv1.AdoptedPointerID:
				w.WriteHeader(answered)
				_, _ = w.Write(document)
			}
		}))
		server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
		server.StartTLS()
		DeferCleanup(server.Close)
		in.Offer.ServerURL, in.Cluster.Server = server.URL, server.URL
		in.Offer.ServerCA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		Expect(os.WriteFile(path("cluster.pem"), in.Offer.ServerCA, 0o600)).To(Succeed())
		Expect(os.WriteFile(path("kubelet.pem"), newKubeletCertificate(), 0o600)).To(Succeed())
	})

	// run runs a script, and returns what it says.
	run := func(ctx context.Context, script string) *gbytes.Buffer {
		GinkgoHelper()
		said := gbytes.NewBuffer()
		cmd := exec.CommandContext(ctx, "sh", "-c", script)
		if trusted != "" {
			cmd = exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", "mount --bind '"+trusted+"' /etc/ssl/certs && exec sh -c \"$0\"", script)
		}
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = said, said, time.Second
		Expect(cmd.Start()).To(Succeed())
		DeferCleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return said
	}
	// start starts the script, and returns what it says.
	start := func(ctx context.Context) *gbytes.Buffer {
		GinkgoHelper()
		config, err := join.Machine{Config: in.Config, Registration: in.Registration, Cluster: in.Cluster, Agent: in.Offer.InlineAgent(in.Config, "1-2")}.Overlay(credential)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(path("ca.pem"), []byte(contents(config, "/etc/poolboot/config-server.pem")), 0o600)).To(Succeed())
		script := strings.NewReplacer("'"+assignment.ProgramPath+"'", path("state/bin/agent"), "'/etc/poolboot/config-server.pem'", path("ca.pem"), "'/etc/kubernetes/pki/ca.crt'", path("cluster.pem"),
			"'/var/lib/kubelet/pki/kubelet-client-current.pem'", path("kubelet.pem")).Replace(contents(config, "/etc/poolboot/install-agent.sh"))
		return run(ctx, script)
	}

	It("finds its Node, and who adopts it, if Poolboot did not boot it", func(ctx SpecContext) {
		config, err := in.Offer.AdoptionFiles()
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(path("ca.pem"), []byte(contents(config, "/etc/poolboot/config-server.pem")), 0o600)).To(Succeed())
		for _, kubeconfig := range []string{
			"clusters:\n- cluster:\n    certificate-authority-data: " + base64.StdEncoding.EncodeToString(in.Offer.ServerCA) + "\n    server: " + in.Cluster.Server + "\n",
			"clusters:\n- cluster:\n    server: \"" + in.Cluster.Server + "\"\n    certificate-authority: " + path("cluster.pem") + "\n",
		} {
			Expect(os.RemoveAll(path("state"))).To(Succeed())
			Expect(os.WriteFile(path("kubelet.conf"), []byte(kubeconfig), 0o600)).To(Succeed())
			said := run(ctx, strings.NewReplacer(assignment.ProgramPath, path("state/bin/agent"), "'/etc/poolboot/config-server.pem'", path("ca.pem"),
				"'/etc/kubernetes/kubelet.conf'", path("kubelet.conf"), "'/etc/poolboot/agent.json'", path("etc/agent.json"),
				"'/var/lib/kubelet/pki/kubelet-client-current.pem'", path("kubelet.pem")).Replace(contents(config, "/etc/poolboot/install-agent.sh")))
			adoptedBy = ""
			Eventually(ctx, said).Should(gbytes.Say("no PoolbootConfig adopts Node infra-x7k2p yet"))
			adoptedBy = "metal/infra-boot"
			Eventually(ctx, os.ReadFile).WithTimeout(20 * time.Second).WithArguments(path("state/bin/agent")).Should(BeEquivalentTo(program))
			raw, err := os.ReadFile(path("etc/agent.json"))
			Expect(err).NotTo(HaveOccurred())
			Expect(assignment.ReadSettings(raw)).To(Equal(assignment.Settings{
				Server: in.Offer.ServerURL, CA: string(in.Offer.ServerCA), Namespace: "metal", Name: "infra-boot", PointerID: bootstrapv1.AdoptedPointerID,
			}))
		}
	})

	It("has the agent that its assignment names, once it has joined and reaches the config server", func(ctx SpecContext) {
		start(ctx)
		Eventually(ctx, os.ReadFile).WithArguments(path("state/bin/agent")).Should(BeEquivalentTo(program))
		Expect(os.Stat(path("state/bin/agent"))).To(HaveField("Mode()", os.FileMode(0o755)))
		Expect(filepath.Glob(path("state/bin/*"))).To(ConsistOf(path("state/bin/agent")), "no part of its assignment stays")
	})

	DescribeTable("has none, keeps its configuration, tries again and says why", func(ctx SpecContext, change func(), why string) {
		change()
		said := start(ctx)
		Eventually(ctx, said).Should(gbytes.Say("keeps its configuration: .*" + why + ".*\n"))
		Expect(path("state/bin/agent")).NotTo(BeAnExistingFile())
		Consistently(ctx, said, "200ms").ShouldNot(gbytes.Say("."), "the script waits")
	},
		Entry("before its kubelet has a certificate", func() { Expect(os.Remove(path("kubelet.pem"))).To(Succeed()) }, "the kubelet has no certificate yet"),
		Entry("while the config server can't be reached", func() { in.Offer.ServerURL = "https://127.0.0.1:1" }, "Failed to connect"),
		Entry("while another CA issued the certificate of the server", func() { in.Offer.ServerCA = bytes.Split(newKubeletCertificate(), []byte("-----BEGIN EC"))[0] }, "SSL certificate problem"),
		Entry("while the config server does not accept its certificate, such as that of another cluster", func() { answered = http.StatusUnauthorized }, "401"),
		Entry("before its assignment exists", func() { answered = http.StatusServiceUnavailable }, "503"),
		Entry("if no agent is offered for its architecture", func() { in.Offer.Agent.SHA512 = map[string]string{"riscv64": strings.Repeat("a", 128)} }, "has no agent for "),
		Entry("before the manager offers one", func() { revision = "none" }, "offers no agent to this host yet"),
		Entry("if the config server sends another assignment", func() { revision = strings.Repeat("0", 64) }, "is not the one that its Node names"),
		Entry("if it downloads another program", func() { served = "#!/bin/bash\n" }, "is not the agent with the hash"),
	)

	It("does not fill its disk with what the config server sends", func(ctx SpecContext) {
		padding = 300 << 20 // less than 1 MiB in the answer
		said := start(ctx)
		Eventually(ctx, said).WithTimeout(20 * time.Second).Should(gbytes.Say("is not the agent with the hash"))
		Expect(os.Stat(path("state/bin/agent.new"))).To(HaveField("Size()", BeNumerically("<=", 64<<20)))
	})

	It("trusts no other CA of its image", func(ctx SpecContext) {
		if os.Geteuid() != 0 {
			Skip("needs root, for a mount namespace")
		}
		trusted = path("trusted")
		Expect(os.Mkdir(trusted, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(trusted, "ca.pem"), in.Offer.ServerCA, 0o600)).To(Succeed())
		Expect(exec.Command("openssl", "rehash", trusted).Run()).To(Succeed())
		in.Offer.ServerCA = bytes.Split(newKubeletCertificate(), []byte("-----BEGIN EC"))[0]
		said := start(ctx)
		Eventually(ctx, said).WithTimeout(20 * time.Second).Should(gbytes.Say("SSL certificate problem"))
		Expect(path("state/bin/agent")).NotTo(BeAnExistingFile())
	})

	It("has nothing to install if no agent is offered", func() {
		in.Offer.Agent.SHA512 = nil
		Expect(in.Offer.InlineAgent(in.Config, "1-2")).To(BeNil())
	})

	It("has the same units as in its assignment, because systemd's presets name those that are enabled", func() {
		config, err := join.Machine{Config: in.Config, Registration: in.Registration, Cluster: in.Cluster, Agent: in.Offer.InlineAgent(in.Config, "1-2")}.Overlay(credential)
		Expect(err).NotTo(HaveOccurred())
		in.Config.Annotations = map[string]string{bootstrapv1.PointerIDAnnotation: "1-2"}
		Expect(machineOf(assignmentOf(in)).Systemd).To(Equal(config.Systemd))
		Expect(unitText(config, ignition.InstallAgentUnit)).NotTo(ContainSubstring("After="), "it delays nothing")
	})
})

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// newKubeletCertificate returns a certificate with its key.
func newKubeletCertificate() []byte {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	private, err := x509.MarshalECPrivateKey(key)
	Expect(err).NotTo(HaveOccurred())
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private})...)
}
