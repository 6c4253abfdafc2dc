// Package boots is the command kubectl poolboot boots: it prints the stages of the boots of machines, and follows them.
package boots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command line.
type options struct {
	streams genericiooptions.IOStreams
	// names are those of Machines, PoolbootConfigs, hosts and Nodes whose boots are shown; all are without names.
	names      []string
	cluster    string
	output     cli.Output
	all        bool
	watching   bool
	view       *cli.View
	connection input.Connection
}

// Boot is the state of one boot. What is not known is empty.
type Boot struct {
	Namespace string `json:"namespace"`
	// Machine is the Machine; empty for a host without one.
	Machine        string `json:"machine"`
	PoolbootConfig string `json:"poolbootConfig"`
	Cluster        string `json:"cluster"`
	Host           string `json:"host"`
	Node           string `json:"node"`
	Pool           string `json:"pool"`
	Configuration  string `json:"configuration"`
	// Addresses are those from which the host's token was used, the first one first; of a host that enrolled, the
	// address that it enrolled from.
	Addresses []Address    `json:"addresses"`
	Stage     record.Stage `json:"stage"`
	// Since is when the stage began, Created when the boot began.
	Since   time.Time `json:"since"`
	Created time.Time `json:"created"`
	// Update is the reason of the condition Updated of a host that has joined, and Desired the rendered config that the
	// host was told to run.
	Update  string `json:"update"`
	Desired string `json:"desired"`
	// Message is what the boot or the update of the host waits for, or what is wrong.
	Message string `json:"message"`
	// Timeline has the completed steps.
	Timeline []record.Moment `json:"timeline"`

	needsPerson bool
}

// deletedStage is the stage of a boot whose PoolbootConfig was deleted.
const deletedStage record.Stage = "Deleted"

// New returns the command boots.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &options{streams: streams, connection: to}
	cmd := &cobra.Command{
		Use:   "boots [NAME...] [-n NAMESPACE | -A] [--cluster NAME] [--watch]",
		Short: "Show the stages of the boots of machines",
		Long: `Show the boots of machines, each with its host, its pool, its stage and the time since the stage began.

Stages: Pending until the data Secret exists, WaitingForHost until a host is chosen, Provisioning until the host
requests its configuration, Preparing until its Node and its join credential exist, Serving until the host has its
configuration, Joining until the Node is Ready in its pool; then Ready, or NotReady while the Node is not Ready or not
in its pool. AsFound is a host that was adopted, and is in no pool until somebody agrees. For a host that is being
updated or differs from its configuration, the message also describes the update.

With NAMEs, show only the boots of these Machines, PoolbootConfigs, hosts or Nodes.

With --watch, print every change until interrupted. "kubectl poolboot explain machine" shows more about one boot.`,
		Example: `  # The boots of a namespace
  kubectl poolboot boots -n metal

  # The boot of one Machine, host or Node, and its changes
  kubectl poolboot boots infra-x7k2m -n metal --watch

  # Watch the boots of one cluster
  kubectl poolboot boots -n metal --cluster edge --watch

  # For scripts, with every time
  kubectl poolboot boots -A -o json`,
		ValidArgsFunction:     input.CompleteFromCluster(to, input.Boots, input.Nodes, input.Hosts, input.Configs),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "show all namespaces")
	cli.AddWatchFlag(cmd, &o.watching, "interrupted")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "Cluster of the boots")
	o.output.AddTableFlag(cmd, cli.FormatName)
	input.AddConnectionFlags(cmd, to)
	cli.AddCompletion(cmd, "cluster", input.CompleteFromCluster(to, input.PoolClusters))
	return cmd
}

