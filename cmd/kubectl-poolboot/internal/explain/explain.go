// Package explain has the commands kubectl poolboot explain machine, node and host: they print why a Machine or a Node
// is in its pool, where its labels and taints come from and what to do, and which labels rules derive from a host.
package explain

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// New returns the command explain.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain the pool and the labels of a Machine, a Node or a host",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newHost(streams, to), newMachine(streams, to), newNode(streams, to))
	return cmd
}

// requireName refuses a command line without the name of an object; files may follow the name.
func requireName(kind string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("the name of a %s is missing", kind)
		}
		return nil
	}
}
