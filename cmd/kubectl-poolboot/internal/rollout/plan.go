package rollout

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// planOptions are those of the command line.
type planOptions struct {
	streams    genericiooptions.IOStreams
	connection input.Connection
	files      input.Files
	nodes      []string
	cluster    string
	output     cli.Output
}

// plan is the plan of one pool, as it is printed as JSON. Lists are never null.
type plan struct {
	// Pinned says that the pool hands out what spec.configurationName names, and what no longer fits, or is "".
	Pinned         string `json:"pinned,omitempty"`
	MaxUnavailable int    `json:"maxUnavailable"`
	// Unavailable are the hosts that take places of MaxUnavailable, also because their update failed.
	Unavailable []string `json:"unavailable"`
	// Capacity is how many places of MaxUnavailable are free, also while something else holds back the pool, such as a
	// pause.
	Capacity int `json:"capacity"`
	// Next are the hosts that are updated now, in order. It is empty while something holds back the pool.
	Next []string `json:"next"`
	// Problem is why the pool can't be rendered, what to do, and what its hosts do until then, or "".
	Problem string `json:"problem,omitempty"`
	// Reason is why no host is next, or "".
	Reason string `json:"reason,omitempty"`
	// Hosts are those that wait, are in an update, or are left alone, by name.
	Hosts []notNext `json:"hosts"`
	// Exceptions are those of the pool.
	Exceptions []exception `json:"exceptions,omitempty"`
}

// exception is an exception for one host of a pool.
type exception struct {
	Node   string                       `json:"node"`
	Action poolv1.UpdateExceptionAction `json:"action"`
	Until  time.Time                    `json:"until"`
	Reason string                       `json:"reason"`
	// Problem is why it does nothing, or "".
	Problem string `json:"problem,omitempty"`
}

// notNext is a host that is not next, and why.
type notNext struct {
	Node    string `json:"node"`
	Message string `json:"message"`
}

func newPlan(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &planOptions{streams: streams, connection: to, files: input.Files{Streams: streams}}
	cmd := &cobra.Command{
		Use:   "plan POOL | --pools FILE... --nodes FILE...",
		Short: "Print which hosts of a pool are updated next",
		Long: `Print how many hosts of a pool can be unavailable at a time, which hosts take these places (UNAVAILABLE), how many are
free (CAPACITY), which hosts are next, and why others are not. While the pool is paused, is not approved, or waits for
other pools, or its maintenance window or an update gate is closed, no host is next but those that ignore the window,
and the capacity stays what it is. If the pool can't be rendered, the answer says why, and what its hosts do until that
is corrected. Nothing is written.

With a POOL, the answer is about a pool in the management cluster. Its Nodes are read from the workload cluster, with
the Cluster's kubeconfig Secret.

With files, the answer is about each pool in the files. A pool's Nodes should run its status.configuration. What a Node
runs and does is in its annotations: poolboot.io/agent-version, desired-revision, desired-config,
begun-revision, current-revision, update-revision, update-state and update-reason. The objects of update gates are not
read: the condition UpdateGatesOpen in the status of the pool says whether they are open, and whether the control plane
can be without one of its hosts.`,
		Example: `  # A pool in the management cluster
  kubectl poolboot rollout plan infra -n metal

  # Pools in files, and the Nodes of a cluster
  kubectl get nodes -o yaml | kubectl poolboot rollout plan --pools pools.yaml --nodes -

  # For a script
  kubectl poolboot rollout plan --pools pools.yaml --nodes nodes.yaml -o json`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     input.CompleteFirst(input.CompleteFromCluster(to, input.PoolNames), cobra.ShellCompDirectiveNoFileComp),
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&o.files.Names, "pools", nil, "files with MachineConfigPools: file, directory, or - for standard input; may be repeated")
	flags.StringSliceVar(&o.nodes, "nodes", nil, "files with Nodes: file, directory, or - for standard input; may be repeated")
	for _, name := range []string{"pools", "nodes"} {
		utilruntime.Must(cmd.MarkFlagFilename(name, "json", "yaml", "yml"))
	}
	o.files.AddRecursiveFlag(cmd)
	cmd.MarkFlagsRequiredTogether("pools", "nodes")
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(0, input.PoolClusters, nil))
	input.AddConnectionFlags(cmd, to)
	o.output.AddTableFlag(cmd)
	return cmd
}

func (o *planOptions) run(ctx context.Context, args []string) (err error) {
	var plans map[string]plan
	var conflicts error
	switch isOffline := len(o.files.Names) > 0; {
	case isOffline && len(args) > 0:
		return fmt.Errorf("--pools and POOL: name either files, or the pool %s of the management cluster", args[0])
	case isOffline:
		plans, conflicts, err = o.planFiles(ctx)
	case len(args) == 0:
		return errors.New("name a MachineConfigPool of the management cluster, or files with --pools and --nodes")
	default:
		if err := onePool(nil, args); err != nil {
			return err
		}
		plans, err = o.planLive(ctx, args[0])
	}
	if err != nil {
		return err
	}
	err = o.output.Print(o.streams.Out, plans, func(out io.Writer) error { return printPlans(out, plans) })
	return errors.Join(err, conflicts)
}

// printPlans prints a table of the pools, and the hosts that wait.
func printPlans(out io.Writer, plans map[string]plan) error {
	var pools, notes, exceptions [][]string
	var reasons strings.Builder
	for _, role := range slices.Sorted(maps.Keys(plans)) {
		p := plans[role]
		pools = append(pools, []string{role, strconv.Itoa(p.MaxUnavailable), excerpt.List(maxHolders, p.Unavailable), strconv.Itoa(p.Capacity), excerpt.List(maxHolders, p.Next)})
		if p.Pinned != "" {
			reasons.WriteString("\n" + cli.Paragraph("", fmt.Sprintf("The pool %s is pinned: %s", role, p.Pinned)))
		}
		if p.Problem != "" {
			reasons.WriteString("\n" + cli.Paragraph("", fmt.Sprintf("The pool %s can't be rendered: %s", role, p.Problem)))
		}
		if p.Reason != "" {
			reasons.WriteString("\n" + cli.Paragraph("", fmt.Sprintf("No host of the pool %s is next: %s", role, p.Reason)))
		}
		for _, h := range p.Hosts {
			notes = append(notes, []string{role, h.Node, h.Message})
		}
		for _, e := range p.Exceptions {
			reason := e.Reason
			if e.Problem != "" {
				reason += " (" + e.Problem + ")"
			}
			exceptions = append(exceptions, []string{role, e.Node, string(e.Action), e.Until.UTC().Format(time.RFC3339), reason})
		}
	}
	err := (&cli.Table{Out: out, Header: []string{"POOL", "MAXUNAVAILABLE", "UNAVAILABLE", "CAPACITY", "NEXT"}}).Print(pools...)
	fmt.Fprint(out, reasons.String())
	more := func(rows [][]string, header ...string) {
		if err == nil && len(rows) > 0 {
			fmt.Fprintln(out)
			err = (&cli.Table{Out: out, Header: header}).Print(rows...)
		}
	}
	more(notes, "POOL", "HOST", "WHY IT IS NOT NEXT")
	more(exceptions, "POOL", "NODE", "EXCEPTION", "UNTIL", "REASON")
	return err
}