func (o *options) run(ctx context.Context, names []string) error {
	o.names = names
	cluster, err := o.connection.Open()
	if err != nil {
		return err
	}
	namespace := cluster.Namespace
	if o.all {
		namespace = ""
	}
	selection := []client.ListOption{client.InNamespace(namespace)}
	if o.cluster != "" {
		selection = append(selection, client.MatchingLabels{clusterv1.ClusterNameLabel: o.cluster})
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := cluster.List(ctx, configs, selection...); err != nil {
		return fmt.Errorf("list PoolbootConfigs: %w", err)
	}
	if len(configs.Items) == 0 && len(o.names) == 0 && !o.watching && o.output.IsText() {
		none, err := cluster.NoneIn(ctx, namespace, "boots")
		if err == nil {
			fmt.Fprintln(o.streams.ErrOut, none)
		}
		return err
	}
	boots := List(configs.Items)
	unknown := o.resolveNames(ctx, cluster, boots, namespace)
	if boots = o.selected(boots); unknown != nil && len(boots) == 0 {
		return unknown
	}
	o.view = o.newView()
	if err := errors.Join(o.show(boots...), unknown); err != nil || !o.watching {
		return err
	}
	return o.follow(ctx, cluster, configs, selection)
}

// hasName reports whether a name is that of a boot's Machine, PoolbootConfig, host or Node.
func (b Boot) hasName(name string) bool {
	return name == b.Machine || name == b.PoolbootConfig || name == b.Host || name == b.Node
}

// selected returns the boots that the command line names.
func (o *options) selected(boots []Boot) []Boot {
	if len(o.names) == 0 {
		return boots
	}
	return slices.DeleteFunc(boots, func(b Boot) bool { return !slices.ContainsFunc(o.names, b.hasName) })
}

// resolveNames replaces the names of hosts that no boot has recorded by those of the Machines that use them, which have
// the names of their Metal3Machines. Its error has the names that no boot has.
func (o *options) resolveNames(ctx context.Context, from client.Reader, boots []Boot, namespace string) (err error) {
	o.names = slices.Clone(o.names)
	for i, name := range o.names {
		if slices.ContainsFunc(boots, func(b Boot) bool { return b.hasName(name) }) {
			continue
		}
		bmh := &bmov1alpha1.BareMetalHost{}
		if namespace != "" && from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, bmh) == nil {
			why := "no Machine uses it"
			if consumer := bmh.Spec.ConsumerRef; consumer != nil {
				if slices.ContainsFunc(boots, func(b Boot) bool { return b.Machine == consumer.Name }) {
					o.names[i] = consumer.Name
					continue
				}
				why = fmt.Sprintf("%s %s uses it, without a PoolbootConfig", consumer.Kind, consumer.Name)
			}
			err = errors.Join(err, fmt.Errorf("BareMetalHost %s/%s has no boot: %s", namespace, name, why))
			continue
		}
		scope := "any namespace"
		if namespace != "" {
			scope = "namespace " + namespace
		}
		unknown := fmt.Errorf("no PoolbootConfig in %s has the name, Machine, host or Node %q: correct the name, or set --namespace", scope, name)
		err = errors.Join(err, &cli.UnknownName{Name: name, Err: unknown})
	}
	return err
}

// List returns the boots of PoolbootConfigs in the order of their namespaces and Machines.
func List(configs []bootstrapv1.PoolbootConfig) []Boot {
	boots := make([]Boot, len(configs))
	for i := range configs {
		boots[i] = newBoot(&configs[i])
	}
	slices.SortFunc(boots, func(a, b Boot) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.PoolbootConfig, b.PoolbootConfig))
	})
	return boots
}

func newBoot(config *bootstrapv1.PoolbootConfig) Boot {
	b := Boot{
		Namespace: config.Namespace, Machine: record.MachineName(config), PoolbootConfig: config.Name,
		Cluster: record.ClusterName(config), Node: config.Status.NodeRef.Name,
		Pool: config.Status.PoolRole, Configuration: config.Status.Boot.ServedConfiguration.Name, Addresses: ListAddresses(config),
		Created: config.CreationTimestamp.Time, Message: outlook.Message(config), Timeline: record.Moments(config),
		needsPerson: outlook.FindNeedsPerson(config) != nil,
	}
	if record.IsAsFound(config) {
		b.Configuration = agentv1.AsFoundConfig
	}
	b.Stage, b.Since = record.StageOf(config)
	if updated := conditions.Get(config, bootstrapv1.UpdatedCondition); updated != nil {
		b.Update, b.Desired = updated.Reason, config.Status.Update.Desired.Name
		update := "update " + updated.Reason + ": " + updated.Message
		switch {
		case b.Stage == record.StageAsFound && !b.needsPerson:
			b.Message = update
		case updated.Status != metav1.ConditionFalse:
		case b.Stage == record.StageReady:
			b.Message = update
		case b.Stage.IsAfterBoot():
			b.Message += "; " + update
		}
	}
	switch {
	case config.Status.HostRef.IsDefined():
		b.Host = config.Status.HostRef.Name
	case record.IsMachineless(config):
		b.Host = config.Spec.Host.NodeName
	}
	return b
}

// Address is an address from which a host's token was used.
type Address struct {
	Address string `json:"address"`
	// Refused is true when the token is bound to other addresses.
	Refused bool `json:"refused"`
}

func (a Address) String() string {
	if a.Refused {
		return a.Address + "(refused)"
	}
	return a.Address
}

// ListAddresses returns the addresses from which a host's token was used, the first one first. Of a host that enrolled
// it is the address that it enrolled from.
func ListAddresses(config *bootstrapv1.PoolbootConfig) []Address {
	if config.Spec.Enrolled() != nil {
		return []Address{{Address: config.Annotations[bootstrapv1.EnrolledFromAnnotation]}}
	}
	addresses := []Address{} // never null
	for _, address := range record.TokenAddresses(config) {
		addresses = append(addresses, Address{Address: address, Refused: record.RefusesAddress(config, address)})
	}
	return addresses
}

// JoinAddresses returns addresses as one text.
func JoinAddresses(addresses []Address, separator string) string {
	texts := make([]string, len(addresses))
	for i, address := range addresses {
		texts[i] = address.String()
	}
	return strings.Join(texts, separator)
}
