package hosts_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

// agentProgram is the agent that "make build" builds.
const agentProgram = "../../../bin/agents/poolboot-agent-" + runtime.GOARCH

// hostPool stands in for the manager and the config server of one host.
type hostPool struct {
	client  kubernetes.Interface
	node    string
	machine []byte
	// programFile is the agent, and nodeCertificate the identity of the Node, which no part of the configuration has.
	programFile, nodeCertificate map[string]any
	cluster                      *controlplane.ControlPlane
	// address is that of the config server, and settings are how the agent finds it.
	address  string
	settings assignment.Settings
	// force makes the host apply its configuration again when it changes.
	force string
	// restart is that of the next assignments.
	restart *assignment.Restart
	// readyDeadlineSeconds is that of the next assignments.
	readyDeadlineSeconds int32
	// kernelArguments are those of the next configs.
	kernelArguments []string
	// policy changes the policy of the specs. It can be nil.
	policy func(*update.Policy)

	mu       sync.Mutex
	clientCA *x509.CertPool
	serving  tls.Certificate
	document []byte
	rendered map[string][]byte
	program  []byte
	offer    *assignment.Agent
	// intercept answers a request in a way that no config server should, and returns true. It can be nil.
	intercept func(http.ResponseWriter, *http.Request) bool
}

func (p *hostPool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	intercept := p.intercept
	p.mu.Unlock()
	if intercept != nil && intercept(w, r) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	body, name := []byte(nil), path.Base(r.URL.Path)
	switch {
	case strings.HasPrefix(r.URL.Path, "/agent/"):
		body = p.program
	case !p.isKubelet(r.TLS.PeerCertificates):
		w.WriteHeader(http.StatusUnauthorized)
		return
	case r.Method == http.MethodPost: // the Node is registered
		return
	case strings.HasPrefix(r.URL.Path, "/update/"):
		_, _ = w.Write(p.document)
		return
	default:
		body = p.rendered[name]
	}
	packed := gzip.NewWriter(w)
	_, _ = packed.Write(body)
	_ = packed.Close()
}

// isKubelet reports whether a certificate is that of the host's kubelet.
func (p *hostPool) isKubelet(chain []*x509.Certificate) bool {
	if len(chain) == 0 || chain[0].Subject.CommonName != "system:node:"+p.node {
		return false
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: p.clientCA, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err == nil
}

// setIntercept changes how the next requests are answered.
func (p *hostPool) setIntercept(intercept func(http.ResponseWriter, *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intercept = intercept
}

// serve changes the certificate of the config server.
func (p *hostPool) serve(certificate tls.Certificate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving = certificate
}

// secure returns the TLS configuration of the config server for a connection.
func (p *hostPool) secure(*tls.ClientHelloInfo) (*tls.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{p.serving}, MinVersion: tls.VersionTLS12}, nil
}

// render returns the document of a rendered config.
func (p *hostPool) render(name string, config map[string]any) []byte {
	GinkgoHelper()
	own, err := json.Marshal(ignition.MachineConfigFile{Name: name, KernelType: "default", KernelArguments: p.kernelArguments})
	Expect(err).NotTo(HaveOccurred())
	storage, _ := config["storage"].(map[string]any)
	storage = maps.Clone(storage)
	if storage == nil {
		storage = map[string]any{}
	}
	all, _ := storage["files"].([]map[string]any)
	storage["files"] = append(append([]map[string]any{}, all...), file(ignition.MachineConfigPath, 0o644, string(own)))
	config["storage"] = storage
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rendered[name] = document(config)
	return p.rendered[name]
}

// effectivePolicy returns the policy of the next assignments.
func (p *hostPool) effectivePolicy() update.Policy {
	policy := update.DefaultPolicy()
	rule := func(actions ...update.Action) update.Rule { return update.Rule{Actions: actions, Reason: "a spec"} }
	policy.Paths["/etc/none"] = rule(update.Action{Type: update.None})
	policy.Units["web.service"] = rule(update.Action{Type: update.DaemonReload}, update.Action{Type: update.Restart, Unit: "web.service"})
	if p.policy != nil {
		p.policy(&policy)
	}
	return policy
}

// assign tells the host to run a rendered config, and returns the revision.
func (p *hostPool) assign(ctx context.Context, name string) string {
	GinkgoHelper()
	p.mu.Lock()
	sum := sha512.Sum512(p.rendered[name])
	document, err := assignment.Encode(assignment.Assignment{
		Node: p.node, Config: assignment.RenderedConfig{Name: name, SHA512: fmt.Sprintf("%x", sum)}, Machine: p.machine,
		Policy: p.effectivePolicy(), MinReadySeconds: 2, ReadyDeadlineSeconds: p.readyDeadlineSeconds, Agent: p.offer, Force: p.force, Restart: p.restart,
	})
	p.document = document
	p.mu.Unlock()
	Expect(err).NotTo(HaveOccurred())
	revision := assignment.Revision(document)
	p.annotate(ctx, agentv1.DesiredAnnotation, revision)
	return revision
}

func (p *hostPool) annotate(ctx context.Context, name, value string) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
	Expect(err).NotTo(HaveOccurred())
	Eventually(ctx, func() error {
		_, err := p.client.CoreV1().Nodes().Patch(ctx, p.node, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}).Should(Succeed())
}

// state returns what the host reports. It drains the Node if the host waits for that.
func (p *hostPool) state(ctx context.Context) func() string {
	return func() string {
		node, err := p.client.CoreV1().Nodes().Get(ctx, p.node, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		target := node.Annotations[agentv1.TargetAnnotation]
		if node.Annotations[agentv1.StateAnnotation] == string(agentv1.Draining) {
			p.annotate(ctx, agentv1.DrainedAnnotation, target)
		}
		text := node.Annotations[agentv1.StateAnnotation] + " " + target
		if reason := node.Annotations[agentv1.ReasonAnnotation]; reason != "" {
			GinkgoWriter.Println(text, reason, node.Annotations[agentv1.DriftAnnotation])
		}
		return text
	}
}

// servingCertificate returns a certificate for a server at an address, and its PEM.
func servingCertificate(address string) (certificate tls.Certificate, authority string) {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.ParseIP(address)}, IsCA: true, BasicConstraintsValid: true,
	}
	certificate = selfSigned(template, key)
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}))
}

