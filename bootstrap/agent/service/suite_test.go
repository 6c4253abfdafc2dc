package service

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubelet"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/staticpods"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func TestService(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("changing owners needs root")
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "The service of the agent")
}

// world is a host in a directory, with an API server and a config server.
type world struct {
	directory string
	root      *os.Root
	api       *httptest.Server
	config    *httptest.Server

	mu          sync.Mutex
	annotations map[string]string
	version     int
	watchers    map[chan struct{}]bool
	document    []byte
	rendered    map[string][]byte // also programs, by hash
	register    func(w http.ResponseWriter)
	registered  int
	kubelet     unitstate.State
	// isNext is set if the host stages what is offered, and is not told to have it.
	isNext bool
	// refuses is set if the API server refuses every write.
	refuses bool
	// stops counts the reports that the agent has stopped.
	stops int
	// expires is when the only certificate expires that the config server accepts, zero if it accepts all.
	expires time.Time
}

func newWorld() *world {
	GinkgoHelper()
	w := &world{directory: GinkgoT().TempDir(), annotations: map[string]string{}, version: 1, watchers: map[chan struct{}]bool{}, rendered: map[string][]byte{}}
	var err error
	w.root, err = os.OpenRoot(w.directory)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(w.root.Close)
	w.api, w.config = httptest.NewTLSServer(http.HandlerFunc(w.serveAPI)), httptest.NewUnstartedServer(http.HandlerFunc(w.serveConfig))
	w.config.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	w.config.StartTLS()
	for _, server := range []*httptest.Server{w.api, w.config} {
		DeferCleanup(server.Close)
		DeferCleanup(server.CloseClientConnections)
	}
	w.write("/etc/passwd", "root:x:0:0::/root:/bin/sh\n")
	w.write("/etc/group", "root:x:0:\n")
	settings, err := json.Marshal(assignment.Settings{Server: w.config.URL, CA: string(pemOf(w.config)), Namespace: "edge", Name: "edge-7", PointerID: "1-2"})
	Expect(err).NotTo(HaveOccurred())
	w.write(assignment.SettingsPath, string(settings))
	return w
}

func pemOf(server *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
}

func (w *world) write(name, contents string) {
	GinkgoHelper()
	name = filepath.Join(w.directory, name)
	Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
	Expect(os.WriteFile(name, []byte(contents), 0o644)).To(Succeed())
}

func (w *world) read(name string) string {
	raw, _ := os.ReadFile(filepath.Join(w.directory, name))
	return string(raw)
}

// join writes what the kubelet writes when the host has joined.
func (w *world) join(notAfter time.Time) {
	GinkgoHelper()
	w.write(ignition.KubeconfigPath, "current-context: c\ncontexts: [{name: c, context: {cluster: d}}]\nclusters: [{name: d, cluster: {server: '"+w.api.URL+
		"', certificate-authority-data: "+base64.StdEncoding.EncodeToString(pemOf(w.api))+"}}]\n")
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:edge-7"}, NotAfter: notAfter}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	key, err := x509.MarshalECPrivateKey(private)
	Expect(err).NotTo(HaveOccurred())
	w.write(kubelet.CertificatePath, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))+string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})))
}

func (w *world) nodeJSON() string {
	annotations, _ := json.Marshal(w.annotations)
	return fmt.Sprintf(`{"kind":"Node","metadata":{"name":"edge-7","resourceVersion":"%d","annotations":%s},"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`,
		w.version, annotations, time.Now().UTC().Format(time.RFC3339))
}

// annotate changes annotations as the API server does.
func (w *world) annotate(changes map[string]*string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if boot := changes[agentv1.BootAnnotation]; boot != nil && *boot == agentv1.AgentStopped {
		w.stops++
	}
	for name, value := range changes {
		delete(w.annotations, name)
		if value != nil {
			w.annotations[name] = *value
		}
	}
	w.version++
	for watcher := range w.watchers {
		select {
		case watcher <- struct{}{}:
		default:
		}
	}
}

func (w *world) annotation(name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.annotations[name]
}

func (w *world) serveAPI(response http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	object, refuses := w.nodeJSON(), w.refuses
	changed := make(chan struct{}, 1)
	if r.URL.Query().Get("watch") != "" {
		w.watchers[changed] = true
	}
	w.mu.Unlock()
	switch {
	case r.Method == http.MethodPatch && refuses:
		response.WriteHeader(http.StatusInternalServerError)
	case r.Method == http.MethodPatch:
		var patch struct {
			Metadata struct {
				Annotations map[string]*string `json:"annotations"`
			} `json:"metadata"`
		}
		_ = json.NewDecoder(r.Body).Decode(&patch)
		w.annotate(patch.Metadata.Annotations)
		_, _ = io.WriteString(response, object)
	case strings.Contains(r.URL.Path, "/leases/"):
		_, _ = fmt.Fprintf(response, `{"spec":{"renewTime":%q}}`, time.Now().UTC().Add(time.Second).Format(time.RFC3339Nano))
	case r.URL.Query().Get("watch") == "":
		_, _ = io.WriteString(response, object)
	default:
		response.(http.Flusher).Flush()
		for {
			select {
			case <-changed:
			case <-r.Context().Done():
				return
			}
			w.mu.Lock()
			object := w.nodeJSON()
			w.mu.Unlock()
			_, _ = fmt.Fprintf(response, `{"type":"MODIFIED","object":%s}`, object)
			response.(http.Flusher).Flush()
		}
	}
}

