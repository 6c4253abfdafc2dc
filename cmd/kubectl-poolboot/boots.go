package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/timeline"
)

// boots shows how far the boots of machines are.
type boots struct {
	streams genericiooptions.IOStreams
	// names are those of Machines, PoolbootConfigs, hosts and Nodes whose boots are shown; none stands for all.
	names   []string
	cluster string
	output  string
	all     bool
	watch   bool
	connection
}

// bootShown is how far one boot is. What is not known is empty.
type bootShown struct {
	Namespace string `json:"namespace"`
	// Machine is the Machine; empty for a host without one.
	Machine string `json:"machine"`
	// PoolbootConfig is the record of the boot.
	PoolbootConfig string `json:"poolbootConfig"`
	Cluster        string `json:"cluster"`
	Host           string `json:"host"`
	Node           string `json:"node"`
	Pool           string `json:"pool"`
	Configuration  string `json:"configuration"`
	// Addresses are those from which the host's token was used, the first one first; of a host that enrolled, the
	// address that it enrolled from.
	Addresses []addressShown `json:"addresses"`
	Stage     timeline.Stage `json:"stage"`
	// Since is when the stage began, Created when the boot did.
	Since   time.Time `json:"since"`
	Created time.Time `json:"created"`
	// Message says what is waited for, or what is wrong.
	Message string `json:"message"`
	// Timeline are the steps taken so far.
	Timeline []timeline.Moment `json:"timeline"`
}

// addressShown is an address from which a host's token was used.
type addressShown struct {
	Address string `json:"address"`
	// Refused is true when the token is bound to other addresses.
	Refused bool `json:"refused"`
}

func (a addressShown) String() string {
	if a.Refused {
		return a.Address + "(refused)"
	}
	return a.Address
}

func addressesOf(config *bootstrapv1.PoolbootConfig) []addressShown {
	addresses := []addressShown{}
	if enrolled := config.Spec.Enrolled(); enrolled != nil {
		return append(addresses, addressShown{Address: enrolled.Address})
	}
	for _, address := range hostaccess.UsedFrom(config) {
		addresses = append(addresses, addressShown{Address: address, Refused: hostaccess.Refuses(config, address)})
	}
	return addresses
}

func joinAddresses(addresses []addressShown, separator string) string {
	texts := make([]string, len(addresses))
	for i, address := range addresses {
		texts[i] = address.String()
	}
	return strings.Join(texts, separator)
}

// deleted is the stage of a boot whose record is gone.
const deleted timeline.Stage = "Deleted"

func newBoots(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	b := &boots{streams: streams, connection: to}
	cmd := &cobra.Command{
		Use:   "boots [NAME...] [-n NAMESPACE | -A] [--cluster NAME] [--watch]",
		Short: "Show how far the boots of machines are",
		Long: `Show how far the boots of machines are, each with its host, its pool, the stage that it is in and since when.

Stages: Pending until the data Secret stands, WaitingForHost until a host is chosen, Provisioning until it asks for its
configuration, Preparing until its Node and all else stand, Serving until the host has its configuration, Joining until the Node is
Ready in its pool; then Ready, or NotReady while something is wrong with the Node.

A NAME leaves the boots of one Machine, PoolbootConfig, host or Node.

With --watch a line follows for every change. "kubectl poolboot explain machine" says more of one.`,
		Example: `  # The boots of a namespace
  kubectl poolboot boots -n metal

  # That of one Machine, host or Node, and what becomes of it
  kubectl poolboot boots infra-x7k2m -n metal --watch

  # Follow those of one cluster
  kubectl poolboot boots -n metal --cluster edge --watch

  # For scripts, with every time
  kubectl poolboot boots -A -o json`,
		ValidArgsFunction:     fromCluster(to, bootNames),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			b.names = args
			return b.run(cmd.Context())
		},
	}
	cmd.Flags().BoolVarP(&b.all, "all-namespaces", "A", false, "of all namespaces")
	cmd.Flags().BoolVarP(&b.watch, "watch", "w", false, "go on with a line for every change")
	cmd.Flags().StringVar(&b.cluster, "cluster", "", "only those of the Cluster of this name")
	offerOutputs(cmd, &b.output, "wide for more columns, json for objects; without it, a table", "json", "wide")
	offerConnection(cmd, to)
	completeFlag(cmd, "cluster", fromCluster(to, liveClusters))
	return cmd
}

