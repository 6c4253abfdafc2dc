// Package input reads the objects that commands answer from, out of files or out of a cluster, and serves both as a
// client.Reader: a command that takes both has one function that gathers what it needs. It decides nothing about pools
// or Nodes.
package input

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// Source is where a command reads objects: files, or the management cluster.
type Source struct {
	client.Reader
	// Namespace is that of the objects that the command line names; empty for files, where names are enough.
	Namespace string
	// InFiles is true for files, which do not need to contain everything.
	InFiles bool
	// subject starts messages about what the source contains, with the verb.
	subject string
	// Workload returns a reader of a workload cluster's objects, of which files contain Nodes.
	Workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
}

// Source returns the objects in files as a source.
func (o *Objects) Source() *Source {
	return &Source{Reader: o, InFiles: true, subject: "the files contain",
		Workload: func(context.Context, client.ObjectKey) (client.Reader, error) { return o, nil }}
}

// Source returns the cluster as a source.
func (c *Cluster) Source() *Source {
	return &Source{Reader: c, Namespace: c.Namespace, subject: "namespace " + c.Namespace + " contains", Workload: c.Workload}
}

// OpenSource returns the files of the command line or, without any, the management cluster.
func OpenSource(files *Files, args []string, to Connection) (*Source, error) {
	if len(files.Names)+len(args) > 0 {
		objects, err := files.Objects(args)
		if err != nil {
			return nil, err
		}
		return objects.Source(), nil
	}
	cluster, err := to.Open()
	if err != nil {
		return nil, err
	}
	return cluster.Source(), nil
}

// GetNamed reads the object with a name that a user entered, from the namespace of the source.
func (s *Source) GetNamed(ctx context.Context, name string, object client.Object) error {
	err := s.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, object)
	if apierrors.IsNotFound(err) && !s.InFiles {
		return &cli.UnknownName{Name: name, Err: fmt.Errorf("%w: correct the name, or set --namespace", err)}
	}
	return err
}

// Get reads an object. Its error names the object.
func (s *Source) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := s.Reader.Get(ctx, key, object, options...)
	if err == nil || s.InFiles {
		return err
	}
	return fmt.Errorf("get %s %s: %w", reflect.TypeOf(object).Elem().Name(), klog.KRef(key.Namespace, key.Name), err)
}

// Locate adds the place in the files to an error about an object in them.
func (s *Source) Locate(err error) error {
	objects, inFiles := s.Reader.(*Objects)
	if !inFiles || err == nil {
		return err
	}
	return objects.Locate(objects.explainPools(err))
}

// explainPools returns an error about pools with each of them and its fields. Other errors are returned as they are.
func (o *Objects) explainPools(err error) error {
	var selector *pool.SelectorError
	var copies *pool.DuplicateError
	var kubelet *pool.KubeletError
	switch {
	case errors.As(err, &copies):
		var all []error
		for _, name := range copies.Pools[1:] {
			all = append(all, fmt.Errorf("%s %q: spec.poolRole: MachineConfigPool %q has the role %q too: change or remove one of them", PoolKind.Kind, name, copies.Pools[0], copies.Role))
		}
		return errors.Join(all...)
	case errors.As(err, &kubelet):
		return o.Refuse(PoolKind.Kind, kubelet.Pool, kubelet.Explain())
	case errors.As(err, &selector):
		for _, p := range Of[*poolv1.MachineConfigPool](o) {
			of := map[string]*metav1.LabelSelector{"spec.nodeSelector": p.Spec.NodeSelector, "spec.machineConfigSelector": p.Spec.MachineConfigSelector}[selector.Path]
			if p.Name == selector.Pool {
				errs := metav1validation.ValidateLabelSelector(of, metav1validation.LabelSelectorValidationOptions{}, field.NewPath(selector.Path))
				return cmp.Or(o.Refuse(PoolKind.Kind, p.Name, errs), err)
			}
		}
	}
	return err
}

// LocateText adds the place in the files to a remark about an object in them.
func (s *Source) LocateText(text string) string {
	if objects, inFiles := s.Reader.(*Objects); inFiles {
		return objects.LocateText(text).Error()
	}
	return text
}

// ExplainMissing adds the remedy to the error that there is no pool with a role, which names --pool when the flag has
// this role. Other errors are returned as they are.
func (s *Source) ExplainMissing(err error, role string) error {
	missing := (*pool.NotFoundError)(nil)
	if !errors.As(err, &missing) {
		return err
	}
	switch {
	case missing.Role == Master:
		err = errors.New(useControlPlane)
	case s.InFiles:
		err = fmt.Errorf("the files contain no MachineConfigPool of role %q: correct the role, or add a file with the pool; "+
			"kubectl get pbpool,pbmconf -o yaml prints those of a cluster", missing.Role)
	}
	if missing.Role == role {
		err = &cli.UnknownName{Name: role, Err: fmt.Errorf("--pool %s: %w", role, err)}
	}
	return err
}

// AddClusterFlag defines --cluster and its completion.
func AddClusterFlag(cmd *cobra.Command, cluster *string, complete cobra.CompletionFunc) {
	cmd.Flags().StringVar(cluster, "cluster", "",
		"Cluster whose pools are used, as NAME or NAMESPACE/NAME, when there are pools of several")
	cli.AddCompletion(cmd, "cluster", complete)
}

