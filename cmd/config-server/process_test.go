package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// configServer is a running config server.
type configServer struct {
	session *gexec.Session
	url     string
	health  string
	metrics string
	certDir string
}

func writeCertificate(dir string) {
	GinkgoHelper()
	pair, err := authority.Server()
	Expect(err).NotTo(HaveOccurred())
	writePair(dir, pair)
}

func writePair(dir string, pair loopback.Pair) {
	GinkgoHelper()
	for name, content := range map[string][]byte{certificateFile: pair.Cert, keyFile: pair.Key} {
		Expect(os.WriteFile(filepath.Join(dir, name), content, 0o600)).To(Succeed())
	}
}

func freeAddress() string {
	GinkgoHelper()
	port, err := loopback.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return loopback.Address(port)
}

// launch starts a config server, which is killed after the test.
func launch(extra ...string) *configServer {
	GinkgoHelper()
	hosts, health, metrics := freeAddress(), freeAddress(), freeAddress()
	s := &configServer{url: "https://" + hosts, health: "http://" + health, metrics: "http://" + metrics, certDir: GinkgoT().TempDir()}
	writeCertificate(s.certDir)
	arguments := append([]string{
		"--kubeconfig", kubeconfig, "--overlay-namespace", ownNamespace, "--external-url", s.url, "--tls-cert-dir", s.certDir,
		"--bind-address", hosts, "--health-bind-address", health, "--metrics-bind-address", metrics,
	}, extra...)
	command := exec.Command(os.Args[0], arguments...)
	command.Env = append(os.Environ(), programVariable+"=1")
	var err error
	s.session, err = gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { s.session.Kill().Wait(10 * time.Second) })
	return s
}

// serve starts a config server and returns when it is ready.
func serve(extra ...string) *configServer {
	GinkgoHelper()
	s := launch(extra...)
	Eventually(func() (int, error) { return status(s.health + "/readyz") }, time.Minute, 100*time.Millisecond).Should(Equal(http.StatusOK))
	return s
}

func status(target string) (int, error) {
	response, err := http.Get(target)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

func text(target string) (string, error) {
	response, err := http.Get(target)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(response.Body)
	return string(body), errors.Join(err, response.Body.Close())
}

// hostClient returns a client that trusts the CA of the config server and keeps no connections.
func hostClient() *http.Client {
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority.PEM())
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}}
}

// send sends one request, as a host does.
func (s *configServer) send(path, token string) (code int, body []byte, err error) {
	return s.sendFrom("127.0.0.1", path, token)
}

// sendFrom is send with a source address.
func (s *configServer) sendFrom(address, path, token string) (code int, body []byte, err error) {
	request, err := http.NewRequest(http.MethodGet, s.url+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	host := hostClient()
	host.Transport.(*http.Transport).DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	response, err := host.Do(request)
	if err != nil {
		return 0, nil, err
	}
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, errors.Join(err, response.Body.Close())
}

// machine is a PoolbootConfig with its token and its rendered config.
type machine struct {
	config          *bootstrapv1.PoolbootConfig
	rendered, token string
}

func newMachine(ctx context.Context, name string) *machine {
	GinkgoHelper()
	m := &machine{token: "token-of-" + name}
	m.config = &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: name, Annotations: map[string]string{bootstrapv1.PointerIDAnnotation: name},
		},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}},
	}
	Expect(admin.Create(ctx, m.config)).To(Succeed())
	m.rotate(ctx, m.token)
	spec := poolv1.MachineConfigSpec{
		Config:          &runtime.RawExtension{Raw: []byte(`{"storage":{"files":[{"path":"/etc/of-` + name + `"}]},"ignition":{"version":"3.5.0"}}`)},
		KernelArguments: []string{"nosmt"},
	}
	var err error
	m.rendered, err = pool.NameFor("infra", spec)
	Expect(err).NotTo(HaveOccurred())
	Expect(admin.Create(ctx, &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: m.rendered, Labels: map[string]string{poolv1.RenderedForLabel: "infra"},
		},
		Spec: spec,
	})).To(Succeed())
	return m
}

// rotate records a token of the machine, as the manager does.
func (m *machine) rotate(ctx context.Context, token string) {
	GinkgoHelper()
	before := m.config.DeepCopy()
	m.token = token
	maps.Copy(m.config.Annotations, access.Config(client.ObjectKeyFromObject(m.config), m.config.UID).Annotations(token))
	Expect(admin.Patch(ctx, m.config, client.MergeFrom(before))).To(Succeed())
}

func (m *machine) path() string {
	return "/config/infra/" + m.config.Namespace + "/" + m.config.Name + "/" + m.config.Name
}

func (m *machine) renderedPath() string {
	return "/rendered/" + m.config.Namespace + "/" + m.rendered + "?config=" + m.config.Name + "&pointer=" + m.config.Name
}

// prepare creates the machine's overlay, as the manager does after a boot request.
func (m *machine) prepare(ctx context.Context) {
	GinkgoHelper()
	Expect(admin.Create(ctx, m.overlay())).To(Succeed())
}

func (m *machine) overlay() *corev1.Secret {
	GinkgoHelper()
	packed, err := ignition.PackOverlay(ignition.New())
	Expect(err).NotTo(HaveOccurred())
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ownNamespace, Name: "overlay-" + string(m.config.UID),
			Labels: map[string]string{bootstrapv1.OverlayLabel: string(m.config.UID)},
			Annotations: map[string]string{
				bootstrapv1.OverlayExpiresAnnotation:       time.Now().Add(15 * time.Minute).UTC().Format(time.RFC3339),
				bootstrapv1.OverlayConfigurationAnnotation: m.rendered,
			},
		},
		Data: map[string][]byte{bootstrapv1.OverlayKey: []byte(packed)},
	}
}
