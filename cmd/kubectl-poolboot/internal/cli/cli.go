// Package cli is what all commands share on the command line: the root, exit codes, flags, output formats, and text
// that is safe for a terminal. It knows no command.
package cli

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"
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
		// Cobra has suggestions for the root only. Execute has them for all commands, and for names of objects.
		DisableSuggestions: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) (err error) {
			cmd.Flags().Visit(func(f *pflag.Flag) {
				if f.Value.Type() == "duration" && strings.HasPrefix(f.Value.String(), "-") {
					err = fmt.Errorf("--%s %s is negative: set a duration such as 30m, or leave it out", f.Name, f.Value)
				}
			})
			return err
		},
		// kubectl completes by another program, see the documentation.
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl poolboot"},
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nsee '%s --help'", err, cmd.CommandPath())
	})
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages", fmt.Sprintf(".FlagUsagesWrapped %d", width)))
	cmd.AddCommand(commands...)
	for _, c := range commands {
		for _, name := range []string{"kubeconfig", "context"} { // scripts pass them to every command
			if !c.HasSubCommands() && c.Flags().Lookup(name) == nil {
				c.Flags().String(name, "", "ignored, because the command reads no cluster")
				utilruntime.Must(c.Flags().MarkHidden(name))
			}
		}
	}
	return cmd
}

// Execute runs a command line, prints its error and returns its exit code.
func Execute(root *cobra.Command, errOut io.Writer, args []string) int {
	root.SetArgs(args)
	ran, err := root.ExecuteC()
	if err != nil && err.Error() != "" {
		errOut = Messages(errOut)
		fmt.Fprintln(errOut, "error:", strings.TrimSpace(describeFlags(err.Error()))+remedyOf(err))
		if name := closestName(ran, err); name != "" {
			fmt.Fprintf(errOut, "Did you mean %s?\n", name)
		}
		if names := commandNames(ran); unknownCommand.MatchString(err.Error()) && len(names) > 0 {
			fmt.Fprintln(errOut, "Use one of "+strings.Join(names, ", "))
		}
	}
	return exitCode(ran, err)
}

// unknownCommand matches cobra's error for a name that is no command.
var unknownCommand = regexp.MustCompile(`^unknown command "(.*?)" for `)

// UnknownName is the error that no object has the name of an argument or flag. Execute adds the most similar name of
// those that the shell would complete it to.
type UnknownName struct {
	Name string
	Err  error
}

func (e *UnknownName) Error() string { return e.Err.Error() }
func (e *UnknownName) Unwrap() error { return e.Err }

// closestName returns the name that is most similar to the unknown command or name of an error, or "".
func closestName(cmd *cobra.Command, err error) (closest string) {
	typed, candidates := "", commandNames(cmd)
	if match := unknownCommand.FindStringSubmatch(err.Error()); match != nil {
		typed = match[1]
	} else if unknown := (*UnknownName)(nil); errors.As(err, &unknown) {
		complete, args := cmd.ValidArgsFunction, []string(nil)
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if value, isList := f.Value.(pflag.SliceValue); f.Value.String() == unknown.Name || isList && slices.Contains(value.GetSlice(), unknown.Name) {
				complete, _ = cmd.GetFlagCompletionFunc(f.Name)
				args = cmd.Flags().Args()
			}
		})
		if typed, candidates = unknown.Name, nil; complete != nil {
			candidates, _ = complete(cmd, args, "")
		}
	}
	least := 0.6
	for _, name := range candidates {
		name, _, _ = strings.Cut(name, "\t")
		if ratio := difflib.NewMatcher(strings.Split(typed, ""), strings.Split(name, "")).Ratio(); ratio > least {
			least, closest = ratio, name
		}
	}
	return closest
}

// missingRight matches the message of an API server about a user without a right. In all else, its status is like that
// of a quota or a policy.
var missingRight = regexp.MustCompile(`^(\S+ ("[^"]*" )?is )?forbidden: User "`)

// remedyOf returns what to do about an error of an API server or a file, or "" for every other error.
func remedyOf(err error) string {
	request, certificate := (*url.Error)(nil), (*tls.CertificateVerificationError)(nil)
	denial := apierrors.APIStatus(nil)
	switch text := err.Error(); {
	case apierrors.IsForbidden(err) && errors.As(err, &denial) && missingRight.MatchString(denial.Status().Message):
		return ": ask for this right, or set --context to a user who has it"
	case apierrors.IsForbidden(err):
		return ": correct what is refused, or ask those who set this rule"
	case apierrors.IsUnauthorized(err):
		return ": log in again, or set --context to a user who is logged in"
	case meta.IsNoMatchError(err):
		return ": install what defines this kind, or set --kubeconfig or --context to the management cluster"
	case errors.As(err, &request) && strings.Contains(text, "getting credentials: "):
		return ": correct users.user.exec in the kubeconfig, and install its program"
	case errors.As(err, &certificate):
		return ": correct certificate-authority-data and server in the kubeconfig, or set --context"
	case errors.As(err, &request):
		return ": check that the API server runs and is reachable from here, and --kubeconfig and --context"
	case errors.Is(err, fs.ErrNotExist):
		return ": correct the name"
	case errors.Is(err, fs.ErrPermission):
		return ": use an account that may read it"
	}
	return ""
}

