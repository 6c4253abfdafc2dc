// Package operator tests the tasks of an operator with the documentation, kubectl and the running demo: blocked hosts,
// leftover Nodes, changes of pools, metrics, and stopping the demo. It uses only what an operator can see.
package operator

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// demo is the running demo, with the values that it prints.
var demo struct {
	*gexec.Session
	management, workload  string // kubeconfigs
	manager, configServer string // URLs of metrics
	interrupt             int    // the process to interrupt
	bin, program          string
}

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Operator")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	var err error
	demo.bin, err = process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	demo.program, err = gexec.Build("github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/demo")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
	var find func(string) string
	demo.Session, find = startDemo("--keep")
	demo.management = find(`export PATH=\S+ KUBECONFIG=(\S+)`)
	demo.workload = find(` WORKLOAD_KUBECONFIG=(\S+)`)
	demo.manager = find(`curl (http://\S+/metrics) +# manager`)
	demo.configServer = find(`curl (http://\S+/metrics) +# config server`)
	demo.interrupt, err = strconv.Atoi(find(`kill -INT (\d+)`))
	Expect(err).NotTo(HaveOccurred())
	Expect(demo.interrupt).To(Equal(demo.Command.Process.Pid))
}, NodeTimeout(10*time.Minute))

// startDemo starts a demo and waits until it keeps running. It returns a function that finds what the demo printed.
func startDemo(flag string) (session *gexec.Session, find func(pattern string) string) {
	GinkgoHelper()
	command := exec.Command(demo.program, flag)
	command.Dir = filepath.Dir(demo.bin)
	session, err := gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Interrupt(); Eventually(session).Should(gexec.Exit(0)) })
	Eventually(session, "8m").Should(gbytes.Say("The site .*is running"))
	Eventually(session).Should(gbytes.Say("cleans up"))
	output := string(session.Out.Contents())
	return session, func(pattern string) string {
		GinkgoHelper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(output)
		Expect(found).NotTo(BeNil(), "the demo does not print %s", pattern)
		return found[1]
	}
}

// result is a command's output and exit code.
type result struct {
	Out  string
	Code int
}

// run runs a program. kubectl is the demo's, with the management cluster's kubeconfig.
func run(name string, args ...string) result {
	GinkgoHelper()
	if path := filepath.Join(demo.bin, name); name == "kubectl" {
		name = path
	}
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+demo.management, "PATH="+demo.bin+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if exitErr := (*exec.ExitError)(nil); !errors.As(err, &exitErr) {
		Expect(err).NotTo(HaveOccurred())
	}
	return result{string(out), command.ProcessState.ExitCode()}
}

// kubectl runs kubectl on the management cluster and expects it to succeed.
func kubectl(args ...string) string {
	GinkgoHelper()
	return expectSuccess(run("kubectl", args...))
}

// kubectlInWorkload runs kubectl on the workload cluster and expects it to succeed.
func kubectlInWorkload(args ...string) string {
	GinkgoHelper()
	return expectSuccess(run("kubectl", append([]string{"--kubeconfig", demo.workload}, args...)...))
}

// runPoolboot runs kubectl poolboot.
func runPoolboot(args ...string) result {
	GinkgoHelper()
	return run("kubectl", append([]string{"poolboot"}, args...)...)
}

func expectSuccess(a result) string {
	GinkgoHelper()
	Expect(a.Code).To(BeZero(), a.Out)
	return a.Out
}

// apply applies a manifest to the management cluster.
func apply(manifest string) {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "manifest.yaml")
	Expect(os.WriteFile(file, []byte(manifest), 0o600)).To(Succeed())
	kubectl("apply", "-f", file)
}

// getField returns a field of an object, by JSONPath, or "".
func getField(path string, of ...string) string {
	GinkgoHelper()
	return kubectl(append(append([]string{"get"}, of...), "-o", "jsonpath="+path)...)
}

// getCondition returns a condition of an object as "Status Reason Message".
func getCondition(kind string, of ...string) string {
	GinkgoHelper()
	c := fmt.Sprintf(`{.status.conditions[?(@.type==%q)]`, kind)
	return getField(c+".status} "+c+".reason} "+c+".message}", of...)
}

// sumMetric sums the manager's counters that have all these labels. It returns -1 if there is no such counter.
func sumMetric(name string, labels map[string]string) float64 {
	GinkgoHelper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(expectSuccess(run("curl", "--silent", "--fail", demo.manager))))
	Expect(err).NotTo(HaveOccurred())
	sum, found := 0.0, false
	for _, series := range families[name].GetMetric() {
		matches := 0
		for _, label := range series.Label {
			if value, ok := labels[label.GetName()]; ok && value == label.GetValue() {
				matches++
			}
		}
		if matches == len(labels) {
			sum, found = sum+series.Counter.GetValue(), true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// getMachine returns the names of a MachineDeployment's Machines, or "".
func getMachine(deployment string) string {
	GinkgoHelper()
	return getField("{.items[*].metadata.name}", "machines", "-l", "cluster.x-k8s.io/deployment-name="+deployment)
}

// boot is an item of the JSON output of kubectl poolboot boots.
type boot struct {
	Machine, PoolbootConfig, Stage, Message string
	Since                                   time.Time
}

// getBoot returns the boot of a Machine.
func getBoot(machine string) boot {
	GinkgoHelper()
	var boots []boot
	Expect(json.Unmarshal([]byte(expectSuccess(runPoolboot("boots", machine, "-o", "json"))), &boots)).To(Succeed())
	Expect(boots).To(HaveLen(1))
	return boots[0]
}

// host requests configuration as a host without a Machine does, with the pointer of kubectl poolboot pointer.
type host struct {
	url, token string
	client     *http.Client
}

func newHost(enrollment, name string) host {
	GinkgoHelper()
	pointer, err := ignition.ParsePointer([]byte(expectSuccess(runPoolboot("pointer", enrollment, "--host", name))))
	Expect(err).NotTo(HaveOccurred())
	roots := x509.NewCertPool()
	Expect(roots.AppendCertsFromPEM(pointer.CA)).To(BeTrue())
	return host{url: pointer.URL, token: pointer.Token, client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true}, Timeout: time.Minute,
	}}
}

// request sends one request and returns the status code and the body.
func (h host) request(accept string) (int, string) {
	GinkgoHelper()
	request, err := http.NewRequest(http.MethodGet, h.url, nil)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Authorization", "Bearer "+h.token)
	request.Header.Set("Accept", accept)
	response, err := h.client.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}
