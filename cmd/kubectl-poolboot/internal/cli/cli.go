// Package cli is what all commands share on the command line: the root, exit codes, flags, output formats, and text
// that is safe for a terminal. It knows no command.
package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
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

// Exit codes of all commands but diff, whose exit codes are those of kubectl diff.
const (
	// ExitFailure is every error without a code of its own.
	ExitFailure = 1
	// ExitActionRequired means that the command gave its answer, and that the answer needs a person: labels of several
	// custom pools, a pool in which no Node can be registered, rules that block a host, or something to do.
	ExitActionRequired = 2
)

// failureCode is the annotation of a command whose errors have another exit code than ExitFailure.
const failureCode = "failure-exit-code"

// SetFailureCode sets the exit code of every error of a command that has no code of its own.
func SetFailureCode(cmd *cobra.Command, code int) {
	cmd.Annotations = map[string]string{failureCode: strconv.Itoa(code)}
}

// ExitError is an error with an exit code of its own.
type ExitError struct {
	Code int
	// Err is what is printed; nothing is when it is nil.
	Err error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

// Unwrap returns the error that is printed.
func (e *ExitError) Unwrap() error { return e.Err }

// ActionRequired returns an error with the exit code ExitActionRequired.
func ActionRequired(err error) error { return &ExitError{Code: ExitActionRequired, Err: err} }

// exitCode returns the exit code of a command that returned an error or nil.
func exitCode(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	if exit := (*ExitError)(nil); errors.As(err, &exit) {
		return exit.Code
	}
	if conflict := (*pool.ConflictError)(nil); errors.As(err, &conflict) {
		return ExitActionRequired
	}
	if code, err := strconv.Atoi(cmd.Annotations[failureCode]); err == nil {
		return code
	}
	return ExitFailure
}

// ToDo returns an error with the exit code ExitActionRequired when a person has things to do, which the answer names.
func ToDo(about string, things int) error {
	return ActionRequired(fmt.Errorf("%s: %d to do, as the answer says", about, things))
}
