package explain

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
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
	cmd.Flags().StringVar(&o.role, "pool", "", "role of the only pool whose rules count, with those of PoolbootConfigs")
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(1, input.PoolClusters, to))
	cli.AddCompletion(cmd, "pool", o.files.Complete(1, input.PoolRoles, to))
	return o.configure(cmd, "BareMetalHost", input.Hosts, "the BareMetalHost, its HardwareData and the rules", o.explainHost)
}

func (o *options) explainHost(ctx context.Context, source *input.Source, name string) error {
	s, err := o.gatherHost(ctx, source, name)
	if err != nil {
		return err
	}
	answer := hostReport{
		Host:     klog.KObj(s.bmh).String(),
		Hardware: s.hardwareFrom,
		Machine:  klog.KObj(s.machine).String(),
		Cluster:  klog.KObj(s.clusterObject).String(),
		Rules:    append([]nodelabels.Result{}, nodelabels.Evaluate(nodelabels.NewFacts(s.bmh, s.hardware, s.machine, s.clusterObject), s.rules...)...),
	}
	if err := o.output.Print(o.streams.Out, answer, answer.print); err != nil {
		return err
	}
	blocking := slices.DeleteFunc(slices.Clone(answer.Rules), func(r nodelabels.Result) bool { return !r.Outcome.Blocks() })
	if len(blocking) > 0 {
		return cli.ActionRequired(fmt.Errorf("host %s would get no configuration: blocking rules: %d", answer.Host, len(blocking)))
	}
	return nil
}

// print prints the host, and the rules as a table.
func (h hostReport) print(out io.Writer) error {
	head := [][]string{{"Host:", h.Host}, {"Hardware:", h.Hardware}, {"Machine:", h.Machine}, {"Cluster:", h.Cluster}}
	if err := (&cli.Table{Out: out}).Print(head...); err != nil {
		return err
	}
	if len(h.Rules) == 0 {
		_, err := fmt.Fprintln(out, "\nNo label rule applies: no pool or PoolbootConfig of this host has spec.node.labelRules")
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

// hostSubject is a host with what is known of it, and the rules that apply to it.
type hostSubject struct {
	subject
	// configs are the PoolbootConfigs whose rules apply.
	configs []bootstrapv1.PoolbootConfig
	rules   []nodelabels.Rules
}

// gatherHost reads a host and the objects around it.
func (o *options) gatherHost(ctx context.Context, source *input.Source, name string) (*hostSubject, error) {
	s := &hostSubject{subject: subject{bmh: &bmov1alpha1.BareMetalHost{}}}
	err := source.GetNamed(ctx, name, s.bmh)
	if err != nil {
		return nil, err
	}
	if s.hardware, s.hardwareFrom, err = host.Hardware(ctx, source, s.bmh); err != nil {
		return nil, err
	}
	cluster := o.cluster
	if source.InFiles {
		err = s.readFromFiles(ctx, source)
	} else if err = s.readMachine(ctx, source); s.machine != nil {
		cluster = s.machine.Spec.ClusterName
	}
	if err != nil {
		return nil, err
	}
	pools, err := source.Pools(ctx, source.Namespace, cluster)
	if err != nil {
		return nil, err
	}
	ofPools, err := o.poolRules(source, s, pools.Items)
	if err != nil {
		return nil, err
	}
	for i := range s.configs {
		ofPools = append(ofPools, nodelabels.OfConfig(&s.configs[i]))
	}
	s.rules = append(ofPools, s.rules...)
	if name := pools.Cluster.Name; name != "" && !source.InFiles {
		s.clusterObject = &clusterv1.Cluster{}
		err = source.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: name}, s.clusterObject)
	}
	return s, err
}

// readMachine reads the Machine that the host serves, if it serves one, and its PoolbootConfig.
func (s *hostSubject) readMachine(ctx context.Context, source *input.Source) error {
	key, err := host.MachineOf(ctx, source, s.bmh)
	if err != nil {
		return fmt.Errorf("find the Machine of BareMetalHost %s: %w", klog.KObj(s.bmh), err)
	}
	if key.Name == "" {
		return nil
	}
	machine, config := &clusterv1.Machine{}, bootstrapv1.PoolbootConfig{}
	if err := source.Get(ctx, key, machine); err != nil {
		return err
	}
	if err := source.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, &config); err != nil {
		return fmt.Errorf("bootstrap.configRef of Machine %s: %w", key, err)
	}
	s.machine, s.configs = machine, []bootstrapv1.PoolbootConfig{config}
	return nil
}

// readFromFiles reads the Machine and the Cluster of which the files contain only one, and the rules of all
// PoolbootConfigs and templates.
func (s *hostSubject) readFromFiles(ctx context.Context, files client.Reader) error {
	var machines clusterv1.MachineList
	var clusters clusterv1.ClusterList
	var configs bootstrapv1.PoolbootConfigList
	var templates bootstrapv1.PoolbootConfigTemplateList
	for _, list := range []client.ObjectList{&machines, &clusters, &configs, &templates} {
		if err := files.List(ctx, list); err != nil {
			return err
		}
	}
	if len(machines.Items) == 1 {
		s.machine = &machines.Items[0]
	}
	if len(clusters.Items) == 1 {
		s.clusterObject = &clusters.Items[0]
	}
	s.configs = configs.Items
	for i := range templates.Items {
		s.rules = append(s.rules, nodelabels.OfTemplate(&templates.Items[i]))
	}
	return nil
}

// poolRules returns the rules of the pool that the command line names, else of the pool of the host's Machine, else of
// all pools. In files, which can contain rules to try, it is all pools too.
func (o *options) poolRules(source *input.Source, s *hostSubject, pools []poolv1.MachineConfigPool) (rules []nodelabels.Rules, err error) {
	role := o.role
	if role == "" && s.machine != nil && !source.InFiles {
		assigned, err := pool.ForBoot(pool.Boot{Config: &s.configs[0], Machine: s.machine, Host: s.bmh, Pools: pools})
		if err != nil {
			return nil, err
		}
		role = assigned.Role
	}
	if role != "" {
		of, err := pool.OfRole(pools, role)
		if err != nil {
			return nil, source.ExplainMissing(err, role)
		}
		return []nodelabels.Rules{nodelabels.OfPool(of)}, nil
	}
	for i := range pools {
		rules = append(rules, nodelabels.OfPool(&pools[i]))
	}
	return rules, nil
}
