// Package diff is the command kubectl poolboot diff: it prints what objects in files would change of the pools in a
// cluster, of their Nodes and of the Pods on these.
package diff

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// Exit codes, which are those of kubectl diff.
const (
	exitDifferent = 1
	exitFailure   = 2
)

// options are those of the command line.
type options struct {
	streams    genericiooptions.IOStreams
	connection input.Connection
	files      input.Files
	cluster    string
	output     cli.Output
	// node is the Node of an adopted host that is compared instead of files.
	node string
}

// errDifferent is the error of a command that has printed a difference.
var errDifferent = exec.CodeExitError{Code: exitDifferent, Err: errors.New("")}

// New returns the command diff.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &options{streams: streams, connection: to, files: input.Files{Streams: streams, Validate: true}}
	cmd := &cobra.Command{
		Use:   "diff -f FILE... | --node NODE",
		Short: "Show what files would change in the pools of a cluster, or a pool on an adopted host",
		Long: `Show what MachineConfigPools and MachineConfigs in files would change in the pools of a cluster, before you apply them.

For each pool whose rendered config would change: the Machines and Nodes in the pool, what happens to each running host
with an agent (None, Reload, Restart, Reboot or Replace), whether and why a host must reboot, by the disruption policy
of the pool, and the changes of kernel arguments, extensions, files, units, drop-ins and users. Passwords, and contents
of files that are not world-readable, are not shown.

For each pool whose spec would change: each field, and for nodeSelector and node the existing Nodes that get the change,
the Nodes that keep another value, and the Pods that a taint with the effect NoExecute evicts. Nodes and Pods are read
from the workload cluster, with the Cluster's kubeconfig Secret. The output reports when they can't be read.

Objects in files are merged with those in the cluster as kubectl apply merges them. Nothing is written.

With --node, show what the pool of a host that was adopted and is as it was found would change on it, as its agent
reports it: paths, units, accounts and kernel arguments with how they differ, and the strongest effect on the host.

A pool that can't be rendered whatever the files have is noted, and not compared. With -o markdown, the output is a
comment for a merge request, in which nothing of the files and clusters is markup.

Exit codes, as those of kubectl diff: 0 without a difference, 1 with one, 2 for an error, also of a single pool with the
files.`,
		Example: `  # What would this MachineConfig change?
  kubectl poolboot diff -f machineconfigs/51-infra.yaml

  # For one cluster only
  kubectl poolboot diff -f machineconfigs -n edge --cluster infra-1

  # A comment for a merge request
  kubectl poolboot diff -f machineconfigs -o markdown > comment.md

  # What would the pool of an adopted host change on it?
  kubectl poolboot diff --node edge-7 -n metal

  # Apply only files that change no pool
  kubectl poolboot diff -f machineconfigs && kubectl apply -f machineconfigs`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.node == "":
				return o.run(cmd.Context(), args)
			case len(args) > 0:
				return fmt.Errorf("%q: --node compares no files: leave out one of both", args[0])
			}
			return o.runNode(cmd.Context())
		},
	}
	cli.SetFailureCode(cmd, exitFailure)
	o.files.AddFlag(cmd, "filename", "f", "Poolboot's MachineConfigPools and MachineConfigs")
	cmd.Flags().StringVar(&o.node, "node", "", "name of the Node of an adopted host that is as it was found")
	cmd.MarkFlagsOneRequired("filename", "node")
	o.output.AddFlag(cmd, "text", formatMarkdown)
	cmd.MarkFlagsMutuallyExclusive("filename", "node")
	cmd.MarkFlagsMutuallyExclusive("output", "node")
	cli.AddCompletion(cmd, "node", input.CompleteFromCluster(to, input.AdoptedNodes))
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "Cluster of the pools, as NAME or NAMESPACE/NAME")
	input.AddConnectionFlags(cmd, to)
	cli.AddCompletion(cmd, "cluster", input.CompleteFromCluster(to, input.PoolClusters))
	return cmd
}

func (o *options) run(ctx context.Context, args []string) error {
	objects, err := o.files.Objects(args)
	if err != nil {
		return err
	}
	cluster, err := o.connection.Open()
	if err != nil {
		return err
	}
	if err := setNamespaces(objects, cluster); err != nil {
		return err
	}
	differences, notes, err := compareAll(ctx, objects, cluster, o.cluster)
	for _, note := range notes {
		fmt.Fprintln(o.streams.ErrOut, "note:", note)
	}
	for i, difference := range differences {
		if i > 0 {
			fmt.Fprintln(o.streams.Out)
		}
		print := difference.print
		if o.output.Format == formatMarkdown {
			print = difference.printMarkdown
		}
		if err := print(o.streams.Out); err != nil {
			return err
		}
	}
	if err == nil && len(differences) == 0 && o.output.Format == formatMarkdown {
		fmt.Fprintln(o.streams.Out, "No pool changes.")
	}
	if err == nil && len(differences) > 0 {
		return errDifferent
	}
	return err
}

// setNamespaces gives every object without a namespace that of the command line, as kubectl does, and refuses objects
// of OpenShift.
func setNamespaces(objects *input.Objects, cluster *input.Cluster) error {
	for _, object := range input.Of[client.Object](objects) {
		switch object.(type) {
		case *poolv1.MachineConfigPool, *poolv1.MachineConfig:
		default:
			continue
		}
		kind := reflect.TypeOf(object).Elem().Name()
		switch own := object.GetNamespace(); {
		case object.GetObjectKind().GroupVersionKind().Group == input.OpenShift.Group:
			return fmt.Errorf("%s %q is an OpenShift object: convert it first, with kubectl poolboot convert", kind, object.GetName())
		case own == "":
			object.SetNamespace(cluster.Namespace)
		case cluster.NamespaceChosen && own != cluster.Namespace:
			return fmt.Errorf("%s %q is of the namespace %s, and --namespace is %s: leave out the flag, or correct one of them", kind, object.GetName(), own, cluster.Namespace)
		}
	}
	return nil
}
