package input

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// Names lists the words that the shell completes to. Empty words and duplicates are removed later.
type Names func(ctx context.Context, from client.Reader, namespace string) ([]string, error)

// Names of objects.
var (
	PoolRoles     = namesIn[poolv1.MachineConfigPoolList](func(p *poolv1.MachineConfigPool) string { return p.Spec.PoolRole })
	PoolNames     = namesIn[poolv1.MachineConfigPoolList]((*poolv1.MachineConfigPool).GetName)
	PoolClusters  = namesIn[poolv1.MachineConfigPoolList](func(p *poolv1.MachineConfigPool) string { return p.Spec.ClusterName })
	Boots         = namesIn[bootstrapv1.PoolbootConfigList](func(c *bootstrapv1.PoolbootConfig) string { return cmp.Or(record.MachineName(c), c.Name) })
	Machines      = namesIn[bootstrapv1.PoolbootConfigList](record.MachineName)
	Nodes         = namesIn[bootstrapv1.PoolbootConfigList](func(c *bootstrapv1.PoolbootConfig) string { return c.Status.NodeRef.Name })
	Hosts         = namesIn[bmov1alpha1.BareMetalHostList]((*bmov1alpha1.BareMetalHost).GetName)
	Enrollments   = namesIn[poolv1.EnrollmentList]((*poolv1.Enrollment).GetName)
	Clusters      = namesIn[clusterv1.ClusterList]((*clusterv1.Cluster).GetName)
	allNamespaces = namesIn[corev1.NamespaceList]((*corev1.Namespace).GetName)
)

// Namespaces lists the namespaces of the cluster, whatever --namespace is.
func Namespaces(ctx context.Context, from client.Reader, _ string) ([]string, error) {
	return allNamespaces(ctx, from, "")
}

// namesIn lists a name of each object of a kind.
func namesIn[L any, T any, P interface {
	*L
	client.ObjectList
}](name func(*T) string) Names {
	return func(ctx context.Context, from client.Reader, namespace string) (names []string, err error) {
		list := P(new(L))
		if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			names = append(names, name(any(item).(*T)))
			return nil
		})
		return names, err
	}
}

// AddConnectionFlags defines the flags of a connection, and completes the namespace.
func AddConnectionFlags(cmd *cobra.Command, to Connection) {
	to.AddFlags(cmd.Flags())
	cli.AddCompletion(cmd, "namespace", CompleteFromCluster(to, Namespaces))
}

// CompleteFirst completes the first argument; others says what the shell does with those after it.
func CompleteFirst(complete cobra.CompletionFunc, others cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, others
		}
		return complete(cmd, args, typed)
	}
}

// CompleteFromCluster completes to names in the management cluster. Without the right to read them it completes to
// nothing, and prints no error into the command line.
func CompleteFromCluster(to Connection, list Names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		cluster, err := to.Open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		namespace := cluster.Namespace
		if flag := cmd.Flags().Lookup("namespace"); flag != nil && flag.Changed {
			namespace = flag.Value.String() // also where the flag is not the connection's
		}
		if all := cmd.Flags().Lookup("all-namespaces"); all != nil && all.Value.String() == "true" {
			namespace = ""
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), Timeout)
		defer cancel()
		return complete(ctx, list, cluster, namespace, typed)
	}
}

// Complete completes to names in the files of the command line: those of the flag, and the arguments after the first
// ones that are no files. Without files it completes to names in the management cluster, if there is a connection.
func (f *Files) Complete(notFiles int, list Names, to Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		names := slices.DeleteFunc(append(slices.Clone(f.Names), args[min(notFiles, len(args)):]...), func(name string) bool { return name == Stdin })
		if len(names) == 0 && to != nil {
			return CompleteFromCluster(to, list)(cmd, args, typed)
		}
		quiet := *f
		quiet.Streams.ErrOut, quiet.Validate = io.Discard, false
		objects, err := quiet.Read(names...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd.Context(), list, objects, "", typed)
	}
}

// complete returns the names that begin with the typed text, each once and in order.
func complete(ctx context.Context, list Names, from client.Reader, namespace, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	names, _ := list(ctx, from, namespace) // an error has no place on the command line
	matching := map[string]bool{}
	for _, name := range names {
		if name != "" && strings.HasPrefix(name, typed) {
			matching[name] = true
		}
	}
	return slices.Sorted(maps.Keys(matching)), cobra.ShellCompDirectiveNoFileComp
}
