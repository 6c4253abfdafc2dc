// Package adopt has the commands for hosts that Poolboot did not boot: kubectl poolboot adopt prints the
// PoolbootConfigs that adopt their Nodes, and kubectl poolboot install-agent what installs the agent on them.
package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/schema"
)

var configKind = bootstrapv1.GroupVersion.WithKind("PoolbootConfig")

// options are those of the command adopt.
type options struct {
	streams                  genericiooptions.IOStreams
	namespace, cluster, role string
	follow                   bool
	output                   cli.Output
}

// New returns the command adopt.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use:   "adopt NODE... --cluster CLUSTER --pool ROLE [--follow]",
		Short: "Print PoolbootConfigs that adopt Nodes",
		Long: `Print PoolbootConfigs that adopt Nodes which Poolboot did not boot. A host stays as it was found, and its agent reports
what the pool would change on it. With --follow, or once spec.host.adoption is Follow, the Node gets the labels of the
pool, and the host its configuration.

The command creates no object: apply what it prints. Then, install-agent prints what installs the agent on the host.`,
		Example: `  # Adopt two Nodes for the pool infra, and change nothing on their hosts
  kubectl poolboot adopt edge-7 edge-8 -n metal --cluster site --pool infra | kubectl apply -f -

  # Adopt a Node of the control plane
  kubectl poolboot adopt cp-1 -n metal --cluster site --pool control-plane | kubectl apply -f -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name one or more Nodes: kubectl get nodes lists those of the workload cluster")
			}
			return nil
		},
		ValidArgsFunction:     input.CompleteFromCluster(to, input.MachineNodes),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			configs := make([]runtime.Object, len(args))
			for i, name := range args {
				config, err := o.adopt(strings.TrimPrefix(name, "node/")) // as kubectl get -o name prints them
				if err != nil {
					return err
				}
				configs[i] = config
			}
			if err := o.output.PrintManifest(o.streams.Out, configs...); err != nil {
				return err
			}
			o.warn(cmd.Context(), to, configs)
			return nil
		},
	}
	cli.AddPoolFlag(cmd, &o.role, input.CompleteFromCluster(to, input.PoolRoles))
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "Cluster of the Nodes")
	cmd.Flags().BoolVar(&o.follow, "follow", false, "put the Nodes in the pool at once, without a look at what changes")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "namespace of the objects; without it, kubectl apply sets the namespace")
	o.output.AddFlag(cmd, "YAML", cli.FormatJSON, cli.FormatYAML)
	utilruntime.Must(cmd.MarkFlagRequired("cluster"))
	cli.AddCompletion(cmd, "cluster", input.CompleteFromCluster(to, input.PoolClusters))
	cli.AddCompletion(cmd, "namespace", input.CompleteFromCluster(to, input.Namespaces))
	return cmd
}

// adopt returns the PoolbootConfig that adopts a Node, or what the API server would refuse in it.
func (o *options) adopt(node string) (*bootstrapv1.PoolbootConfig, error) {
	policy := bootstrapv1.AdoptionPreview
	if o.follow {
		policy = bootstrapv1.AdoptionFollow
	}
	config := record.NewAdoption(client.ObjectKey{Namespace: o.namespace, Name: node}, o.cluster, node, o.role, policy)
	config.SetGroupVersionKind(configKind)
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
	utilruntime.Must(err)
	errs := schema.Validate(configKind, written)
	if len(errs) == 0 {
		return config, nil
	}
	switch errs[0].Field {
	case "spec.poolRole":
		errs[0].Field = "--pool (spec.poolRole)"
	case "metadata.labels":
		errs[0].Field = "--cluster (metadata.labels)"
	default:
		return nil, fmt.Errorf("the Node %q: %w", node, errs[0])
	}
	return nil, errs[0]
}

// warn warns on standard error of what would hold the adoptions back, if the management cluster can be read. Conditions
// report the same, but later.
func (o *options) warn(ctx context.Context, to input.Connection, configs []runtime.Object) {
	cluster, err := to.Open()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, input.Timeout)
	defer cancel()
	namespace := cmp.Or(o.namespace, cluster.Namespace)
	say := func(format string, args ...any) {
		_, _ = fmt.Fprintf(o.streams.ErrOut, "warning: "+format+"\n", args...)
	}
	var pools poolv1.MachineConfigPoolList
	if err := cluster.List(ctx, &pools, client.InNamespace(namespace)); err != nil {
		return
	}
	ofCluster := slices.DeleteFunc(pools.Items, func(p poolv1.MachineConfigPool) bool { return p.Spec.ClusterName != o.cluster })
	if _, err := pool.OfRole(ofCluster, o.role); err != nil {
		say("no Node is adopted yet: --cluster %s: %s", cli.Printable(o.cluster), cli.Printable(err.Error()))
	}
	var existing bootstrapv1.PoolbootConfigList
	if err := cluster.List(ctx, &existing, client.InNamespace(namespace)); err != nil {
		return
	}
	workload, unreadable := cluster.Workload(ctx, client.ObjectKey{Namespace: namespace, Name: o.cluster})
	for _, object := range configs {
		config, node := object.(*bootstrapv1.PoolbootConfig), &corev1.Node{}
		if unreadable == nil {
			err := workload.Get(ctx, client.ObjectKey{Name: config.Spec.Host.NodeName}, node)
			switch isControlPlane := pool.IsControlPlane(node.Labels); {
			case apierrors.IsNotFound(err):
				say("Node %s does not exist in Cluster %s, and is adopted when it joins: if it is not to join, correct its name", config.Spec.Host.NodeName, cli.Printable(o.cluster))
			case err != nil, isControlPlane == (o.role == poolv1.RoleControlPlane):
			case isControlPlane:
				say("Node %s is one of the control plane, which can only be in the pool %s: set --pool %[2]s", node.Name, poolv1.RoleControlPlane)
			default:
				say("Node %s is not one of the control plane: set --pool to another pool", node.Name)
			}
		}
		for i := range existing.Items {
			o.warnOfExisting(config, &existing.Items[i], say)
		}
	}
}

// warnOfExisting warns of an existing PoolbootConfig with the name of a new one, or for the same Node.
func (o *options) warnOfExisting(config, existing *bootstrapv1.PoolbootConfig, say func(string, ...any)) {
	host, node := existing.Spec.Host, config.Spec.Host.NodeName
	const remedy = "it can't adopt the Node too: delete it first if nothing needs it"
	switch {
	case existing.Name != config.Name && record.IsAdopted(existing) && host.NodeName == node && record.ClusterName(existing) == o.cluster:
		say("PoolbootConfig %s adopts the Node %s already: change that one", existing.Name, node)
	case existing.Name != config.Name:
	case !record.IsAdopted(existing):
		say("PoolbootConfig %s exists and is that of a host that Poolboot boots, so %s", config.Name, remedy)
	case host.NodeName != node:
		say("PoolbootConfig %s exists and adopts the Node %s, so %s", config.Name, cli.Printable(host.NodeName), remedy)
	case record.ClusterName(existing) != o.cluster:
		say("PoolbootConfig %s exists and belongs to the Cluster %s, so %s", config.Name, cli.Printable(record.ClusterName(existing)), remedy)
	case host.Adoption == bootstrapv1.AdoptionFollow && !o.follow:
		say("the host of Node %s follows its pool, and returns to what it was: set --follow to keep it in the pool", config.Name)
	}
}