// commandNames returns the names of the commands below one.
func commandNames(cmd *cobra.Command) (names []string) {
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// OneName accepts the name of one object of a kind. The remedy says where a name comes from.
func OneName(kind, remedy string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("name one %s: %s", kind, remedy)
		case 1:
			return nil
		}
		return fmt.Errorf("%q: name one %s only", args[1], kind)
	}
}

// AddPoolFlag defines the required flag --pool and its completion.
func AddPoolFlag(cmd *cobra.Command, role *string, complete cobra.CompletionFunc) {
	cmd.Flags().StringVar(role, "pool", "", "role of the pool; an OpenShift pool's role is its name")
	utilruntime.Must(cmd.MarkFlagRequired("pool"))
	AddCompletion(cmd, "pool", complete)
}

// AddCompletion sets what the shell completes a flag to.
func AddCompletion(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	utilruntime.Must(cmd.RegisterFlagCompletionFunc(flag, complete))
}

// Exit codes of all commands but diff, whose exit codes are those of kubectl diff.
const (
	// ExitFailure is every error without a code of its own.
	ExitFailure = 1
	// ExitActionRequired means that the command printed its result, and that a person must act on it: labels of several
	// custom pools, a pool in which no Node can be registered, rules that block a host, or tasks.
	ExitActionRequired = 2
	// ExitIncomplete means that the command printed the result for a part of its input, and refused the rest.
	ExitIncomplete = 3
)

// failureCode is the annotation of a command whose errors have another exit code than ExitFailure.
const failureCode = "failure-exit-code"

// SetFailureCode sets the exit code of every error of a command that has no code of its own.
func SetFailureCode(cmd *cobra.Command, code int) {
	cmd.Annotations = map[string]string{failureCode: strconv.Itoa(code)}
}

// ActionRequired returns an error with the exit code ExitActionRequired.
func ActionRequired(err error) error { return exec.CodeExitError{Code: ExitActionRequired, Err: err} }

// Incomplete returns an error with the exit code ExitIncomplete.
func Incomplete(err error) error { return exec.CodeExitError{Code: ExitIncomplete, Err: err} }

// exitCode returns the exit code of a command that returned an error or nil.
func exitCode(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	if exit := (exec.CodeExitError{}); errors.As(err, &exit) {
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

// TasksRemain returns an error with the exit code ExitActionRequired.
func TasksRemain(subject string, tasks int) error {
	return ActionRequired(fmt.Errorf("%s: %d to do: see the output", subject, tasks))
}

// Errors of cobra about flags that must or must not be set together, which name the group of the flags.
var (
	flagMissing   = regexp.MustCompile(`^required flag\(s\) (.*) not set$`)
	oneRequired   = regexp.MustCompile(`^at least one of the flags in the group \[(.*)\] is required$`)
	setTogether   = regexp.MustCompile(`^if any flags in the group \[(.*)\] are set they must all be set; missing \[(.*)\]$`)
	notTogether   = regexp.MustCompile(`^if any flags in the group \[.*\] are set none of the others can be; \[(.*)\] were all set$`)
	quotedAndList = strings.NewReplacer(`"`, "", ",", "")
)

// describeFlags returns an error about flags in words of a command line, and every other error as it is.
func describeFlags(text string) string {
	flags := func(names, last string) string {
		list := strings.Fields(quotedAndList.Replace(names))
		for i := range list {
			list[i] = "--" + list[i]
		}
		if len(list) == 1 {
			return list[0]
		}
		return strings.Join(list[:len(list)-1], ", ") + " " + last + " " + list[len(list)-1]
	}
	if match := flagMissing.FindStringSubmatch(text); match != nil {
		return "set " + flags(match[1], "and")
	}
	if match := oneRequired.FindStringSubmatch(text); match != nil {
		return "set " + flags(match[1], "or")
	}
	if match := setTogether.FindStringSubmatch(text); match != nil {
		return "set " + flags(match[2], "and") + ": " + flags(match[1], "and") + " belong together"
	}
	if match := notTogether.FindStringSubmatch(text); match != nil {
		return flags(match[1], "and") + " exclude each other: leave out all but one"
	}
	return text
}
