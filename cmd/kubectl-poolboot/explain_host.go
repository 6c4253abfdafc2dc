package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
)

// explainHost says what rules make of a host.
type explainHost struct {
	reader
	files, rest         []string
	name, cluster, role string
	output              string
	connection
}

// subject is a host, what is known of it, and the rules that are for it.
type subject struct {
	host         *bmov1alpha1.BareMetalHost
	hardware     *bmov1alpha1.HardwareDetails
	hardwareFrom string
	machine      *clusterv1.Machine
	cluster      *clusterv1.Cluster
	rules        []nodelabels.Rules
}

// hostExplained is what explain host prints. What is not there is empty; lists are never null.
type hostExplained struct {
	// Host is the BareMetalHost.
	Host string `json:"host"`
	// Hardware says where its hardware's facts were found.
	Hardware string `json:"hardware"`
	// Machine and Cluster are those that the host serves.
	Machine string `json:"machine"`
	Cluster string `json:"cluster"`
	// Rules are what the rules gave, each by itself.
	Rules []nodelabels.Result `json:"rules"`
}

func newExplain(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why something is as it is",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExplainHost(streams, to), newExplainMachine(streams, to), newExplainNode(streams, to))
	return cmd
}

func newExplainHost(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	e := &explainHost{reader: reader{streams: streams}, connection: to}
	cmd := &cobra.Command{
		Use:   "host NAME [-f FILE...]",
		Short: "Say which labels the rules in nodeLabelRules make of a host, and why",
		Long: `Say which labels the rules in nodeLabelRules make of a BareMetalHost, and why, as the manager does when the host asks for its
configuration.

The host, its HardwareData, Machine and Cluster, and the pools and PoolbootConfigs with the rules are read from a cluster or,
with -f, from files. The rules are those of the pool and the PoolbootConfig of the host's Machine; for a host without a
Machine, and in files, those of all pools, PoolbootConfigs and PoolbootConfigTemplates there are, or of one pool with --pool.

Exit codes: 0 when every rule sets its label or skips it, 2 when one would block the host, 1 for an error.`,
		Example: `  # What is made of a live host?
  kubectl poolboot explain host rack1-u12 -n metal

  # And if it were in the pool infra?
  kubectl poolboot explain host rack1-u12 -n metal --pool infra

  # Try rules before applying them
  kubectl poolboot explain host rack1-u12 -f host.yaml -f pools.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("the name of a BareMetalHost is missing")
			}
			return nil
		},
		ValidArgsFunction:     onlyFirst(fromCluster(to, hostNames), cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name, e.rest = args[0], args[1:]
			return e.run(cmd.Context())
		},
	}
	e.offerOptionalFiles(cmd, &e.files, "filename", "f", "where the BareMetalHost, its HardwareData and the rules are")
	cmd.Flags().StringVar(&e.role, "pool", "", "only the rules of the pool of this role, beside those of PoolbootConfigs")
	offerCluster(cmd, &e.cluster)
	completeFlag(cmd, "pool", e.fromFiles(&e.files, 1, rolesIn, fromCluster(to, liveRoles)))
	completeFlag(cmd, "cluster", e.fromFiles(&e.files, 1, clustersIn, fromCluster(to, liveClusters)))
	offerOutputs(cmd, &e.output, "json or yaml; without it, a table", "json", "yaml")
	offerConnection(cmd, to)
	return cmd
}

func (e *explainHost) run(ctx context.Context) error {
	if e.output != "" && e.output != "json" && e.output != "yaml" {
		return fmt.Errorf("--output %s is not known: use json or yaml, or leave it out", e.output)
	}
	gather := e.live
	if len(e.files)+len(e.rest) > 0 {
		gather = e.inFiles
	}
	of, err := gather(ctx)
	if err != nil {
		return err
	}
	answer := hostExplained{
		Host:     klog.KObj(of.host).String(),
		Hardware: of.hardwareFrom,
		Rules:    append([]nodelabels.Result{}, nodelabels.Evaluate(nodelabels.NewFacts(of.host, of.hardware, of.machine, of.cluster), of.rules...)...),
	}
	if of.machine != nil {
		answer.Machine = klog.KObj(of.machine).String()
	}
	if of.cluster != nil {
		answer.Cluster = klog.KObj(of.cluster).String()
	}
	if err := answer.print(e.streams.Out, e.output); err != nil {
		return err
	}
	blocked := 0
	for _, result := range answer.Rules {
		if result.Outcome.Blocks() {
			blocked++
		}
	}
	if blocked > 0 {
		return &blockedHostError{host: answer.Host, rules: blocked}
	}
	return nil
}

func (h hostExplained) print(out io.Writer, output string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(h)
	case "yaml":
		document, err := yaml.Marshal(h)
		if err == nil {
			_, err = out.Write(document)
		}
		return err
	}
	lines := tabwriter.NewWriter(out, 6, 4, 3, ' ', 0)
	for _, line := range [][2]string{{"Host", h.Host}, {"Hardware", h.Hardware}, {"Machine", h.Machine}, {"Cluster", h.Cluster}} {
		fmt.Fprintf(lines, "%s:\t%s\n", line[0], orNone(line[1]))
	}
	fmt.Fprintln(lines)
	if err := lines.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(lines, "KEY\tVALUE\tRESULT\tFROM\tWHY")
	for _, rule := range h.Rules {
		fmt.Fprintf(lines, "%s\t%s\t%s\t%s\t%s\n", printable(rule.Key), orNone(rule.Value), rule.Outcome, rule.From, rule.Why)
	}
	return lines.Flush()
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

// blockedHostError says that a host would get no configuration; why is in the answer.
type blockedHostError struct {
	host  string
	rules int
}

func (e *blockedHostError) Error() string {
	return fmt.Sprintf("host %s would get no configuration: %d of the rules block it", e.host, e.rules)
}
