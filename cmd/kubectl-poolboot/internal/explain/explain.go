// Package explain has the commands kubectl poolboot explain machine, node and host: they print why a Machine or a Node
// is in its pool, where its labels and taints come from and what to do, and which labels rules derive from a host.
package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// New returns the command explain.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain the pool and the labels of a Machine, a Node or a host",
		Long: `Explain why a Machine or a Node is in its pool, where its labels and taints come from and what to do, or which labels
rules derive from a host.`,
		Example: `  # Why does this Machine not join?
  kubectl poolboot explain machine infra-x7k2m -n metal`,
		Args:               noObject,
		FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true}, // those that follow the object
		RunE:               func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHost(streams, to), newMachine(streams, to), newNode(streams, to))
	return cmd
}

// noObject names the command for an object that is given as kubectl takes it.
func noObject(cmd *cobra.Command, args []string) error {
	kind, name, _ := strings.Cut(strings.Join(args, "/"), "/")
	switch kind = strings.TrimSuffix(strings.ToLower(kind), "s"); {
	case slices.Contains([]string{"pool", "pbpool", "machineconfigpool"}, kind):
		return fmt.Errorf("what is wrong with a pool is in kubectl poolboot rollout status %s", cmp.Or(name, "POOL"))
	case name != "" && slices.Contains([]string{"machine", "node", "host"}, kind):
		return fmt.Errorf("leave a space between kind and name: kubectl poolboot explain %s %s", kind, name)
	}
	return cobra.NoArgs(cmd, args)
}

// options are those of all commands.
type options struct {
	streams       genericiooptions.IOStreams
	connection    input.Connection
	files         input.Files
	cluster, role string
	syncedLabels  []string
	output        cli.Output
}

func newOptions(streams genericiooptions.IOStreams, to input.Connection) *options {
	return &options{streams: streams, connection: to, files: input.Files{Streams: streams}}
}

// configure adds to a command for an object of a kind the arguments and flags that all commands have. Files may follow
// the name of the object.
func (o *options) configure(cmd *cobra.Command, kind string, names input.Names, filesUsage string,
	run func(ctx context.Context, source *input.Source, name string) error) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = input.CompleteFirst(input.CompleteFromCluster(o.connection, names), cobra.ShellCompDirectiveDefault)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("name one %s: see kubectl get %ss", kind, strings.ToLower(kind))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		source, err := input.OpenSource(&o.files, args[1:], o.connection)
		if err != nil {
			return err
		}
		return run(cmd.Context(), source, args[0])
	}
	o.files.AddFlag(cmd, "filename", "f", filesUsage)
	o.output.AddTableFlag(cmd)
	input.AddConnectionFlags(cmd, o.connection)
	return cmd
}
