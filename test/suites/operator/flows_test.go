package operator

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// flowsDocument is the test: its commands run in the shells that the demo prints, in order, and must print the output
// that the document shows.
var flowsDocument = sourcetree.Path("docs", "flows.md")

var (
	flowHeading = regexp.MustCompile(`(?m)^## (.+)$`)
	flowBlock   = regexp.MustCompile("(?ms)^```(yaml|console)\n(.*?)^```$")
	flowCommand = regexp.MustCompile(`^([a-z0-9-]+)\$ (.+)\n$`)

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
	var r *flowReader

	BeforeAll(func() { r = newFlowReader() })
	AfterAll(func() {
		workload := controlplane.ControlPlane{Name: "workload", AuditLog: filepath.Join(filepath.Dir(r.workload), "audit.log")}
		Expect(rights.CheckWorkload(&workload, rights.InFlows)).To(Succeed())
	})

	sections := flowHeading.FindAllSubmatchIndex(document, -1)
	for i, heading := range sections {
		end := len(document)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		It(string(document[heading[2]:heading[3]]), func(ctx SpecContext) { r.runSection(ctx, document[heading[1]:end]) }, SpecTimeout(5*time.Minute))
	}

	Describe("Then, as docs/tasks.md shows, an operator can", Ordered, func() { describeTasks(func() *flowReader { return r }) })
})

// flowReader reads the document, and does what it says.
type flowReader struct {
	// shells are the commands that open the shells of the clusters, as the demo prints them.
	shells map[string]string
	// workload is the kubeconfig of the workload cluster.
	workload string
	// dir has the document's files and is the working directory of its commands.
	dir string
}

func newFlowReader() *flowReader {
	GinkgoHelper()
	_, find := startDemo("--flows")
	r := &flowReader{shells: map[string]string{}, dir: GinkgoT().TempDir(), workload: find(`KUBECONFIG=(\S+) PS1='edge`)}
	for _, name := range []string{"hub", "edge"} {
		r.shells[name] = find(`(export PATH=.* PS1='` + name + `\$ ')`)
	}
	return r
}

// runSection writes the files of a section of a document, and runs its commands.
func (r *flowReader) runSection(ctx context.Context, section []byte) {
	GinkgoHelper()
	commands := 0
	for _, block := range flowBlock.FindAllSubmatch(section, -1) {
		if string(block[1]) == "yaml" {
			r.write(string(block[2]))
		} else {
			commands += r.run(ctx, string(block[2]))
		}
	}
	Expect(commands).To(BeNumerically(">", 1))
}

// write writes a file of the document to dir. The first line has the file's name.
func (r *flowReader) write(text string) {
	GinkgoHelper()
	name, contents, ok := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
	Expect(ok).To(BeTrue(), "the first line has the file's name")
	Expect(os.WriteFile(filepath.Join(r.dir, name), []byte(contents), 0o600)).To(Succeed())
}

// run runs the commands of a block and returns their number. It repeats kubectl get until the output is as shown, also
// while hosts are updated.
func (r *flowReader) run(ctx context.Context, block string) int {
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
		want := normalize(c.output)
		if strings.HasPrefix(c.line, "kubectl get ") {
			Eventually(ctx, r.runInShell).WithArguments(c.shell, c.line).Should(Equal(want))
		} else {
			Expect(r.runInShell(c.shell, c.line)).To(Equal(want))
		}
	}
	return len(commands)
}

// runInShell returns the output of a command in the shell of a cluster or of a host.
func (r *flowReader) runInShell(where, line string) string {
	GinkgoHelper()
	if _, ok := r.shells[where]; ok {
		return normalize(r.inShell(where, line).Out)
	}
	return normalize(inDemoShell(where, "exec 2>&1; "+line+"; true"))
}

// inShell returns the result of a command in the shell of a cluster.
func (r *flowReader) inShell(cluster, line string) result {
	GinkgoHelper()
	return run("bash", "-c", "cd "+r.dir+"; "+r.shells[cluster]+"\n"+line)
}

// normalize removes from a command's output what differs between runs.
func normalize(text string) string {
	text = flowMachine.ReplaceAllString(flowAge.ReplaceAllString(text, "${1}AGE${2}"), "$1-MACHINE")
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(flowSpaces.ReplaceAllString(line, " ")))
	}
	return strings.Join(lines, "\n")
}
