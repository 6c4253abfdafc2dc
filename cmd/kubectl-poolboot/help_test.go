package main

import (
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

var (
	// inExample matches a command line of the plugin in a line of an example.
	inExample = regexp.MustCompile(`(?m)^  (?:kubectl get [^|]*\| )?kubectl poolboot ([^|<>&\n]+)`)
	// firstWord matches the first word of a text.
	firstWord = regexp.MustCompile(`^[\w-]+`)
)

var _ = Describe("The help", func() {
	It("of each command begins with the same verb in its short and its long text", func() {
		eachCommand(func(cmd *cobra.Command) {
			Expect(cmd.Short).To(MatchRegexp(`^(Apply|Approve|Ask|Convert|Explain|Hand|Hold|List|Make|Print|Report|Restart|Return|Show) .{10,80}[^.]$`), cmd.CommandPath())
			Expect(firstWord.FindString(cmd.Long)).To(Equal(firstWord.FindString(cmd.Short)), cmd.CommandPath())
			Expect(cmd.Long).To(HaveSuffix("."), cmd.CommandPath())
			Expect(cmd.HasSubCommands() || cmd.DisableFlagsInUseLine).To(BeTrue(), cmd.UseLine())
		})
	})

	It("of each command has examples, each with what it is for, that the command accepts", func() {
		eachCommand(func(cmd *cobra.Command) {
			Expect(cmd.Example).To(HavePrefix("  # "), cmd.CommandPath())
			isOwn := cmd.HasSubCommands()
			for _, example := range strings.Split(cmd.Example, "\n\n") {
				Expect(example).To(MatchRegexp(`^  # [A-Z][^\n]*[^.]\n  \w`), example)
				found := inExample.FindAllStringSubmatch(strings.ReplaceAll(example, "\\\n", ""), -1)
				Expect(found).NotTo(BeEmpty(), example)
				for _, line := range found {
					ran, args, err := newRoot(genericiooptions.IOStreams{}, input.NewConnection).Find(strings.Fields(strings.ReplaceAll(line[1], "'", "")))
					Expect(err).NotTo(HaveOccurred(), line[0])
					Expect(ran.ParseFlags(args)).To(Succeed(), line[0])
					Expect(ran.ValidateArgs(ran.Flags().Args())).To(Succeed(), line[0])
					Expect(ran.ValidateRequiredFlags()).To(Succeed(), line[0])
					Expect(ran.ValidateFlagGroups()).To(Succeed(), line[0])
					isOwn = isOwn || ran.CommandPath() == cmd.CommandPath()
				}
			}
			Expect(isOwn).To(BeTrue(), cmd.CommandPath())
		})
	})

	It("of a flag begins with a lower-case word, without an article, and in the same way for all commands", func() {
		begins := map[string]string{}
		eachCommand(func(cmd *cobra.Command) {
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if f.Hidden || f.Name == "help" {
					return
				}
				where := cmd.CommandPath() + " --" + f.Name
				Expect(f.Usage).To(MatchRegexp(`^([a-z]|Cluster |UID ).*[^.]$`), where)
				Expect(f.Usage).NotTo(MatchRegexp(`^(the|an?) `), where)
				if begins[f.Name] == "" {
					begins[f.Name] = firstWord.FindString(f.Usage)
				}
				if f.Name != "node" && f.Name != "to" { // a file of which and plan, which read no cluster, and a name of diff and undo
					Expect(firstWord.FindString(f.Usage)).To(Equal(begins[f.Name]), where)
				}
			})
		})
		Expect(len(begins)).To(BeNumerically(">", 40))
	})

	It("names the formats of --output in one way", func() {
		commands := 0
		eachCommand(func(cmd *cobra.Command) {
			if f := cmd.Flags().Lookup("output"); f != nil {
				Expect(f.Usage).To(MatchRegexp(`^format of the output, (json[, ].*yaml.*|markdown); without it, (text|YAML|JSON.*)$`), cmd.CommandPath())
				commands++
			}
		})
		Expect(commands).To(Equal(17))
	})
})
