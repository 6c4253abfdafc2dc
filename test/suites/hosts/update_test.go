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
	corev1 "k8s.io/api/core/v1"
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

	mu       sync.Mutex
	document []byte
	rendered map[string][]byte
	program  []byte
}

func (p *hostPool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	body, name := []byte(nil), path.Base(r.URL.Path)
	switch {
	case strings.HasPrefix(r.URL.Path, "/agent/"):
		body = p.program
	case len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != "system:node:"+p.node:
		w.WriteHeader(http.StatusUnauthorized)
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

// render returns the document of a rendered config.
func (p *hostPool) render(name string, config map[string]any) []byte {
	GinkgoHelper()
	own, err := json.Marshal(ignition.MachineConfigFile{Name: name, KernelType: "default"})
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

// assign tells the host to run a rendered config, and returns the revision.
func (p *hostPool) assign(ctx context.Context, name string) string {
	GinkgoHelper()
	policy := update.DefaultPolicy()
	rule := func(actions ...update.Action) update.Rule { return update.Rule{Actions: actions, Reason: "a spec"} }
	policy.Paths["/etc/none"] = rule(update.Action{Type: update.None})
	policy.Units["web.service"] = rule(update.Action{Type: update.DaemonReload}, update.Action{Type: update.Restart, Unit: "web.service"})
	p.mu.Lock()
	sum := sha512.Sum512(p.rendered[name])
	document, err := assignment.Encode(assignment.Assignment{
		Node: p.node, Config: assignment.Rendered{Name: name, SHA512: fmt.Sprintf("%x", sum)}, Machine: p.machine,
		Policy: policy, MinReadySeconds: 2, ReadyDeadlineSeconds: 30,
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
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	Expect(err).NotTo(HaveOccurred())
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

var _ = Describe("The agent on a host in namespaces", func() {
	It("updates the host with systemd and the kubelet, reboots it, and undoes what does not work", func(ctx SpecContext) {
		rack := newRack(ctx)
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "hosts", Host: rack.Address(), ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		p := &hostPool{client: kubernetes.NewForConfigOrDie(cluster.Config), node: "host-0", rendered: map[string][]byte{}}
		p.program, err = os.ReadFile(agentProgram)
		Expect(err).NotTo(HaveOccurred(), "run make build-agent")
		server := newServer(ctx, rack.Address(), p.ServeHTTP)
		own, authority := servingCertificate(rack.Address())
		server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}
		server.StartTLS()

		By("installing the host")
		identity, err := cluster.UserConfig("system:node:host-0", "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		settings, err := json.Marshal(assignment.Settings{Server: server.URL, CA: authority, Namespace: "metal", Name: "host", PointerID: "1-2"})
		Expect(err).NotTo(HaveOccurred())
		machine := withKubelet(cluster)
		machine["storage"].(map[string]any)["files"] = append(machine["storage"].(map[string]any)["files"].([]map[string]any),
			file(assignment.SettingsPath, 0o644, string(settings)))
		machine["systemd"].(map[string]any)["units"] = append(machine["systemd"].(map[string]any)["units"].([]map[string]any),
			unit(assignment.AgentUnit, "[Unit]", "After=network-online.target", "Wants=network-online.target", "StartLimitIntervalSec=0",
				"[Service]", "ExecStart="+assignment.ProgramPath+" run", "Restart=always", "RestartSec=2", "KillMode=mixed", "[Install]", "WantedBy=multi-user.target"))
		p.machine = document(machine)
		web := func(text string) map[string]any {
			return unit("web.service", "[Service]", "ExecStart=/bin/sleep infinity", "Environment=TEXT="+text, "[Install]", "WantedBy=multi-user.target")
		}
		first := p.render("rendered-a", map[string]any{"storage": files(file("/etc/none/f", 0o644, "a"), file("/etc/reboots", 0o600, "a")), "systemd": units(web("a"))})
		var packed bytes.Buffer
		writer := gzip.NewWriter(&packed)
		_, _ = writer.Write(p.program)
		Expect(writer.Close()).To(Succeed())
		plain := newServer(ctx, rack.Address(), func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed.Bytes()) })
		plain.Start()
		program := file(assignment.ProgramPath, 0o755, "")
		program["contents"] = map[string]any{"source": plain.URL + "/agent", "compression": "gzip",
			"verification": map[string]any{"hash": fmt.Sprintf("sha512-%x", sha512.Sum512(p.program))}}
		pair := append(append([]byte{}, identity.CertData...), identity.KeyData...)
		extra := document(map[string]any{"storage": files(program, file(certificate, 0o600, string(pair)))})
		var configs []ignition.Config
		for _, raw := range [][]byte{first, p.machine, extra} {
			config, err := ignition.Parse(raw)
			Expect(err).NotTo(HaveOccurred())
			configs = append(configs, config)
		}
		userData, err := ignition.WriteAs(ignition.Merge(configs...), "3.4.0")
		Expect(err).NotTo(HaveOccurred())
		h := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, userData)
		Expect(h.PowerOn(ctx)).To(Succeed())
		boot := waitForBoot(ctx, h)
		revision := p.assign(ctx, "rendered-a")
		Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))

		By("updating it without a reboot")
		p.render("rendered-b", map[string]any{"storage": files(file("/etc/none/f", 0o600, "b"), file("/etc/reboots", 0o600, "a")), "systemd": units(web("b"))})
		revision = p.assign(ctx, "rendered-b")
		Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))
		Expect(h.Run(ctx, "stat", "-c", "%a %s", "/etc/none/f")).To(Equal("600 1\n"))
		Expect(h.Run(ctx, "systemctl", "show", "--property=Environment", "web.service")).To(Equal("Environment=TEXT=b\n"))
		Expect(waitForBoot(ctx, h)).To(Equal(boot))

		By("updating it with a reboot, a new user, and without its unit")
		p.render("rendered-c", map[string]any{
			"storage": files(file("/etc/none/f", 0o600, "b"), file("/etc/reboots", 0o600, "c")),
			"passwd":  map[string]any{"users": []map[string]any{{"name": "edgeadmin", "sshAuthorizedKeys": []string{"ssh-ed25519 AAAA b"}}}},
		})
		revision = p.assign(ctx, "rendered-c")
		Eventually(ctx, p.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Done " + revision))
		another := waitForBoot(ctx, h)
		Expect(another).NotTo(Equal(boot))
		Expect(readFile(ctx, h, "/etc/reboots")).To(Equal("c"))
		Expect(h.Run(ctx, "sh", "-c", "id -u edgeadmin && cat ~edgeadmin/.ssh/authorized_keys.d/ignition || cat ~edgeadmin/.ssh/authorized_keys")).To(ContainSubstring("AAAA b"))
		_, err = h.Run(ctx, "systemctl", "cat", "web.service")
		Expect(err).To(HaveOccurred())
		good := revision

		By("updating it so that its kubelet does not start")
		p.render("rendered-d", map[string]any{
			"storage": files(file("/etc/none/f", 0o600, "b"), file("/etc/reboots", 0o600, "d"), file("/etc/kubernetes/kubelet.conf.d/50-bad.conf", 0o644, "bad")),
			"passwd":  map[string]any{"users": []map[string]any{{"name": "edgeadmin", "sshAuthorizedKeys": []string{"ssh-ed25519 AAAA b"}}}},
		})
		revision = p.assign(ctx, "rendered-d")
		Eventually(ctx, p.state(ctx)).WithTimeout(4 * time.Minute).Should(Equal("Degraded " + revision))
		node, err := p.client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, good))
		Expect(node.Annotations[agentv1.ReasonAnnotation]).To(ContainSubstring("kubelet"))
		Expect(readFile(ctx, h, "/etc/reboots")).To(Equal("c"))
		Eventually(ctx, func() corev1.ConditionStatus {
			node, err := p.client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
			if err != nil {
				return ""
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					return condition.Status
				}
			}
			return ""
		}).Should(Equal(corev1.ConditionTrue))
	}, SpecTimeout(12*time.Minute))
})
