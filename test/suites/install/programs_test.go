package install_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

// diagnostics is where the manager serves its metrics.
var diagnostics string

// startPrograms runs the manager and the config server with the arguments of their Deployments; only addresses and
// paths that this machine does not have are replaced. The API server is told to ask the manager's webhooks.
func startPrograms(ctx SpecContext) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	authority, err := loopback.NewCA("poolboot")
	Expect(err).NotTo(HaveOccurred())
	serving, err := authority.Server()
	Expect(err).NotTo(HaveOccurred())
	caFile := filepath.Join(dir, "ca.crt")
	for path, content := range map[string][]byte{
		filepath.Join(dir, "tls.crt"): serving.Cert, filepath.Join(dir, "tls.key"): serving.Key, caFile: authority.PEM(),
	} {
		Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	}
	webhook := freePort()
	diagnostics = loopback.Address(freePort())
	managerHealth, configHealth := loopback.Address(freePort()), loopback.Address(freePort())
	start(ctx, dir, "poolboot-controller-manager", managerHealth,
		"--config-server-ca-file="+caFile, "--webhook-cert-dir="+dir,
		"--webhook-host="+loopback.Host, fmt.Sprint("--webhook-port=", webhook),
		"--health-addr="+managerHealth, "--diagnostics-address="+diagnostics)
	start(ctx, dir, "poolboot-config-server", configHealth,
		"--tls-cert-dir="+dir, "--bind-address="+loopback.Address(freePort()),
		"--health-bind-address="+configHealth, "--metrics-bind-address="+loopback.Address(freePort()))
	redirectWebhooks(ctx, "https://"+loopback.Address(webhook), authority.PEM())
}

// start runs the program of a Deployment, as the user that its Pods are.
func start(ctx SpecContext, dir, deployment, health string, replaced ...string) {
	GinkgoHelper()
	pod := podOf(deployment)
	container := pod.Spec.Containers[0]
	kubeconfig, err := clientcmd.LoadFromFile(plane.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, user := range kubeconfig.AuthInfos {
		user.Impersonate = fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName)
	}
	path := filepath.Join(dir, deployment+".kubeconfig")
	Expect(clientcmd.WriteToFile(*kubeconfig, path)).To(Succeed())

	var args []string
	for _, arg := range container.Args {
		args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", pod.Namespace))
	}
	args = append(append(args, replaced...), "--kubeconfig="+path)
	program, err := process.Launch(dir, filepath.Join(binDir, filepath.Base(container.Command[0])), args...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(program.Stop()).To(Succeed()) })
	Expect(program.WaitFor(ctx, func(ctx context.Context) error { return ready(ctx, health) })).To(Succeed())
}

// ready asks a program whether it is.
func ready(ctx context.Context, health string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+"/readyz", nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// redirectWebhooks points the installed webhooks, which name a Service, to the manager of this test, and returns when
// the API server asks it.
func redirectWebhooks(ctx SpecContext, url string, ca []byte) {
	GinkgoHelper()
	var configurations []unstructured.Unstructured
	for _, object := range components.Objs() {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			Expect(c.Delete(ctx, object.DeepCopy())).To(Succeed())
			configurations = append(configurations, *object.DeepCopy())
		}
	}
	Expect(clusterapi.InstallWebhooks(ctx, plane.Config, configurations, url, ca)).To(Succeed())
	refused := &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: metav1.NamespaceDefault},
		Spec:       poolv1.MachineConfigSpec{Butane: "variant: fcos"},
	}
	Eventually(func() error { return c.Create(ctx, refused.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("spec.butane")))
}

// podOf returns a Pod as a Deployment of the set would make it.
func podOf(deployment string) *corev1.Pod {
	GinkgoHelper()
	for _, d := range ofKind[appsv1.Deployment](components.Objs(), "Deployment") {
		if d.Name == deployment {
			pod := &corev1.Pod{ObjectMeta: *d.Spec.Template.ObjectMeta.DeepCopy(), Spec: *d.Spec.Template.Spec.DeepCopy()}
			pod.Namespace, pod.Name = d.Namespace, d.Name
			return pod
		}
	}
	Fail("no Deployment " + deployment)
	return nil
}

func freePort() int {
	GinkgoHelper()
	port, err := loopback.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}

// askForMetrics asks for the manager's metrics as somebody without the right to them, and returns the answer's status
// code.
func askForMetrics(ctx SpecContext) (code int) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: rights.ConfigServer, Namespace: own}}
	token := &authenticationv1.TokenRequest{}
	Expect(c.SubResource("token").Create(ctx, account, token)).To(Succeed())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+diagnostics+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token.Status.Token)
	anyone := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	Eventually(func() error { // it listens a moment after the manager is ready
		response, err := anyone.Do(request)
		if err != nil {
			return err
		}
		code = response.StatusCode
		return response.Body.Close()
	}).Should(Succeed())
	return code
}

var _ = Describe("the manager's metrics", func() {
	It("are refused to those who have no right to read them", func(ctx SpecContext) {
		Expect(askForMetrics(ctx)).To(Equal(http.StatusForbidden))
	})
})
