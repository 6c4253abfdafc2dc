package install_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// diagnosticsAddress is the address of the manager's metrics.
var diagnosticsAddress string

// startPrograms runs the manager and the config server with the arguments of their Deployments, except addresses and
// paths that this machine does not have, and points the webhooks at the manager.
func startPrograms(ctx SpecContext) {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	authority, err := loopback.NewCA("poolboot")
	Expect(err).NotTo(HaveOccurred())
	serving, err := authority.Server(serverHost)
	Expect(err).NotTo(HaveOccurred())
	caFile := filepath.Join(dir, "ca.crt")
	for path, content := range map[string][]byte{
		filepath.Join(dir, "tls.crt"): serving.Cert, filepath.Join(dir, "tls.key"): serving.Key, caFile: authority.PEM(),
	} {
		Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	}
	agents := filepath.Join(binDir, "agents")
	webhook := findFreePort()
	diagnosticsAddress = loopback.Address(findFreePort())
	managerHealth, configHealth := loopback.Address(findFreePort()), loopback.Address(findFreePort())
	startProgram(ctx, dir, "poolboot-controller-manager", managerHealth,
		"--config-server-ca-file="+caFile, "--webhook-cert-dir="+dir, "--agent-directory="+agents,
		"--webhook-host="+loopback.Host, fmt.Sprint("--webhook-port=", webhook),
		"--health-addr="+managerHealth, "--diagnostics-address="+diagnosticsAddress)
	startProgram(ctx, dir, "poolboot-config-server", configHealth,
		"--tls-cert-dir="+dir, "--agent-directory="+agents, "--bind-address="+loopback.Address(findFreePort()),
		"--health-bind-address="+configHealth, "--metrics-bind-address="+loopback.Address(findFreePort()))
	redirectWebhooks(ctx, "https://"+loopback.Address(webhook), authority.PEM())
}

// startProgram runs the program of a Deployment as its ServiceAccount, with additional arguments.
func startProgram(ctx SpecContext, dir, deployment, health string, replaced ...string) {
	GinkgoHelper()
	pod := newPod(deployment)
	program := filepath.Join(binDir, filepath.Base(pod.Spec.Containers[0].Command[0]))
	runPod(ctx, dir, controlPlane.Kubeconfig, program, pod, health, replaced...)
}

// runPod runs the program of a Pod as its ServiceAccount, with additional arguments, and waits until it is ready.
func runPod(ctx SpecContext, dir, kubeconfig, path string, pod *corev1.Pod, health string, replaced ...string) {
	GinkgoHelper()
	user, err := clientcmd.LoadFromFile(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	for _, each := range user.AuthInfos {
		each.Impersonate = fmt.Sprintf("system:serviceaccount:%s:%s", pod.Namespace, pod.Spec.ServiceAccountName)
	}
	userFile := filepath.Join(dir, pod.Name+".kubeconfig")
	Expect(clientcmd.WriteToFile(*user, userFile)).To(Succeed())

	var args []string
	for _, arg := range pod.Spec.Containers[0].Args {
		args = append(args, strings.ReplaceAll(arg, "$(POD_NAMESPACE)", pod.Namespace))
	}
	args = append(append(args, replaced...), "--kubeconfig="+userFile)
	program, err := process.Launch(dir, []string{"POD_NAMESPACE=" + pod.Namespace}, path, args...)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(program.Stop()).To(Succeed()) })
	Expect(program.WaitFor(ctx, func(ctx context.Context) error { return checkReady(ctx, health) })).To(Succeed())
}

// checkReady returns an error if a program is not ready.
func checkReady(ctx context.Context, health string) error {
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

// redirectWebhooks points the installed webhooks, which name a Service, at a URL, and waits until the API server calls
// it.
func redirectWebhooks(ctx SpecContext, url string, ca []byte) {
	GinkgoHelper()
	var configurations []unstructured.Unstructured
	for _, object := range components.Objs() {
		if strings.HasSuffix(object.GetKind(), "WebhookConfiguration") {
			Expect(k8sClient.Delete(ctx, object.DeepCopy())).To(Succeed())
			configurations = append(configurations, *object.DeepCopy())
		}
	}
	Expect(clusterapi.InstallWebhooks(ctx, controlPlane.Config, configurations, url, ca)).To(Succeed())
	refused := &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "refused", Namespace: metav1.NamespaceDefault},
		Spec:       poolv1.MachineConfigSpec{Butane: "variant: fcos"},
	}
	Eventually(func() error { return k8sClient.Create(ctx, refused.DeepCopy(), client.DryRunAll) }).Should(MatchError(ContainSubstring("spec.butane")))
}

// newPod returns a Pod of a Deployment in the release.
func newPod(deployment string) *corev1.Pod {
	GinkgoHelper()
	d := findDeployment(deployment)
	pod := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	pod.Namespace, pod.Name = d.Namespace, d.Name
	return pod
}

func findDeployment(name string) appsv1.Deployment {
	GinkgoHelper()
	var found []appsv1.Deployment
	Expect(listOfKind[appsv1.Deployment](components.Objs(), "Deployment")).To(ContainElement(HaveField("Name", name), &found))
	return found[0]
}

func findFreePort() int {
	GinkgoHelper()
	port, err := loopback.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}

// requestMetrics requests the manager's metrics as a ServiceAccount, and returns the status code.
func requestMetrics(ctx SpecContext, namespace, name string) (code int) {
	GinkgoHelper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	token := &authenticationv1.TokenRequest{}
	Expect(k8sClient.SubResource("token").Create(ctx, account, token)).To(Succeed())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+diagnosticsAddress+"/metrics", nil)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+token.Status.Token)
	httpClient := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	Eventually(func() error { // the manager is ready shortly before it listens
		response, err := httpClient.Do(request)
		if err != nil {
			return err
		}
		code = response.StatusCode
		return response.Body.Close()
	}).Should(Succeed())
	return code
}

var _ = Describe("the manager's metrics", func() {
	It("are refused to clients without the right to read them", func(ctx SpecContext) {
		Expect(requestMetrics(ctx, managerNamespace, rights.ConfigServer)).To(Equal(http.StatusForbidden))
	})

	It("are served to Prometheus with the commands in docs/tasks.md", func(ctx SpecContext) {
		monitoring := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "monitoring"}}
		Expect(k8sClient.Create(ctx, monitoring)).To(Succeed())
		Expect(k8sClient.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus", Namespace: monitoring.Name}})).To(Succeed())
		page, err := os.ReadFile(sourcetree.Path("docs", "tasks.md"))
		Expect(err).NotTo(HaveOccurred())
		dir := GinkgoT().TempDir()
		manifest := regexp.MustCompile("(?ms)^```yaml\n(# monitoring.yaml\n.*?)^```").FindSubmatch(page)
		Expect(os.WriteFile(filepath.Join(dir, "monitoring.yaml"), manifest[1], 0o600)).To(Succeed())
		commands := regexp.MustCompile("(?ms)^```console monitor\n(.*?)^```").FindSubmatch(page)
		for line := range strings.Lines(string(commands[1])) {
			shell := exec.CommandContext(ctx, "sh", "-c", strings.TrimPrefix(line, "$ "))
			shell.Dir, shell.Env = dir, append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"), "KUBECONFIG="+controlPlane.Kubeconfig)
			output, err := shell.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s: %s", line, output)
		}
		Expect(requestMetrics(ctx, monitoring.Name, "prometheus")).To(Equal(http.StatusOK))
		Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(monitoring), monitoring)).To(Succeed())
		Expect(monitoring.Labels).To(HaveKeyWithValue("metrics", "enabled"))
	})
})
