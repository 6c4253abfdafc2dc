package main

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// names lists what the shell may complete a word to. What is empty or there twice is left out later.
type names func(ctx context.Context, live client.Reader, namespace string) ([]string, error)

// offerConnection defines the flags of a connection, and has the shell complete the namespace.
func offerConnection(cmd *cobra.Command, to connection) {
	to.offer(cmd.Flags())
	completeFlag(cmd, "namespace", fromCluster(to, namespaceNames))
}

func completeFlag(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	must(cmd.RegisterFlagCompletionFunc(flag, complete))
}

// onlyFirst completes the first argument, and files after it when others are files.
func onlyFirst(complete cobra.CompletionFunc, others cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, others
		}
		return complete(cmd, args, typed)
	}
}

// fromCluster completes to what is live. A user who can't read that gets nothing, and no error on the command line.
func fromCluster(to connection, list names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		live, namespace, _, err := to.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		if of := cmd.Flags().Lookup("namespace"); of != nil && of.Changed {
			namespace = of.Value.String() // also where the flag is not the connection's
		}
		if all := cmd.Flags().Lookup("all-namespaces"); all != nil && all.Value.String() == "true" {
			namespace = ""
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), patience)
		defer cancel()
		found, err := list(ctx, live, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(found, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// fromFiles completes to what the files of a command line hold, which are those of a flag and the arguments after the
// first ones that are names, and to what is live where there are none; without a connection that is nothing.
func (r *reader) fromFiles(files *[]string, first int, list func(*objects) []string, otherwise cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		named := slices.DeleteFunc(append(slices.Clone(*files), args[min(first, len(args)):]...), func(name string) bool { return name == stdin })
		if len(named) == 0 && otherwise != nil {
			return otherwise(cmd, args, typed)
		}
		quiet := *r
		quiet.streams.ErrOut = io.Discard
		found, err := quiet.read(named...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return matching(list(found), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// matching are the words that begin with what is typed, each once and in order.
func matching(words []string, typed string) []cobra.Completion {
	found := map[string]bool{}
	for _, word := range words {
		if word != "" && strings.HasPrefix(word, typed) {
			found[word] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// of lists what a function gives for each live object of a kind.
func of[L any, T any, P interface {
	*L
	client.ObjectList
}](items func(P) []T, give func(*T) []string) names {
	return func(ctx context.Context, live client.Reader, namespace string) (found []string, err error) {
		list := P(new(L))
		if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		objects := items(list)
		for i := range objects {
			found = append(found, give(&objects[i])...)
		}
		return found, nil
	}
}

func configsOf(l *bootstrapv1.PoolbootConfigList) []bootstrapv1.PoolbootConfig { return l.Items }
func poolsOf(l *poolv1.MachineConfigPoolList) []poolv1.MachineConfigPool       { return l.Items }

// What is completed.
var (
	bootNames    = of(configsOf, func(c *bootstrapv1.PoolbootConfig) []string { return []string{knownAs(c)} })
	machineNames = of(configsOf, func(c *bootstrapv1.PoolbootConfig) []string { return []string{bootOf(c).Machine} })
	nodeNames    = of(configsOf, func(c *bootstrapv1.PoolbootConfig) []string { return []string{bootOf(c).Node} })
	liveRoles    = of(poolsOf, func(p *poolv1.MachineConfigPool) []string { return []string{p.Spec.PoolRole} })
	liveClusters = of(poolsOf, func(p *poolv1.MachineConfigPool) []string { return []string{p.Spec.ClusterName} })
	hostNames    = of(func(l *bmov1alpha1.BareMetalHostList) []bmov1alpha1.BareMetalHost { return l.Items },
		func(h *bmov1alpha1.BareMetalHost) []string { return []string{h.Name} })
	enrollmentNames = of(func(l *poolv1.EnrollmentList) []poolv1.Enrollment { return l.Items },
		func(e *poolv1.Enrollment) []string { return []string{e.Name} })
	clusterNames = of(func(l *clusterv1.ClusterList) []clusterv1.Cluster { return l.Items },
		func(c *clusterv1.Cluster) []string { return []string{c.Name} })
	allNamespaces = of(func(l *corev1.NamespaceList) []corev1.Namespace { return l.Items },
		func(n *corev1.Namespace) []string { return []string{n.Name} })
)

// namespaceNames are those of the cluster, whatever the namespace of the command line is.
func namespaceNames(ctx context.Context, live client.Reader, _ string) ([]string, error) {
	return allNamespaces(ctx, live, "")
}

// knownAs is by what a boot is known: its Machine or, without one, its record.
func knownAs(config *bootstrapv1.PoolbootConfig) string {
	if machine := bootOf(config).Machine; machine != "" {
		return machine
	}
	return config.Name
}

func rolesIn(found *objects) (roles []string) {
	for i := range found.pools {
		roles = append(roles, found.pools[i].Spec.PoolRole)
	}
	return roles
}

func clustersIn(found *objects) (clusters []string) {
	for _, c := range found.clusters() {
		clusters = append(clusters, c.name)
	}
	return clusters
}