func (w *world) serveConfig(response http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if chain := r.TLS.PeerCertificates; len(chain) == 0 || !w.expires.IsZero() && !w.expires.Equal(chain[0].NotAfter) {
		response.WriteHeader(http.StatusUnauthorized)
		return
	}
	switch {
	case r.Method == http.MethodPost:
		w.registered++
		w.register(response)
	case strings.HasPrefix(r.URL.Path, "/update/"):
		_, _ = response.Write(w.document)
	default:
		packed := gzip.NewWriter(response)
		_, _ = packed.Write(w.rendered[filepath.Base(r.URL.Path)])
		_ = packed.Close()
	}
}

// offer offers a configuration with one file to the host, and returns its revision.
func (w *world) offer(name, contents string, changes ...func(*assignment.Assignment)) string {
	GinkgoHelper()
	own := `{"name":"` + name + `","kernelType":"default"}`
	w.mu.Lock()
	document := []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","overwrite":true,"mode":420,"contents":{"source":"data:,` + contents + `"}},` +
		`{"path":"` + ignition.MachineConfigPath + `","overwrite":true,"mode":420,"contents":{"source":"data:;base64,` + base64.StdEncoding.EncodeToString([]byte(own)) + `"}}]}}`)
	w.rendered[name] = document
	sum := sha512.Sum512(document)
	policy := update.DefaultPolicy()
	policy.Paths["/etc/motd"] = update.Rule{Actions: []update.Action{{Type: update.None}}}
	assigned := assignment.Assignment{
		Node: "edge-7", Config: assignment.RenderedConfig{Name: name, SHA512: hex.EncodeToString(sum[:])}, Machine: []byte(`{"ignition":{"version":"3.5.0"}}`),
		Policy: policy, ReadyDeadlineSeconds: 60,
	}
	for _, change := range changes {
		change(&assigned)
	}
	var err error
	w.document, err = assignment.Encode(assigned)
	Expect(err).NotTo(HaveOccurred())
	revision := assignment.Revision(w.document)
	w.mu.Unlock()
	key := agentv1.DesiredAnnotation
	if w.isNext {
		key = agentv1.NextAnnotation
	}
	w.annotate(map[string]*string{key: &revision})
	return revision
}

// install writes what Ignition writes.
func (w *world) install(name, contents string) {
	GinkgoHelper()
	w.write("/etc/motd", contents)
	w.write(ignition.MachineConfigPath, `{"name":"`+name+`","kernelType":"default"}`)
}

type noExecutor struct{}

func (noExecutor) Apply(_ context.Context, operation update.Operation) error {
	return errors.New("unexpected: " + operation.String())
}
func (noExecutor) Prepare(context.Context, []update.Operation) error { return nil }
func (noExecutor) Differing(context.Context, map[string]update.Enablement) (differing, masked []string, _ error) {
	return nil, nil, nil
}
func (noExecutor) Differences([]string) (missing, additional []string, _ error) { return nil, nil, nil }
func (noExecutor) Difference(context.Context, update.OperatingSystem) (entry update.Kind, how string, _ error) {
	return "", "", nil
}

// fakeUnits is the systemd of the host. Without another state, the kubelet runs.
type fakeUnits struct {
	agent.Units
	w *world
}

func (f fakeUnits) DaemonReload(context.Context) error        { return nil }
func (f fakeUnits) Failing(context.Context) ([]string, error) { return nil, nil }
func (f fakeUnits) State(_ context.Context, unit string) (unitstate.State, error) {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if f.w.kubelet.Active == "" {
		return unitstate.State{Unit: unit, Load: "loaded", Active: "active"}, nil
	}
	s := f.w.kubelet
	s.Unit, s.Load = unit, "loaded"
	return s, nil
}

func (f fakeUnits) States(ctx context.Context, units ...string) (states []unitstate.State, _ error) {
	for _, unit := range units {
		state, _ := f.State(ctx, unit)
		states = append(states, state)
	}
	return states, nil
}

func (w *world) service() *Service {
	return &Service{
		Root: w.root, Version: "v0.1.0", Log: slog.New(slog.NewTextHandler(GinkgoWriter, nil)), Capabilities: update.AllCapabilities,
		Executors: func(*hostfiles.Updater) agent.Executors {
			none := noExecutor{}
			return agent.Executors{Accounts: none, KubeletFlags: none, Enablement: none, KernelArguments: none, OS: none, Units: fakeUnits{w: w}, StaticPods: staticpods.Host{Root: w.root},
				Check: func(context.Context) ([]string, error) { return nil, nil }}
		},
	}
}

// start runs a service until the spec ends, or until stop is called, which returns its error.
func start(s *Service) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			cancel()
			err = <-result
		})
		return err
	}
	DeferCleanup(func() { _ = stop() })
	return stop
}
