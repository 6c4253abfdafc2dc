package input

import (
	"cmp"
	"context"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	Configs       = namesIn[bootstrapv1.PoolbootConfigList]((*bootstrapv1.PoolbootConfig).GetName)
	Machines      = namesIn[bootstrapv1.PoolbootConfigList](record.MachineName)
	Nodes         = namesIn[bootstrapv1.PoolbootConfigList](func(c *bootstrapv1.PoolbootConfig) string { return c.Status.NodeRef.Name })
	AdoptedNodes  = namesIn[bootstrapv1.PoolbootConfigList](adoptedNode)
	MachineNodes  = namesIn[clusterv1.MachineList](func(m *clusterv1.Machine) string { return m.Status.NodeRef.Name })
	Hosts         = namesIn[bmov1alpha1.BareMetalHostList]((*bmov1alpha1.BareMetalHost).GetName)
	Enrollments   = namesIn[poolv1.EnrollmentList]((*poolv1.Enrollment).GetName)
	Clusters      = namesIn[clusterv1.ClusterList]((*clusterv1.Cluster).GetName)
	allNamespaces = namesIn[corev1.NamespaceList]((*corev1.Namespace).GetName)
)

// adoptedNode returns the Node that a PoolbootConfig adopts, or "".
func adoptedNode(config *bootstrapv1.PoolbootConfig) string {
	if record.IsAdopted(config) {
		return config.Spec.Host.NodeName
	}
	return ""
}

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

// kubectlUsage matches the first word of the text of a flag.
var kubectlUsage = regexp.MustCompile(`^[A-Z][a-z]+`)

// AddConnectionFlags defines the flags of a connection, and what they complete to.
func AddConnectionFlags(cmd *cobra.Command, to Connection) {
	before := map[string]bool{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) { before[f.Name] = true })
	to.AddFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if before[f.Name] {
			return
		}
		f.Usage = strings.TrimSuffix(kubectlUsage.ReplaceAllStringFunc(f.Usage, strings.ToLower), ".") // as ours
		f.Usage = strings.TrimPrefix(f.Usage, "the ")
		complete := cobra.NoFileCompletions
		switch f.Name {
		case clientcmd.FlagNamespace:
			f.Usage = "namespace of the objects (default that of the context)"
			complete = CompleteFromCluster(to, Namespaces)
		case clientcmd.FlagContext:
			complete = completeFromKubeconfig(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.Contexts)) })
		case clientcmd.FlagAuthInfoName:
			complete = completeFromKubeconfig(func(c *clientcmdapi.Config) []string { return slices.Collect(maps.Keys(c.AuthInfos)) })
		case clientcmd.RecommendedConfigPathFlag, clientcmd.FlagCAFile, clientcmd.FlagCertFile, clientcmd.FlagKeyFile:
			complete = nil // files
		}
		if complete != nil {
			cli.AddCompletion(cmd, f.Name, complete)
		}
	})
}

// completeFromKubeconfig completes to names in the kubeconfig files.
func completeFromKubeconfig(list func(*clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		files := clientcmd.NewDefaultClientConfigLoadingRules()
		files.ExplicitPath = cmd.Flag(clientcmd.RecommendedConfigPathFlag).Value.String()
		config, err := files.Load()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(list(config), typed), cobra.ShellCompDirectiveNoFileComp
	}
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

// completionTimeout is how long a completion waits for the cluster.
const completionTimeout = 3 * time.Second

// CompleteFromCluster completes to names in the management cluster: those of the first list that has any with the typed
// text. Without an answer in time, or the right to read them, it completes to nothing, and prints no error into the
// command line.
func CompleteFromCluster(to Connection, lists ...Names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		found := make(chan []cobra.Completion, 1)
		go func() { found <- completeFromCluster(ctx, cmd, to, lists, typed) }() // connecting can't be canceled
		select {
		case words := <-found:
			return words, cobra.ShellCompDirectiveNoFileComp
		case <-ctx.Done():
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
}

func completeFromCluster(ctx context.Context, cmd *cobra.Command, to Connection, lists []Names, typed string) (words []cobra.Completion) {
	cluster, err := to.Open()
	if err != nil {
		return nil
	}
	namespace := cluster.Namespace
	if flag := cmd.Flags().Lookup("namespace"); flag != nil && flag.Changed {
		namespace = flag.Value.String() // also where the flag is not the connection's
	}
	if all := cmd.Flags().Lookup("all-namespaces"); all != nil && all.Value.String() == "true" {
		namespace = ""
	}
	for _, list := range lists {
		names, _ := list(ctx, cluster, namespace) // an error has no place on the command line
		if words = matching(names, typed); len(words) > 0 {
			break
		}
	}
	return words
}

// Complete completes to names in the files of the command line: those of the flag, and the arguments after the first
// ones that are no files. Without files it completes to names in the management cluster, if there is a connection.
func (f *Files) Complete(notFiles int, list Names, to Connection) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		names := append(slices.Clone(f.Names), args[min(notFiles, len(args)):]...)
		if len(names) == 0 && to != nil {
			return CompleteFromCluster(to, list)(cmd, args, typed)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == Stdin })
		quiet := *f
		quiet.Streams.ErrOut, quiet.Validate = io.Discard, false
		objects, err := quiet.Read(names...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		found, _ := list(cmd.Context(), objects, "")
		return matching(found, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// matching returns the names that begin with the typed text, each once and in order.
func matching(names []string, typed string) []cobra.Completion {
	words := map[string]bool{}
	for _, name := range names {
		if name != "" && strings.HasPrefix(name, typed) {
			words[name] = true
		}
	}
	return slices.Sorted(maps.Keys(words))
}