func selfSigned(template *x509.Certificate, key *ecdsa.PrivateKey) tls.Certificate {
	GinkgoHelper()
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// newHostPool starts a control plane in a rack, and what stands in for the manager and the config server of host-0.
func newHostPool(ctx context.Context, rack *baremetal.Rack) *hostPool {
	GinkgoHelper()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "hosts", Host: rack.Address(), ControllerManager: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(cluster.Stop)
	p := &hostPool{client: kubernetes.NewForConfigOrDie(cluster.Config), node: "host-0", cluster: cluster, address: rack.Address(), readyDeadlineSeconds: 30,
		rendered: map[string][]byte{}, clientCA: x509.NewCertPool()}
	Expect(p.clientCA.AppendCertsFromPEM(cluster.CA)).To(BeTrue())
	p.program, err = os.ReadFile(agentProgram)
	Expect(err).NotTo(HaveOccurred(), "run make build-agent")
	server := newServer(ctx, rack.Address(), p.ServeHTTP)
	own, authority := servingCertificate(rack.Address())
	p.serving = own
	server.TLS = &tls.Config{GetConfigForClient: p.secure, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	identity, err := cluster.UserConfig("system:node:"+p.node, "system:nodes")
	Expect(err).NotTo(HaveOccurred())
	p.settings = assignment.Settings{Server: server.URL, CA: authority, Namespace: "metal", Name: "host", PointerID: "1-2"}
	settings, err := json.Marshal(p.settings)
	Expect(err).NotTo(HaveOccurred())
	machine := withKubelet(cluster)
	machine["storage"].(map[string]any)["files"] = append(machine["storage"].(map[string]any)["files"].([]map[string]any),
		file(assignment.SettingsPath, 0o644, string(settings)))
	machine["systemd"].(map[string]any)["units"] = append(machine["systemd"].(map[string]any)["units"].([]map[string]any),
		unit(assignment.AgentUnit, "[Unit]", "After=network-online.target", "Wants=network-online.target", "StartLimitIntervalSec=0",
			"[Service]", "ExecStart="+assignment.ProgramPath+" run", "Restart=always", "RestartSec=2", "KillMode=mixed", "[Install]", "WantedBy=multi-user.target"))
	p.machine = document(machine)
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, _ = writer.Write(p.program)
	Expect(writer.Close()).To(Succeed())
	plain := newServer(ctx, rack.Address(), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed.Bytes()) })
	plain.Start()
	p.programFile = file(assignment.ProgramPath, 0o755, "")
	p.programFile["contents"] = map[string]any{"source": plain.URL + "/agent", "compression": "gzip",
		"verification": map[string]any{"hash": fmt.Sprintf("sha512-%x", sha512.Sum512(p.program))}}
	p.nodeCertificate = file(certificate, 0o600, string(append(append([]byte{}, identity.CertData...), identity.KeyData...)))
	return p
}

// userData returns what installs a host with a rendered config, the machine's part, the agent, and other files.
func (p *hostPool) userData(name string, others ...map[string]any) []byte {
	GinkgoHelper()
	extra := document(map[string]any{"storage": files(append(others, p.programFile)...)})
	p.mu.Lock()
	defer p.mu.Unlock()
	var configs []ignition.Config
	for _, raw := range [][]byte{p.rendered[name], p.machine, extra} {
		config, err := ignition.Parse(raw)
		Expect(err).NotTo(HaveOccurred())
		configs = append(configs, config)
	}
	userData, err := ignition.WriteAs(ignition.Merge(configs...), "3.4.0")
	Expect(err).NotTo(HaveOccurred())
	return userData
}
