// Package operator repeats what an operator tries who has the documentation, kubectl and a demo that is left running:
// blocked hosts, leftover Nodes, changes of pools, metrics, and the end of it all. It sees no more than an operator
// sees.
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

// demo is the demo that is left running, and what it says of itself.
var demo struct {
	*gexec.Session
	management, workload  string // kubeconfigs
	manager, configServer string // URLs of metrics
	interrupt             int    // the process to interrupt
	bin                   string
}

func TestOperator(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "What an operator runs into")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	var err error
	demo.bin, err = process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	program, err := gexec.Build("github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/demo")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
	command := exec.Command(program, "--keep")
	command.Dir = filepath.Dir(demo.bin)
	demo.Session, err = gexec.Start(command, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { demo.Interrupt(); Eventually(demo.Session).Should(gexec.Exit(0)) })
	Eventually(demo, "8m").Should(gbytes.Say("The site is running"))
	Eventually(demo).Should(gbytes.Say("cleans up"))
	said := string(demo.Out.Contents())
	find := func(pattern string) string {
		GinkgoHelper()
		found := regexp.MustCompile(pattern).FindStringSubmatch(said)
		Expect(found).NotTo(BeNil(), "the demo does not say %s", pattern)
		return found[1]
	}
	demo.management = find(`export MANAGEMENT_KUBECONFIG=(\S+)`)
	demo.workload = find(`export WORKLOAD_KUBECONFIG=(\S+)`)
	demo.manager = find(`curl (http://\S+/metrics) +# manager`)
	demo.configServer = find(`curl (http://\S+/metrics) +# config server`)
	demo.interrupt, err = strconv.Atoi(find(`kill -INT (\d+)`))
	Expect(err).NotTo(HaveOccurred())
	Expect(demo.interrupt).To(Equal(demo.Command.Process.Pid))
}, NodeTimeout(10*time.Minute))

// answer is what a command printed, and its exit code.
type answer struct {
	Out  string
	Code int
}

// run runs kubectl of the demo, against the management cluster, or another program.
func run(name string, args ...string) answer {
	GinkgoHelper()
	if path := filepath.Join(demo.bin, name); name == "kubectl" {
		name = path
	}
	command := exec.Command(name, args...)
	command.Env = append(os.Environ(), "KUBECONFIG="+demo.management, "PATH="+demo.bin+":"+os.Getenv("PATH"))
	out, err := command.CombinedOutput()
	if failed := (*exec.ExitError)(nil); !errors.As(err, &failed) {
		Expect(err).NotTo(HaveOccurred())
	}
	return answer{string(out), command.ProcessState.ExitCode()}
}

// kubectl runs kubectl against the management cluster, which must succeed.
func kubectl(args ...string) string {
	GinkgoHelper()
	return must(run("kubectl", args...))
}

// inWorkload runs kubectl against the workload cluster, which must succeed.
func inWorkload(args ...string) string {
	GinkgoHelper()
	return must(run("kubectl", append([]string{"--kubeconfig", demo.workload}, args...)...))
}

// poolboot runs Poolboot's plugin of kubectl.
func poolboot(args ...string) answer {
	GinkgoHelper()
	return run("kubectl", append([]string{"poolboot"}, args...)...)
}

func must(a answer) string {
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

// field is a field of an object, by JSONPath; "" while there is none.
func field(path string, of ...string) string {
	GinkgoHelper()
	return kubectl(append(append([]string{"get"}, of...), "-o", "jsonpath="+path)...)
}

// condition is a condition of an object: its status, reason and message.
func condition(kind string, of ...string) string {
	GinkgoHelper()
	c := fmt.Sprintf(`{.status.conditions[?(@.type==%q)]`, kind)
	return field(c+".status} "+c+".reason} "+c+".message}", of...)
}

// metric is the sum of the manager's counters of a name that have all these labels; -1 while there is none.
func metric(name string, labels map[string]string) float64 {
	GinkgoHelper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(must(run("curl", "--silent", "--fail", demo.manager))))
	Expect(err).NotTo(HaveOccurred())
	sum, found := 0.0, false
	for _, series := range families[name].GetMetric() {
		has := 0
		for _, label := range series.Label {
			if value, wanted := labels[label.GetName()]; wanted && value == label.GetValue() {
				has++
			}
		}
		if has == len(labels) {
			sum, found = sum+series.Counter.GetValue(), true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// machineOf is the Machine of a MachineDeployment that has one; "" until it is there.
func machineOf(deployment string) string {
	GinkgoHelper()
	return field("{.items[*].metadata.name}", "machines", "-l", "cluster.x-k8s.io/deployment-name="+deployment)
}

// boot is how far a boot is, as scripts read it.
type boot struct {
	Machine, PoolbootConfig, Stage, Message string
	Since                                   time.Time
}

// bootOf is the boot of a Machine.
func bootOf(machine string) boot {
	GinkgoHelper()
	var boots []boot
	Expect(json.Unmarshal([]byte(must(poolboot("boots", machine, "-o", "json"))), &boots)).To(Succeed())
	Expect(boots).To(HaveLen(1))
	return boots[0]
}

// host asks as a host without a Machine does, by the pointer that the plugin prints.
type host struct {
	url, token string
	client     *http.Client
}

func newHost(enrollment, name string) host {
	GinkgoHelper()
	pointer, err := ignition.ParsePointer([]byte(must(poolboot("pointer", enrollment, "--host", name))))
	Expect(err).NotTo(HaveOccurred())
	trusted := x509.NewCertPool()
	Expect(trusted.AppendCertsFromPEM(pointer.CA)).To(BeTrue())
	return host{url: pointer.URL, token: pointer.Token, client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}, Timeout: time.Minute,
	}}
}

// ask returns the code of the answer, and its body.
func (h host) ask(accept string) (int, string) {
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
