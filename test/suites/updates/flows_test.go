package updates

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// flowsDocument is the test: its commands run in a shell, in order, and must print the output that the document shows.
var flowsDocument = sourcetree.Path("docs", "flows.md")

var (
	flowHeading = regexp.MustCompile(`(?m)^## (.+)$`)
	flowBlock   = regexp.MustCompile("(?ms)^```(yaml|console)\n(.*?)^```$")
	flowCommand = regexp.MustCompile(`^([a-z0-9-]+)\$ (.+)\n$`)

	// flowNode matches the names of the document's Nodes.
	flowNode = regexp.MustCompile(`^(server|cp|upi)-\d$`)

	// These differ between runs.
	flowAge     = regexp.MustCompile(`(?m)(\s)(?:\d+[smhd]){1,2}(\s|$)`)
	flowMachine = regexp.MustCompile(`\b(worker|infra)-[a-z0-9]{5}-[a-z0-9]{5}\b`)
	flowSpaces  = regexp.MustCompile(` +`)
)

var _ = Describe("OpenShift's guide to custom pools, with kubectl in place of oc:", Ordered, func() {
	document, err := os.ReadFile(flowsDocument)
	if err != nil {
		panic(err)
	}
	var s *flowSite

	BeforeAll(func(ctx SpecContext) { s = newFlowSite(ctx) }, NodeTimeout(2*time.Minute))

	sections := flowHeading.FindAllSubmatchIndex(document, -1)
	for i, heading := range sections {
		end := len(document)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		It(string(document[heading[2]:heading[3]]), func(ctx SpecContext) { s.runSection(ctx, document[heading[1]:end]) }, SpecTimeout(5*time.Minute))
	}
})

// flowSite is the state that the document starts from: a Cluster with available servers, a control plane Node, and a
// Node that was joined manually.
type flowSite struct {
	*tenant.Tenant
	// foreignNodes are the Nodes that Poolboot did not boot. They have no kubelet.
	foreignNodes []*corev1.Node
	// dir has the document's files and is the working directory of its commands.
	dir string
}

func newFlowSite(ctx context.Context) *flowSite {
	GinkgoHelper()
	s := &flowSite{Tenant: tenant.NewEmpty(ctx, lab), dir: GinkgoT().TempDir()}
	s.CreateCluster(ctx, clusterapi.ClusterOptions{})
	s.AddHost(ctx, "server-1")
	s.AddHost(ctx, "server-2")
	s.Create(ctx, tenant.NewBMCSecret("bmc")) // of the server in the document
	setHostName := func(spec *bootstrapv1.BootSpec) { spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }
	s.Deploy(ctx, tenant.Deployment{Name: "worker", Config: setHostName})
	s.Deploy(ctx, tenant.Deployment{Name: "infra", Labels: map[string]string{"node-role.kubernetes.io/infra": ""}, Config: setHostName})
	for name, role := range map[string]string{"cp-1": "control-plane", "upi-1": "worker"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/" + role: ""}}}
		Expect(lab.WorkloadClient.Create(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(lab.WorkloadClient.Delete(ctx, node)).To(Succeed()) })
		s.foreignNodes = append(s.foreignNodes, node)
	}
	s.writeKubeconfigs()
	return s
}

// writeKubeconfigs writes the kubeconfigs of the shells hub and edge.
func (s *flowSite) writeKubeconfigs() {
	GinkgoHelper()
	for shell, cluster := range map[string]*controlplane.ControlPlane{"hub": lab.Management, "edge": lab.Workload} {
		config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		if shell == "hub" {
			config.Contexts[config.CurrentContext].Namespace = s.Namespace
		}
		Expect(clientcmd.WriteToFile(*config, filepath.Join(s.dir, shell+".kubeconfig"))).To(Succeed())
	}
}

