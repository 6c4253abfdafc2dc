// Package rollout has the commands kubectl poolboot rollout: they print which hosts of a pool are updated next and how
// far a rollout is, pause and resume it, try failed updates again, and list the rendered configs of a pool.
package rollout

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// New returns the command rollout. Each of its commands has a connection of its own.
func New(streams genericiooptions.IOStreams, connect func() input.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show and control how running hosts follow their pool",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStatus(streams, connect()), newPlan(streams, connect()), newPause(streams, connect()), newResume(streams, connect()),
		newRetry(streams, connect()), newHistory(streams, connect()),
		newUnavailable("undo", "there is no undo: revert the MachineConfig, or see kubectl poolboot rollout pause --configuration"),
		newUnavailable("restart", "there is no restart: to apply the configuration again, see kubectl poolboot rollout retry"))
	return cmd
}

// newUnavailable returns a hidden command for one of kubectl rollout that pools do not have. It says what to do
// instead.
func newUnavailable(name, instead string) *cobra.Command {
	return &cobra.Command{
		Use:                name,
		Hidden:             true,
		DisableFlagParsing: true,
		RunE:               func(*cobra.Command, []string) error { return errors.New(instead) },
	}
}
