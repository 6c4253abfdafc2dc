package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kubectl-poolboot",
		Short: "Ask files what Poolboot would do",
		Long: `Ask files what Poolboot would do, without a cluster; only diff, explain, boots, move-check and render --live look at what is
live. For hosts without a Machine, enroll prints Enrollments with their tokens, and pointer what such a host boots with.

Files hold MachineConfigPools and MachineConfigs of pool.cluster.x-k8s.io/v1alpha1, of
machineconfiguration.openshift.io/v1, or of both, as YAML or JSON, with any number of documents and lists. Objects of
other kinds are ignored with a note. OpenShift's pools "master" and "control-plane" are left out: control plane machines
are in no pool of Poolboot's.`,
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
	cmd.AddCommand(newWhich(streams), newRender(streams, byKubeconfig()), newLabels(streams), newConvert(streams), newDiff(streams, byKubeconfig()),
		newExplain(streams, byKubeconfig()), newBoots(streams, byKubeconfig()), newMoveCheck(streams, byKubeconfig()), newEnroll(streams, byKubeconfig()), newPointer(streams, byKubeconfig()), newVersion())
	return cmd
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this plugin",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), cmd.Root().Version)
			return err
		},
	}
}

// offerPool defines --pool, which must be given.
func offerPool(cmd *cobra.Command, role *string) {
	cmd.Flags().StringVar(role, "pool", "", "the pool's role; of OpenShift's pools that is their name")
	must(cmd.MarkFlagRequired("pool"))
}

// offerOutputs defines --output, with the default that it has now, and what the shell completes it to.
func offerOutputs(cmd *cobra.Command, output *string, usage string, outputs ...string) {
	cmd.Flags().StringVarP(output, "output", "o", *output, usage)
	must(cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(outputs, cobra.ShellCompDirectiveNoFileComp)))
}

// must panics on what can go wrong only when this program is put together wrongly.
func must(err error) {
	if err != nil {
		panic(err)
	}
}