// runSection writes the files of a section of a document, and runs its commands.
func (s *flowSite) runSection(ctx context.Context, section []byte) {
	GinkgoHelper()
	commands := 0
	for _, block := range flowBlock.FindAllSubmatch(section, -1) {
		if string(block[1]) == "yaml" {
			s.write(string(block[2]))
		} else {
			commands += s.run(ctx, string(block[2]))
		}
	}
	Expect(commands).To(BeNumerically(">", 1))
}

// write writes a file of the document to dir. The first line has the file's name. The Cluster's name is replaced with
// the namespace's.
func (s *flowSite) write(text string) {
	GinkgoHelper()
	name, contents, ok := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	Expect(ok).To(BeTrue(), "the first line has the file's name")
	contents = strings.ReplaceAll(contents, "clusterName: edge", "clusterName: "+s.Namespace)
	Expect(os.WriteFile(filepath.Join(s.dir, name), []byte(contents), 0o600)).To(Succeed())
}

// run runs the commands of a block and returns their number. It repeats kubectl get until the output is as shown, also
// while hosts are updated.
func (s *flowSite) run(ctx context.Context, block string) int {
	GinkgoHelper()
	type command struct{ shell, line, output string }
	var commands []command
	for line := range strings.Lines(block) {
		if c := flowCommand.FindStringSubmatch(line); c != nil {
			commands = append(commands, command{shell: c[1], line: c[2]})
			continue
		}
		Expect(commands).NotTo(BeEmpty(), "a block must start with a command")
		commands[len(commands)-1].output += line
	}
	for _, c := range commands {
		By(c.shell + "$ " + c.line)
		want := s.normalize(ctx, c.output)
		if strings.HasPrefix(c.line, "kubectl get ") {
			Eventually(ctx, s.runInShell).WithArguments(c.shell, c.line).Should(Equal(want))
		} else {
			Expect(s.runInShell(ctx, c.shell, c.line)).To(Equal(want))
		}
	}
	return len(commands)
}

// runInShell returns the output of a command in the shell of a cluster or of a host.
func (s *flowSite) runInShell(ctx context.Context, where, line string) string {
	GinkgoHelper()
	if host := lab.Hardware.Host(where); host != nil {
		output, err := host.Run(ctx, "sh", "-c", "exec 2>&1; "+line+"; true")
		Expect(err).NotTo(HaveOccurred())
		return s.normalize(ctx, output)
	}
	s.sendHeartbeats(ctx)
	binDir, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	shell := exec.CommandContext(ctx, "bash", "-c", line)
	shell.Dir = s.dir
	shell.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"), "KUBECONFIG="+filepath.Join(s.dir, where+".kubeconfig"))
	output, err := shell.CombinedOutput()
	if exitErr := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exitErr) {
		Expect(err).NotTo(HaveOccurred())
	}
	return s.normalize(ctx, string(output))
}

// sendHeartbeats sets the Ready condition of the foreign Nodes.
func (s *flowSite) sendHeartbeats(ctx context.Context) {
	GinkgoHelper()
	for _, node := range s.foreignNodes {
		before := node.DeepCopy()
		node.Status.NodeInfo.KubeletVersion = "v1.36.3"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}
		Expect(lab.WorkloadClient.Status().Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
	}
}

// normalize removes from a command's output what differs between runs, and the Nodes of other tenants.
func (s *flowSite) normalize(ctx context.Context, text string) string {
	GinkgoHelper()
	var nodes corev1.NodeList
	Expect(lab.WorkloadClient.List(ctx, &nodes)).To(Succeed())
	var lines []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, " ")
		if !flowNode.MatchString(name) && slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name }) {
			continue
		}
		line = flowAge.ReplaceAllString(strings.ReplaceAll(line, s.Namespace, "edge"), "${1}AGE${2}")
		line = flowMachine.ReplaceAllString(line, "$1-MACHINE")
		lines = append(lines, strings.TrimSpace(flowSpaces.ReplaceAllString(line, " ")))
	}
	return strings.Join(lines, "\n")
}
