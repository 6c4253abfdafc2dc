package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/adopt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/convert"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/diff"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/explain"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/movecheck"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/plan"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/render"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/report"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/rollout"
)

// newRoot returns the plugin with all its commands, each of which has a connection of its own.
func newRoot(streams genericiooptions.IOStreams, connect func() input.Connection) *cobra.Command {
	streams.ErrOut = cli.Messages(streams.ErrOut)
	cmd := cli.NewRoot(streams,
		explain.NewWhich(streams), render.New(streams, connect()), explain.NewLabels(streams), convert.New(streams), diff.New(streams, connect()),
		plan.New(streams), rollout.New(streams, connect), report.New(streams, connect()), explain.New(streams, connect()), boots.New(streams, connect()), movecheck.New(streams, connect()),
		enroll.New(streams, connect()), enroll.NewPointer(streams, connect()), adopt.New(streams, connect()), adopt.NewInstallAgent(streams, connect()), newVersion())
	cmd.Short = "Ask files what Poolboot would do"
	cmd.Long = `Ask files what Poolboot would do, without a cluster. Only diff, explain, rollout, boots, report, move-check, pointer,
install-agent and render --live need the management cluster, enroll and adopt read it only to warn, and only rollout
pause, resume, undo, approve, restart and retry change it. For hosts without a Machine, enroll prints Enrollments with
their tokens, and pointer the Ignition of such a host. For hosts that Poolboot did not boot, adopt prints
PoolbootConfigs, and install-agent what installs their agents.

Files hold MachineConfigPools and MachineConfigs of poolboot.io/v1alpha1, of
machineconfiguration.openshift.io/v1, or of both, as YAML or JSON, with any number of documents and lists. Objects of
other kinds are ignored with a note. OpenShift's pool "master" has the role control-plane here.`
	cmd.Example = `  # What does the pool infra render?
  kubectl poolboot render -f pools.yaml -f machineconfigs --pool infra

  # How far are the hosts of all pools?
  kubectl poolboot rollout status -A`
	return cmd
}

func newVersion() *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Long:  "Print the version of this plugin.",
		Example: `  # To compare with the version of the manager
  kubectl poolboot version`,
		Args:                  cobra.NoArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return output.Print(cmd.OutOrStdout(), map[string]string{"version": cmd.Root().Version}, func(out io.Writer) error {
				_, err := fmt.Fprintln(out, cmd.Root().Version)
				return err
			})
		},
	}
	output.AddFlag(cmd, "text", cli.FormatJSON, cli.FormatYAML)
	return cmd
}
