package site

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
	"sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// namespace is the namespace of Poolboot in config/.
const namespace = "poolboot-system"

// Program is one of Poolboot's two programs. It runs as its ServiceAccount with the RBAC rules of config/.
type Program struct {
	name, dir, path, hosts, health, metrics string
	args                                    []string
	process                                 *process.Process
}

// Start starts the program and waits until it is ready.
func (p *Program) Start(ctx context.Context) error {
	var err error
	if p.process, err = process.Launch(p.dir, nil, p.path, p.args...); err != nil {
		return err
	}
	return p.process.WaitFor(ctx, func(ctx context.Context) error {
		_, err := read(ctx, "http://"+p.health+"/readyz")
		return err
	})
}

// Kill kills the program with SIGKILL. Start starts it again.
func (p *Program) Kill() error { return p.process.Kill() }

// Stop terminates the program and waits until it has exited.
func (p *Program) Stop() error {
	if p == nil {
		return nil
	}
	return p.process.Stop()
}

// PeakMemory returns the program's peak memory since its last start, in bytes.
func (p *Program) PeakMemory() (int, error) { return p.process.PeakMemory() }

// Metrics returns the program's metrics.
func (p *Program) Metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	body, err := p.Exposition(ctx)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}

// Exposition returns the program's metrics in Prometheus' text format.
func (p *Program) Exposition(ctx context.Context) ([]byte, error) {
	return read(ctx, p.MetricsURL())
}

// MetricsURL returns the URL of the program's metrics.
func (p *Program) MetricsURL() string { return "http://" + p.metrics + "/metrics" }

// Log returns the program's log since its first start.
func (p *Program) Log() (string, error) {
	content, err := os.ReadFile(filepath.Join(p.dir, p.name+".log"))
	return string(content), err
}

func read(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 16<<20))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, body)
	}
	return body, err
}

// InstallSet returns the objects of config/default with the defaults of clusterctl's variables, as clusterctl installs
// them.
func InstallSet(ctx context.Context, binDir string) ([]unstructured.Unstructured, error) {
	kustomize := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl"), "kustomize", sourcetree.Path("config", "default"))
	var stderr bytes.Buffer
	kustomize.Stderr = &stderr
	raw, err := kustomize.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize config/default: %w: %s", err, stderr.Bytes())
	}
	required := func(name string) (string, error) {
		if name == "POOLBOOT_CONFIG_SERVER_HOST" {
			return "boot.example.com", nil
		}
		return "", fmt.Errorf("variable %s is not set", name)
	}
	filled, err := yamlprocessor.NewSimpleProcessor().Process(raw, required)
	if err != nil {
		return nil, fmt.Errorf("variables of config/default: %w", err)
	}
	return yaml.ToUnstructured(filled)
}

// endpoint is the config server's address for hosts, and the authority of its certificate.
type endpoint struct {
	address   string
	authority *loopback.CA
}

func newEndpoint(host string) (*endpoint, error) {
	authority, err := loopback.NewCA("poolboot")
	if err != nil {
		return nil, err
	}
	port, err := loopback.FreePort()
	return &endpoint{address: net.JoinHostPort(host, strconv.Itoa(port)), authority: authority}, err
}

