package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// hostReport is what explain host prints. What does not exist is empty; lists are never null.
type hostReport struct {
	// Host is the BareMetalHost.
	Host string `json:"host"`
	// Hardware is where the facts of its hardware were found.
	Hardware string `json:"hardware"`
	// Machine and Cluster are those that the host serves.
	Machine string `json:"machine"`
	Cluster string `json:"cluster"`
	// Rules are the results of the rules.
	Rules []nodelabels.Result `json:"rules"`
}

func newHost(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := newOptions(streams, to)
	cmd := &cobra.Command{
		Use:   "host NAME [-f FILE...]",
		Short: "Explain which labels a pool's label rules derive from a host",
		Long: `Explain which labels the rules in node.labelRules derive from a BareMetalHost, and why, as the manager does when the
host requests its configuration.

The host, its HardwareData, Machine and Cluster, and the pools and PoolbootConfigs with the rules are read from a
cluster or, with -f, from files. The rules are those of the pool and the PoolbootConfig of the host's Machine. For a
host without a Machine they are those of all pools, and in files also those of all PoolbootConfigs and
PoolbootConfigTemplates. --pool selects one pool.

Exit codes: 0 when every rule sets its label or skips it, 2 when a rule would block the host, 1 for an error.`,
		Example: `  # Which labels does a host get?
  kubectl poolboot explain host rack1-u12 -n metal

  # Which labels would it get in the pool infra?
  kubectl poolboot explain host rack1-u12 -n metal --pool infra

  # Try rules before you apply them
  kubectl poolboot explain host rack1-u12 -f host.yaml -f pools.yaml`,
	}
	cmd.Flags().StringVar(&o.role, "pool", "", "only the rules of the pool with this role, and those of PoolbootConfigs")
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(1, input.PoolClusters, to))
	cli.AddCompletion(cmd, "pool", o.files.Complete(1, input.PoolRoles, to))
	return o.configure(cmd, "BareMetalHost", input.Hosts, "the BareMetalHost, its HardwareData and the rules", "a table", o.explainHost)
}

func (o *options) explainHost(ctx context.Context, source *input.Source, name string) error {
	s, err := o.gatherHost(ctx, source, name)
	if err != nil {
		return err
	}
	answer := hostReport{
		Host:     klog.KObj(s.host).String(),
		Hardware: s.hardwareFrom,
		Machine:  klog.KObj(s.machine).String(),
		Cluster:  klog.KObj(s.cluster).String(),
		Rules:    append([]nodelabels.Result{}, nodelabels.Evaluate(nodelabels.NewFacts(s.host, s.hardware, s.machine, s.cluster), s.rules...)...),
	}
	if err := o.output.Print(o.streams.Out, answer, answer.print); err != nil {
		return err
	}
	blocking := slices.DeleteFunc(slices.Clone(answer.Rules), func(r nodelabels.Result) bool { return !r.Outcome.Blocks() })
	if len(blocking) > 0 {
		return cli.ActionRequired(fmt.Errorf("host %s would get no configuration: %d of the rules block it", answer.Host, len(blocking)))
	}
	return nil
}

// print prints the host, and the rules as a table.
func (h hostReport) print(out io.Writer) error {
	head := [][]string{{"Host:", h.Host}, {"Hardware:", h.Hardware}, {"Machine:", h.Machine}, {"Cluster:", h.Cluster}}
	if err := (&cli.Table{Out: out}).Print(head...); err != nil {
		return err
	}
	rows := make([][]string, len(h.Rules))
	for i, rule := range h.Rules {
		object, _, _ := strings.Cut(rule.From, " spec.")
		rows[i] = []string{rule.Key, rule.Value, string(rule.Outcome), object, rule.Why}
	}
	fmt.Fprintln(out)
	return (&cli.Table{Out: out, Header: []string{"KEY", "VALUE", "RESULT", "FROM", "WHY"}}).Print(rows...)
}