func (b *boots) run(ctx context.Context) error {
	if b.output != "" && b.output != "json" && b.output != "wide" {
		return fmt.Errorf("--output %s is not known: use json or wide, or leave it out", b.output)
	}
	live, namespace, _, err := b.open()
	if err != nil {
		return err
	}
	if b.all {
		namespace = ""
	}
	of := []client.ListOption{client.InNamespace(namespace)}
	if b.cluster != "" {
		of = append(of, client.MatchingLabels{clusterv1.ClusterNameLabel: b.cluster})
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := live.List(ctx, configs, of...); err != nil {
		return fmt.Errorf("PoolbootConfigs: %w", err)
	}
	to := &bootsTable{out: b.streams.Out, wide: b.output == "wide", namespaces: b.all}
	show := to.print
	if b.output == "json" {
		show = b.encode
	}
	if len(configs.Items) == 0 && len(b.names) == 0 && b.output != "json" && !b.watch {
		fmt.Fprintln(b.streams.ErrOut, "No boots found.")
		return nil
	}
	boots := b.named(shown(configs.Items))
	if err := b.missing(boots, namespace); err != nil {
		return err
	}
	if err := show(boots); err != nil || !b.watch {
		return err
	}
	return follow(ctx, live, configs, of, func(boots []bootShown) error {
		if boots = b.named(boots); len(boots) == 0 {
			return nil
		}
		return show(boots)
	})
}

// goesBy says whether a name is that of a boot's Machine, record, host or Node.
func (b bootShown) goesBy(name string) bool {
	return name == b.Machine || name == b.PoolbootConfig || name == b.Host || name == b.Node
}

// named are those of boots that the command line asks for.
func (b *boots) named(boots []bootShown) []bootShown {
	if len(b.names) == 0 {
		return boots
	}
	return slices.DeleteFunc(boots, func(boot bootShown) bool { return !slices.ContainsFunc(b.names, boot.goesBy) })
}

// missing says which name of the command line is that of no boot.
func (b *boots) missing(boots []bootShown, namespace string) error {
	for _, name := range b.names {
		if slices.ContainsFunc(boots, func(boot bootShown) bool { return boot.goesBy(name) }) {
			continue
		}
		where := "any namespace"
		if namespace != "" {
			where = "namespace " + namespace
		}
		return fmt.Errorf("no PoolbootConfig in %s has the name, Machine, host or Node %q: correct the name, or --namespace", where, name)
	}
	return nil
}

// encode prints boots as a list, or each as it changes.
func (b *boots) encode(boots []bootShown) error {
	encoder := json.NewEncoder(b.streams.Out)
	encoder.SetEscapeHTML(false)
	if b.watch {
		for _, boot := range boots {
			if err := encoder.Encode(boot); err != nil {
				return err
			}
		}
		return nil
	}
	encoder.SetIndent("", "  ")
	return encoder.Encode(boots)
}

// shown are boots in the order of their namespaces and Machines.
func shown(configs []bootstrapv1.PoolbootConfig) []bootShown {
	boots := make([]bootShown, len(configs))
	for i := range configs {
		boots[i] = bootOf(&configs[i])
	}
	slices.SortFunc(boots, func(a, b bootShown) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.PoolbootConfig, b.PoolbootConfig))
	})
	return boots
}

func bootOf(config *bootstrapv1.PoolbootConfig) bootShown {
	boot := bootShown{
		Namespace: config.Namespace, PoolbootConfig: config.Name, Cluster: config.Labels[clusterv1.ClusterNameLabel],
		Pool: config.Status.PoolRole, Configuration: config.Status.Configuration.Name, Addresses: addressesOf(config),
		Created: config.CreationTimestamp.Time, Message: timeline.Message(config), Timeline: timeline.Of(config),
	}
	boot.Stage, boot.Since = timeline.StageOf(config)
	for _, owner := range config.OwnerReferences {
		if owner.Kind == "Machine" {
			boot.Machine = owner.Name
		}
	}
	switch {
	case config.Status.HostRef.IsDefined():
		boot.Host = config.Status.HostRef.Name
	case config.Spec.Host.IsDefined():
		boot.Host = config.Spec.Host.NodeName
	}
	if config.Status.NodeRef.IsDefined() {
		boot.Node = config.Status.NodeRef.Name
	}
	return boot
}
