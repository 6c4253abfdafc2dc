package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// shell runs command lines of kubectl poolboot, and cat FILE, as a shell would, with < FILE and > FILE.
type shell struct{ code int }

// run returns what a terminal would show.
func (s *shell) run(line string) string {
	GinkgoHelper()
	if line == "echo $?" {
		return strconv.Itoa(s.code) + "\n"
	}
	if file, isCat := strings.CutPrefix(line, "cat "); isCat {
		content, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	command, isOurs := strings.CutPrefix(line, "kubectl poolboot ")
	Expect(isOurs).To(BeTrue(), line)
	command, written, _ := strings.Cut(command, " > ")
	command, redirected, _ := strings.Cut(command, " < ")
	var stdin []byte
	if redirected != "" {
		var err error
		stdin, err = os.ReadFile(redirected)
		Expect(err).NotTo(HaveOccurred())
	}
	var terminal, file bytes.Buffer
	streams := genericiooptions.IOStreams{In: bytes.NewReader(stdin), Out: &terminal, ErrOut: &terminal}
	if written != "" {
		streams.Out = &file
	}
	s.code = run(streams, strings.Fields(command)...)
	if written != "" {
		Expect(os.WriteFile(written, file.Bytes(), 0o600)).To(Succeed())
	}
	return terminal.String()
}

// writeBlocks goes to a new directory with the files of a document, each named by its first line. That line is kept
// where it is a comment, as for users who copy the block: the lines of messages count it.
func writeBlocks(blocks []clitest.Block) {
	GinkgoHelper()
	GinkgoT().Chdir(GinkgoT().TempDir())
	for _, b := range blocks {
		if name, contents, named := strings.Cut(strings.TrimPrefix(b.Text, "# "), "\n"); b.Language != "console" && b.Language != "sh" {
			Expect(named).To(BeTrue())
			if b.Language == "yaml" {
				contents = b.Text
			}
			clitest.WriteFileIn(".", name, contents)
		}
	}
}

var _ = Describe("The documentation", func() {
	DescribeTable("shows what the commands print",
		func(document string, atLeast int) {
			shown := clitest.ReadBlocks(sourcetree.Path("docs", document))
			writeBlocks(shown)
			commands := 0
			for _, b := range shown {
				if b.Language != "console" {
					continue
				}
				terminal := &shell{}
				for _, shown := range strings.Split(strings.TrimPrefix(b.Text, "$ "), "\n$ ") {
					line, output, _ := strings.Cut(shown, "\n")
					Expect(strings.TrimSuffix(terminal.run(line), "\n")).To(Equal(strings.TrimSuffix(output, "\n")), line)
					commands++
				}
			}
			Expect(commands).To(BeNumerically(">=", atLeast))
		},
		Entry("of this plugin", "kubectl-poolboot.md", 10),
		Entry("of the migration from OpenShift", "migration.md", 4),
		Entry("of labels that are derived from hosts", "node-labels.md", 2),
	)

	It("selects MachineConfigs by one label, as the templates and the demo do", func() {
		labels := sets.New[string]()
		for _, pattern := range []string{"README.md", "docs/*.md", "templates/*.yaml", "test/demo/manifests/*.yaml"} {
			files, err := filepath.Glob(sourcetree.Path(pattern))
			Expect(err).NotTo(HaveOccurred())
			for _, file := range files {
				text, err := os.ReadFile(file)
				Expect(err).NotTo(HaveOccurred())
				labels.Insert(regexp.MustCompile(`[\w.-]+/role\b`).FindAllString(string(text), -1)...)
			}
		}
		Expect(labels).To(Equal(sets.New(input.RoleLabel)))
	})

	It("names the commands without --output", func() {
		page, err := os.ReadFile(sourcetree.Path("docs", "kubectl-poolboot.md"))
		Expect(err).NotTo(HaveOccurred())
		sentence := regexp.MustCompile("(?s)`-o yaml`, but not of (.*?);").FindSubmatch(page)
		Expect(sentence).NotTo(BeNil())
		var named, without []string
		for _, command := range regexp.MustCompile("([\\w-]+)`").FindAllSubmatch(sentence[1], -1) {
			named = append(named, string(command[1]))
		}
		eachCommand(func(cmd *cobra.Command) {
			if !cmd.HasSubCommands() && cmd.Flags().Lookup("output") == nil {
				without = append(without, cmd.Name())
			}
		})
		Expect(named).To(ConsistOf(without))
	})

	DescribeTable("has commands and flags that exist", func(document string) {
		page, err := os.ReadFile(sourcetree.Path("docs", document))
		Expect(err).NotTo(HaveOccurred())
		named := regexp.MustCompile("kubectl poolboot ([^`|\n]+)").FindAllStringSubmatch(string(page), -1)
		Expect(len(named)).To(BeNumerically(">=", 10))
		for _, line := range named {
			command, arguments, err := newRoot(genericiooptions.IOStreams{}, input.NewConnection).Find(strings.Fields(line[1]))
			Expect(err).NotTo(HaveOccurred(), line[0])
			Expect(command.Runnable()).To(BeTrue(), line[0])
			Expect(command.ParseFlags(arguments)).To(Succeed(), line[0])
		}
	},
		Entry("in the page of tasks", "tasks.md"), Entry("in the page of adoption", "adopt.md"),
	)

	DescribeTable("has the files that the examples in the help use",
		func(name string) {
			writeBlocks(clitest.ReadBlocks(sourcetree.Path("docs", "kubectl-poolboot.md")))
			var of *cobra.Command
			for _, cmd := range newRoot(genericiooptions.IOStreams{}, input.NewConnection).Commands() {
				if cmd.Name() == name {
					of = cmd
				}
			}
			examples := 0
			for line := range strings.Lines(of.Example) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					terminal := &shell{}
					shown := terminal.run(line)
					if _, written, isFile := strings.Cut(line, " > "); isFile {
						contents, err := os.ReadFile(written)
						Expect(err).NotTo(HaveOccurred())
						shown += string(contents)
					}
					Expect(shown).To(ContainSubstring("infra"), line)
					Expect(terminal.code).To(BeZero(), line)
					examples++
				}
			}
			Expect(examples).To(BeNumerically(">=", 3))
		},
		Entry("which", "which"), Entry("render", "render"), Entry("convert", "convert"), Entry("labels", "labels"),
	)
})