// startPoolboot installs Poolboot's namespace, ServiceAccounts, RBAC rules and webhooks, and starts its two programs.
// On a site with a predecessor it starts the manager only.
func (s *Site) startPoolboot(ctx context.Context) error {
	objects, err := InstallSet(ctx, s.binDir)
	if err != nil {
		return err
	}
	rights := []string{"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
	var webhooks []unstructured.Unstructured
	for _, object := range objects {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			webhooks = append(webhooks, object)
		}
		if slices.Contains(rights, object.GetKind()) {
			if err := s.ManagementClient.Apply(ctx, client.ApplyConfigurationFromUnstructured(&object), client.FieldOwner("site"), client.ForceOwnership); err != nil {
				return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
			}
		}
	}
	certDir, caFile := filepath.Join(s.dir, "serving"), filepath.Join(s.dir, "config-server-ca.crt")
	if err := writeServingCertificate(s.endpoint.authority, s.address(), certDir, caFile); err != nil {
		return err
	}
	ports := make([]string, 3)
	for i := range ports {
		port, err := loopback.FreePort()
		if err != nil {
			return err
		}
		ports[i] = loopback.Address(port)
	}
	webhook, managerHealth, managerMetrics := ports[0], ports[1], ports[2]

	s.Manager = &Program{name: "manager", dir: s.dir, path: filepath.Join(s.binDir, "manager"), health: managerHealth, metrics: managerMetrics, args: append([]string{
		"--overlay-namespace=" + namespace, "--agent-directory=" + s.agents(),
		"--config-server-url=https://" + s.endpoint.address,
		"--config-server-ca-file=" + caFile,
		"--webhook-host=" + loopback.Host, "--webhook-port=" + portOf(webhook), "--webhook-cert-dir=" + certDir,
		"--health-addr=" + managerHealth, "--diagnostics-address=" + managerMetrics, "--insecure-diagnostics",
	}, s.options.Flags.Manager...)}
	if err := s.newReplicas(certDir); err != nil {
		return err
	}
	if err := s.openWays(); err != nil {
		return err
	}
	for account, programs := range map[string][]*Program{"poolboot-manager": {s.Manager}, "poolboot-config-server": s.Replicas} {
		name := programs[0].name
		kubeconfig := filepath.Join(s.dir, name+".kubeconfig")
		if err := writeAccountKubeconfig(ctx, s.Management, s.ManagementClient, account, s.Ways.server(name, s.Management), kubeconfig); err != nil {
			return err
		}
		for _, program := range programs {
			program.args = append(program.args, "--kubeconfig="+kubeconfig)
		}
	}
	if err := s.Manager.Start(ctx); err != nil {
		return err
	}
	if err := clusterapi.InstallWebhooks(ctx, s.Management.Config, webhooks, "https://"+webhook, s.endpoint.authority.PEM()); err != nil {
		return err
	}
	if err := s.waitForWebhooks(ctx); err != nil || s.options.Predecessor != nil {
		return err
	}
	return s.startReplicas(ctx)
}

// waitForWebhooks waits until the API server calls Poolboot's webhooks.
func (s *Site) waitForWebhooks(ctx context.Context) error {
	probe := metav1.ObjectMeta{Name: "probe", Namespace: metav1.NamespaceDefault}
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		refused := &poolv1.MachineConfig{ObjectMeta: probe, Spec: poolv1.MachineConfigSpec{Butane: "variant: none"}}
		last = s.ManagementClient.Create(ctx, refused, client.DryRunAll)
		return apierrors.IsInvalid(last), nil
	})
	if err != nil {
		return fmt.Errorf("webhooks of Poolboot do not respond: %w; last error: %w", err, last)
	}
	return nil
}

// agents returns the directory with the agents that hosts install at their first boot, "" if they install none.
func (s *Site) agents() string {
	if !s.options.Agents {
		return ""
	}
	return filepath.Join(s.binDir, "agents")
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

func writeServingCertificate(authority *loopback.CA, address, certDir, caFile string) error {
	pair, err := authority.Server(address)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(certDir, 0o700); err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		filepath.Join(certDir, "tls.crt"): pair.Cert,
		filepath.Join(certDir, "tls.key"): pair.Key,
		caFile:                            authority.PEM(),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeAccountKubeconfig writes a kubeconfig with a token of a ServiceAccount in Poolboot's namespace.
func writeAccountKubeconfig(ctx context.Context, management *controlplane.ControlPlane, admin client.Client, account, server, path string) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: namespace}}
	if err := admin.SubResource("token").Create(ctx, serviceAccount, request); err != nil {
		return fmt.Errorf("token of ServiceAccount %s: %w", account, err)
	}
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"management": {Server: server, CertificateAuthorityData: management.CA}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{account: {Token: request.Status.Token}},
		Contexts:       map[string]*clientcmdapi.Context{"management": {Cluster: "management", AuthInfo: account}},
		CurrentContext: "management",
	}, path)
}
