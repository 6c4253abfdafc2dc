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
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

// block matches a fenced block of a document: its language and its text.
var block = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// shell runs command lines of kubectl poolboot as a shell would, with < FILE and > FILE.
type shell struct{ code int }

// run returns what a terminal would show.
func (s *shell) run(line string) string {
	GinkgoHelper()
	if line == "echo $?" {
		return strconv.Itoa(s.code) + "\n"
	}
	command, isOurs := strings.CutPrefix(line, "kubectl poolboot ")
	Expect(isOurs).To(BeTrue(), line)
	command, _, _ = strings.Cut(command, " > ")
	command, input, _ := strings.Cut(command, " < ")
	var stdin []byte
	if input != "" {
		var err error
		stdin, err = os.ReadFile(input)
		Expect(err).NotTo(HaveOccurred())
	}
	var terminal bytes.Buffer
	s.code = run(genericiooptions.IOStreams{In: bytes.NewReader(stdin), Out: &terminal, ErrOut: &terminal}, strings.Fields(command)...)
	return terminal.String()
}

// blocks are the fenced blocks of a document.
func blocks(name string) [][]string {
	GinkgoHelper()
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
	Expect(err).NotTo(HaveOccurred())
	return block.FindAllStringSubmatch(string(document), -1)
}

// beside goes to a new directory with the files of a document, each named by its first line.
func beside(blocks [][]string) {
	GinkgoHelper()
	GinkgoT().Chdir(GinkgoT().TempDir())
	for _, b := range blocks {
		if name, contents, named := strings.Cut(strings.TrimPrefix(b[2], "# "), "\n"); b[1] != "console" && b[1] != "sh" {
			Expect(named).To(BeTrue())
			fileIn(".", name, contents)
		}
	}
}

var _ = Describe("The documentation", func() {
	DescribeTable("shows what the commands print",
		func(document string, atLeast int) {
			shown := blocks(document)
			beside(shown)
			commands := 0
			for _, b := range shown {
				if b[1] != "console" {
					continue
				}
				terminal := &shell{}
				for _, shown := range strings.Split(strings.TrimPrefix(b[2], "$ "), "\n$ ") {
					line, output, _ := strings.Cut(shown, "\n")
					Expect(strings.TrimSuffix(terminal.run(line), "\n")).To(Equal(strings.TrimSuffix(output, "\n")), line)
					commands++
				}
			}
			Expect(commands).To(BeNumerically(">=", atLeast))
		},
		Entry("of this plugin", "kubectl-poolboot.md", 10),
		Entry("of labels from facts of hosts", "node-labels.md", 2),
	)

	DescribeTable("has files with which the examples of the help run",
		func(name string) {
			beside(blocks("kubectl-poolboot.md"))
			var of *cobra.Command
			for _, cmd := range newRoot(genericiooptions.IOStreams{}).Commands() {
				if cmd.Name() == name {
					of = cmd
				}
			}
			examples := 0
			for line := range strings.Lines(of.Example) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
					terminal := &shell{}
					Expect(terminal.run(line)).To(ContainSubstring("infra"), line)
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
		reference, err := os.ReadFile("../../docs/reference.md")
		Expect(err).NotTo(HaveOccurred())
		Expect(regexp.MustCompile("Pattern: `[^`]*[{]64[}][^`]*`").FindString(string(reference))).To(Equal("Pattern: `^[0-9a-f]{64}$`"))
		Expect(regexp.MustCompile(`\\[{}]`).FindAllString(string(reference), 5)).To(BeEmpty())
	})
})

var _ = Describe("The help", func() {
	It("quotes patterns, which a shell would expand", func() {
		Expect(answered(poolboot("enroll", "--help"))).To(And(ContainSubstring("--name-pattern 'edge-*'"), Not(MatchRegexp(`[^']edge-\*`))))
	})
})

var _ = Describe("The plugin", func() {
	It("shows its commands as kubectl's", func() {
		Expect(answered(poolboot())).To(And(ContainSubstring("kubectl poolboot [command]"), ContainSubstring("which"), ContainSubstring("render")))
		Expect(answered(poolboot("which", "--help"))).To(ContainSubstring("kubectl poolboot which --pools FILE..."))
	})

	It("says its version", func() {
		Expect(answered(poolboot("version"))).To(Equal(version.Get().GitVersion + "\n"))
		Expect(answered(poolboot("--version"))).To(ContainSubstring(version.Get().GitVersion))
	})

	It("refuses an unknown command", func() {
		refused(poolboot("witch"), 1, `unknown command "witch"`)
	})

	It("completes its flags", func() {
		Expect(poolboot("__complete", "render", "-o", "").out).To(HavePrefix("json\nyaml\nignition\n"))
		Expect(poolboot("__complete", "which", "--po").out).To(HavePrefix("--pools\t"))
	})
})