var _ = Describe("The reference of the API", func() {
	It("shows patterns and defaults as they are, without escapes that Markdown shows in code", func() {
		reference, err := os.ReadFile(sourcetree.Path("docs", "reference.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(regexp.MustCompile("Pattern: `[^`]*[{]64[}][^`]*`").FindString(string(reference))).To(Equal("Pattern: `^[0-9a-f]{64}$`"))
		Expect(regexp.MustCompile(`\\[{}]`).FindAllString(string(reference), 5)).To(BeEmpty())
	})
})

var _ = Describe("The commands in the table of docs/tasks.md", func() {
	It("exist, with their flags", func() {
		page, err := os.ReadFile(sourcetree.Path("docs", "tasks.md"))
		Expect(err).NotTo(HaveOccurred())
		commands := regexp.MustCompile("(?m)`kubectl poolboot ([^`]*)`").FindAllStringSubmatch(string(page), -1)
		Expect(len(commands)).To(BeNumerically(">=", 14))
		for _, command := range commands {
			found, rest, err := newRoot(genericiooptions.IOStreams{}, input.NewConnection).Find(strings.Fields(command[1]))
			Expect(err).NotTo(HaveOccurred(), command[0])
			Expect(found.ParseFlags(rest)).To(Succeed(), command[0])
			Expect(found.Runnable()).To(BeTrue(), command[0])
		}
	})
})

var _ = Describe("The help", func() {
	It("quotes patterns that a shell would expand", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("enroll", "--help"))).To(And(ContainSubstring("--name-pattern 'edge-*'"), Not(MatchRegexp(`[^']edge-\*`))))
	})
})

var _ = Describe("The plugin", func() {
	It("shows its commands as commands of kubectl", func() {
		Expect(clitest.ExpectSuccess(runPoolboot())).To(And(ContainSubstring("kubectl poolboot [command]"), ContainSubstring("which"), ContainSubstring("render")))
		Expect(clitest.ExpectSuccess(runPoolboot("which", "--help"))).To(ContainSubstring("kubectl poolboot which -f FILE..."))
	})

	It("prints its version", func() {
		Expect(clitest.ExpectSuccess(runPoolboot("version"))).To(Equal(version.Get().GitVersion + "\n"))
		Expect(clitest.ExpectSuccess(runPoolboot("--version"))).To(ContainSubstring(version.Get().GitVersion))
	})

	It("takes the flags of a script that passes them to every command of kubectl, also where no cluster is read", func() {
		file := clitest.WriteFile("pool.yaml", clitest.Pool("worker-1", "worker"))
		for _, command := range [][]string{{"version"}, {"labels", "--pool", "worker", "-f", file}} {
			Expect(clitest.ExpectSuccess(runPoolboot(append(command, "--kubeconfig", "none", "--context", "none")...))).NotTo(BeEmpty())
		}
	})

	It("refuses an unknown command", func() {
		clitest.ExpectError(runPoolboot("witch"), 1, `unknown command "witch" for "kubectl poolboot"`+"\nDid you mean which?\nUse one of adopt, boots, ", ", render, report, rollout, ")
		clitest.ExpectError(runPoolboot("rollout", "foo"), 1, `unknown command "foo" for "kubectl poolboot rollout"`, "\nUse one of approve, except, history, pause, plan, restart, resume, retry, status, undo\n")
		clitest.ExpectError(runPoolboot("explain", "foo", "infra"), 1, "\nUse one of host, machine, node\n")
		clitest.ExpectError(runPoolboot("version", "foo"), 1, `unknown command "foo" for "kubectl poolboot version"`+"\n")
	})

	It("says which name is missing", func() {
		clitest.ExpectError(runPoolboot("enroll", "--cluster=c", "--pool=p", "--name-pattern=x"), 1, "name one Enrollment: kubectl poolboot enroll NAME")
		clitest.ExpectError(runPoolboot("pointer", "--host=a"), 1, "name one Enrollment: kubectl get enrollments lists them")
	})

	It("completes its flags", func() {
		Expect(runPoolboot("__complete", "render", "-o", "").Out).To(HavePrefix("json\nyaml\nwide\nignition\n"))
		Expect(runPoolboot("__complete", "which", "--po").Out).To(HavePrefix("--pools\t"))
	})
})