// Pools are the MachineConfigPools of one Cluster.
type Pools struct {
	Items []poolv1.MachineConfigPool
	// Cluster is empty when no pool names one. Its namespace is empty when no pool that names it has one.
	Cluster klog.ObjectRef
}

// Pools returns the MachineConfigPools of one Cluster. The value of --cluster may be empty when there are pools of one
// Cluster only.
//
// Files may leave the namespace to kubectl apply, and OpenShift's kinds have neither namespace nor Cluster: such
// objects count for every Cluster.
func (s *Source) Pools(ctx context.Context, namespace, cluster string) (*Pools, error) {
	var list poolv1.MachineConfigPoolList
	if err := s.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools of namespace %s: %w", namespace, err)
	}
	all := listClusters(list.Items)
	chosen := all
	if cluster != "" {
		chosen = slices.DeleteFunc(slices.Clone(all), func(c klog.ObjectRef) bool { return cluster != c.Name && cluster != c.String() })
	}
	switch {
	case len(chosen) > 1:
		return nil, fmt.Errorf("%s pools of the clusters %s: choose one with --cluster", s.subject, joinNames(chosen))
	case len(chosen) == 0 && cluster != "" && len(all) > 0:
		return nil, fmt.Errorf("%s no pool of the cluster %q, but of %s: correct --cluster", s.subject, cluster, joinNames(all))
	case len(chosen) == 0 && cluster != "":
		return nil, fmt.Errorf("%s no pool that names a cluster: leave out --cluster %s", s.subject, cluster)
	case len(chosen) == 0:
		return &Pools{Items: list.Items}, nil
	}
	return &Pools{Cluster: chosen[0], Items: slices.DeleteFunc(list.Items, func(p poolv1.MachineConfigPool) bool {
		return isOtherNamespace(chosen[0], p.Namespace) || p.Spec.ClusterName != "" && p.Spec.ClusterName != chosen[0].Name
	})}, nil
}

// AddWorker adds OpenShift's built-in pool worker to pools or MachineConfigs of OpenShift in files that leave it out:
// every OpenShift cluster has it, custom pools inherit from it, and it selects MachineConfigs.
func (s *Source) AddWorker(pools *Pools) {
	objects, inFiles := s.Reader.(*Objects)
	if _, err := pool.OfRole(pools.Items, poolv1.RoleWorker); !inFiles || !errors.As(err, new(*pool.NotFoundError)) {
		return
	}
	why, isOwn := "", func(p poolv1.MachineConfigPool) bool { return !IsOpenShift(p.TypeMeta) }
	for _, c := range Of[*poolv1.MachineConfig](objects) {
		if why == "" && IsOpenShift(c.TypeMeta) && c.Labels[RoleLabel] == poolv1.RoleWorker && !slices.ContainsFunc(pools.Items, isOwn) {
			why = fmt.Sprintf("it selects MachineConfig %q", c.Name)
		}
	}
	if custom := slices.IndexFunc(pools.Items, func(p poolv1.MachineConfigPool) bool { return !isOwn(p) && pool.IsCustom(p.Spec.PoolRole) }); custom >= 0 {
		why = fmt.Sprintf("MachineConfigPool %q inherits from it", pools.Items[custom].Name)
	}
	if why != "" {
		fmt.Fprintf(objects.notes, "note: %s\n", DescribeBuiltIn(poolv1.RoleWorker, why))
		pools.Items = append(pools.Items, NewBuiltIn(poolv1.RoleWorker))
	}
}

// DescribeBuiltIn returns the note that one of OpenShift's built-in pools is added, and why.
func DescribeBuiltIn(name, why string) string {
	return fmt.Sprintf("MachineConfigPool %q is added as OpenShift's built-in pool, which the files do not contain: %s", name, why)
}

// MachineConfigs returns the MachineConfigs that the pools of a Cluster may select: those of its namespace.
func (s *Source) MachineConfigs(ctx context.Context, cluster klog.ObjectRef) ([]poolv1.MachineConfig, error) {
	var list poolv1.MachineConfigList
	if err := s.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigs of namespace %s: %w", s.Namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(c poolv1.MachineConfig) bool { return isOtherNamespace(cluster, c.Namespace) }), nil
}

// isOtherNamespace reports whether a namespace is not that of a Cluster.
func isOtherNamespace(cluster klog.ObjectRef, namespace string) bool {
	return namespace != "" && cluster.Namespace != "" && namespace != cluster.Namespace
}

// listClusters returns the Clusters that pools name, in order. One without a namespace is the one with, if there is
// one.
func listClusters(pools []poolv1.MachineConfigPool) []klog.ObjectRef {
	clusters := sets.New[klog.ObjectRef]()
	for _, p := range pools {
		if p.Spec.ClusterName != "" {
			clusters.Insert(klog.KRef(p.Namespace, p.Spec.ClusterName))
		}
	}
	for c := range clusters {
		if c.Namespace != "" {
			clusters.Delete(klog.KRef("", c.Name))
		}
	}
	return slices.SortedFunc(maps.Keys(clusters), func(a, b klog.ObjectRef) int { return cmp.Compare(a.String(), b.String()) })
}

func joinNames(clusters []klog.ObjectRef) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.String()
	}
	return strings.Join(names, " and ")
}
