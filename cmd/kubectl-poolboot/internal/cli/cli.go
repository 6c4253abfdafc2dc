// Package cli is what all commands share on the command line: the root, exit codes, flags, output formats, and text
// that is safe for a terminal. It knows no command.
package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

// NewRoot returns the command kubectl-poolboot with some commands.
func NewRoot(streams genericiooptions.IOStreams, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubectl-poolboot",
		Version:       version.Get().GitVersion,
		SilenceUsage:  true,
		SilenceErrors: true,
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl poolboot"},
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nsee '%s --help'", err, cmd.CommandPath())
	})
	cmd.AddCommand(commands...)
	return cmd
}

// Execute runs a command line, prints its error and returns its exit code.
func Execute(root *cobra.Command, errOut io.Writer, args []string) int {
	root.SetArgs(args)
	ran, err := root.ExecuteC()
	if err != nil && err.Error() != "" {
		fmt.Fprintln(errOut, "error:", err)
	}
	return exitCode(ran, err)
}

// AddPoolFlag defines the required flag --pool.
func AddPoolFlag(cmd *cobra.Command, role *string) {
	cmd.Flags().StringVar(role, "pool", "", "the pool's role; an OpenShift pool's role is its name")
	Must(cmd.MarkFlagRequired("pool"))
}

// AddCompletion sets what the shell completes a flag to.
func AddCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	Must(cmd.RegisterFlagCompletionFunc(flag, complete))
}

// Must panics on an error that only a mistake in this program causes.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}
