// Command config-server serves hosts their configuration while they boot: the rendered config of their pool, and their
// overlay. It also serves the agents of running hosts what these should run. It reads Poolboot's kinds and the Secrets
// in its own namespace, and patches the status of PoolbootConfigs and Enrollments. It has no access to workload
// clusters. Package bootstrap/server decides the answers. This package has the listeners, and the access to the
// management cluster.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	logsv1 "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "config-server:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := newOptions()
	cmd := &cobra.Command{
		Use:           "config-server",
		Short:         "Serve hosts the configuration of their pool over HTTPS",
		Args:          cobra.NoArgs,
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			if err := logsv1.ValidateAndApply(o.logs, nil); err != nil {
				return err
			}
			ctrl.SetLogger(klog.Background())
			return run(cmd.Context(), o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}
