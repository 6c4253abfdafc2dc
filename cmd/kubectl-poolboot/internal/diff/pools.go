package diff

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// difference is what would change of one pool.
type difference struct {
	pool poolv1.MachineConfigPool
	// before and after are the names of the rendered configs; before is empty for the first pool of a cluster.
	before, after string
	// isNew is true when the pool does not exist: before is then what worker renders, which is the pool of its Nodes
	// now.
	isNew   bool
	changes []change
	// replaced says which entries of a MachineConfig replace those of another one, and did not before.
	replaced []string
	// plan is how a running host changes.
	plan update.Plan
	// can is what at least one of the running hosts can do.
	can update.Capabilities
	// declared are the changes of the pool's spec. restartsKubelet is true when they change the flags of kubelets.
	declared        []declaredChange
	restartsKubelet bool
	machines        []bootstrapv1.PoolbootConfig
	// to is the rendered config after the change. effects are what the change to it does to the running hosts that have
	// an agent, by PoolbootConfig.
	to      poolv1.MachineConfigSpec
	effects map[string]string
	// nodes are the existing Nodes that change.
	nodes []nodeChange
	// nodesErr is why the Nodes could not be read; nil when they were, or need not be.
	nodesErr error
}

// objects are the MachineConfigPools and MachineConfigs of one namespace.
type objects struct {
	pools   []poolv1.MachineConfigPool
	configs []poolv1.MachineConfig
}

// compareAll compares what the pools in a cluster render with what they would render with the objects in files, in
// every namespace of these objects. Only one Cluster is compared when it is not empty. With the error about pools that
// can't be rendered with the files, it returns the differences of the others.
func compareAll(ctx context.Context, files *input.Objects, live *input.Cluster, cluster string) (differences []difference, notes []string, err error) {
	namespaces := sets.New[string]()
	for _, p := range input.Of[*poolv1.MachineConfigPool](files) {
		namespaces.Insert(p.Namespace)
	}
	for _, c := range input.Of[*poolv1.MachineConfig](files) {
		namespaces.Insert(c.Namespace)
	}
	hasCluster, failed := cluster == "", []error(nil)
	for _, namespace := range sets.List(namespaces) {
		before, err := read(ctx, live, namespace)
		if err != nil {
			return nil, notes, err
		}
		var configs bootstrapv1.PoolbootConfigList
		if err := live.List(ctx, &configs, client.InNamespace(namespace)); err != nil {
			return nil, notes, fmt.Errorf("list PoolbootConfigs of namespace %s: %w", namespace, err)
		}
		after := before
		if after.pools, err = apply(before.pools, files, namespace); err != nil {
			return nil, notes, err
		}
		if after.configs, err = apply(before.configs, files, namespace); err != nil {
			return nil, notes, err
		}
		if err := refuse(files, before.pools, after.pools); err != nil {
			return nil, notes, err
		}
		if len(after.pools) == 0 {
			notes = append(notes, fmt.Sprintf("no MachineConfigPool is in namespace %s, so no host gets what the files have there: set --namespace", namespace))
		}
		for _, p := range after.pools[len(before.pools):] {
			name := p.Spec.ClusterName
			if apierrors.IsNotFound(live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &clusterv1.Cluster{})) {
				notes = append(notes, fmt.Sprintf("MachineConfigPool %s: spec.clusterName: no Cluster %s is in namespace %s: correct the name, or create the Cluster", klog.KObj(&p), name, namespace))
			}
		}
		notes = append(notes, warnings(before, after, namespace)...)
		for _, c := range input.Of[*poolv1.MachineConfig](files) {
			if note := pool.NotSelected(c, after.pools); note != "" && c.Namespace == namespace {
				notes = append(notes, fmt.Sprintf("MachineConfig %s: %s", klog.KObj(c), note))
			}
		}
		for _, name := range after.clusters() {
			if cluster != "" && cluster != name && cluster != namespace+"/"+name {
				continue
			}
			hasCluster = true
			ofCluster := filterConfigs(configs.Items, func(c *bootstrapv1.PoolbootConfig) bool { return record.ClusterName(c) == name })
			found, clusterNotes, failures, err := compareCluster(before.filterCluster(name), after.filterCluster(name), ofCluster)
			notes = append(notes, clusterNotes...)
			if err != nil {
				return nil, notes, fmt.Errorf("the pools of Cluster %s/%s: %w", namespace, name, err)
			}
			for _, f := range failures {
				which := fmt.Sprintf("the pools %s of Cluster %s/%s", strings.Join(f.pools, ", "), namespace, name)
				if merged := (*pool.MergeError)(nil); errors.As(f.why, &merged) {
					failed = append(failed, fmt.Errorf("%w\nso these can't be rendered: %s", files.Locate(merged), which))
				} else {
					failed = append(failed, fmt.Errorf("%s: %w", which, f.why))
				}
			}
			for i, d := range found {
				found[i].machines = filterConfigs(ofCluster, func(c *bootstrapv1.PoolbootConfig) bool {
					return c.Status.PoolRole == d.pool.Spec.PoolRole && !record.IsAsFound(c)
				})
				found[i].predict(after.filterCluster(name))
			}
			compareNodes(ctx, live.Workload, found, before.filterCluster(name), after.filterCluster(name), ofCluster)
			differences = append(differences, found...)
		}
	}
	if !hasCluster {
		return nil, notes, fmt.Errorf("--cluster %s: neither the cluster nor the files have a pool of this Cluster: correct --cluster or --namespace", cluster)
	}
	return differences, notes, errors.Join(failed...)
}

// read returns the objects of a namespace.
func read(ctx context.Context, from client.Reader, namespace string) (objects, error) {
	var pools poolv1.MachineConfigPoolList
	var configs poolv1.MachineConfigList
	if err := from.List(ctx, &pools, client.InNamespace(namespace)); err != nil {
		return objects{}, fmt.Errorf("list MachineConfigPools of namespace %s: %w", namespace, err)
	}
	if err := from.List(ctx, &configs, client.InNamespace(namespace)); err != nil {
		return objects{}, fmt.Errorf("list MachineConfigs of namespace %s: %w", namespace, err)
	}
	return objects{pools: pools.Items, configs: configs.Items}, nil
}

// apply returns the objects of one type in a namespace as kubectl apply leaves them with the objects in files: fields
// that a file leaves out stay, unless an earlier kubectl apply has set them.
func apply[T any, P interface {
	*T
	client.Object
}](live []T, files *input.Objects, namespace string) ([]T, error) {
	after := slices.Clone(live)
	for _, item := range files.Own() {
		object, ok := item.Object.(P)
		if !ok || object.GetNamespace() != namespace {
			continue
		}
		at := slices.IndexFunc(after, func(other T) bool { return P(&other).GetName() == object.GetName() })
		if at < 0 {
			after = append(after, *object)
			continue
		}
		written := item.Written()
		written.SetNamespace(namespace) // kubectl apply has recorded it, so without it, it would be removed
		delete(written.Object, "status")
		modified, err := json.Marshal(written.Object)
		utilruntime.Must(err) // it was read from JSON
		current, err := json.Marshal(after[at])
		utilruntime.Must(err)
		applied := P(&after[at]).GetAnnotations()[corev1.LastAppliedConfigAnnotation]
		patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch([]byte(applied), modified, current)
		if err == nil {
			current, err = jsonpatch.MergePatch(current, patch)
		}
		merged := new(T)
		if err == nil {
			err = json.Unmarshal(current, merged)
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: kubectl apply would fail: %w", item.Kind.Kind, klog.KObj(object), err)
		}
		after[at] = *merged
	}
	return after, nil
}

// refuse returns what the API server would refuse in the pools that files change.
func refuse(files *input.Objects, before, after []poolv1.MachineConfigPool) error {
	var refused []error
	for i, p := range after {
		errs := field.ErrorList{}
		if i < len(before) { // new ones are the last
			was := before[i].Spec
			if equality.Semantic.DeepEqual(was, p.Spec) {
				continue
			}
			errs = append(apivalidation.ValidateImmutableField(p.Spec.ClusterName, was.ClusterName, field.NewPath("spec", "clusterName")),
				apivalidation.ValidateImmutableField(p.Spec.PoolRole, was.PoolRole, field.NewPath("spec", "poolRole"))...)
		}
		refused = append(refused, files.Refuse(input.PoolKind.Kind, p.Name, append(errs, input.ValidatePool(after, i)...)))
	}
	return errors.Join(refused...)
}

// warnings returns what the webhooks warn of in the objects of a namespace that files change.
func warnings(before, after objects, namespace string) (notes []string) {
	add := func(kind string, object client.Object, warnings []string) {
		for _, warning := range warnings {
			notes = append(notes, fmt.Sprintf("%s %s/%s: %s", kind, namespace, object.GetName(), warning))
		}
	}
	for i := range after.configs {
		if c := &after.configs[i]; i >= len(before.configs) || !equality.Semantic.DeepEqual(before.configs[i].Spec, c.Spec) {
			found, _ := validation.MachineConfig(c)
			add("MachineConfig", c, found)
		}
	}
	for i := range after.pools {
		if p := &after.pools[i]; i >= len(before.pools) || !equality.Semantic.DeepEqual(before.pools[i].Spec, p.Spec) {
			others := slices.DeleteFunc(slices.Clone(after.pools), func(other poolv1.MachineConfigPool) bool {
				return other.Name == p.Name || other.Spec.ClusterName != p.Spec.ClusterName
			})
			add("MachineConfigPool", p, validation.PoolWarnings(p, others, pool.SelectsAny(p, after.configs)))
		}
	}
	return notes
}

// filterCluster returns the objects with only the pools of one Cluster.
func (o objects) filterCluster(cluster string) objects {
	o.pools = slices.DeleteFunc(slices.Clone(o.pools), func(p poolv1.MachineConfigPool) bool { return p.Spec.ClusterName != cluster })
	return o
}

// clusters returns the names of the pools' Clusters, in order.
func (o objects) clusters() []string {
	names := sets.New[string]()
	for _, p := range o.pools {
		names.Insert(p.Spec.ClusterName)
	}
	return sets.List(names)
}

// failure is why pools can't be rendered with the files.
type failure struct {
	why   error
	pools []string
}

// compareCluster compares what the pools of one Cluster render, in the order of the pools' names. A pool that can't be
// rendered with or without the files is a note.
func compareCluster(before, after objects, hosts []bootstrapv1.PoolbootConfig) (differences []difference, notes []string, failures []failure, err error) {
	slices.SortFunc(after.pools, func(a, b poolv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range after.pools {
		existing, _ := pool.OfRole(before.pools, p.Spec.PoolRole)
		from, isNew, wrong := before.render(p.Spec.PoolRole)
		to, err := pool.Render(p.Spec.PoolRole, after.pools, after.configs)
		switch {
		case err != nil && wrong != nil && err.Error() == wrong.Error() && existing != nil && equality.Semantic.DeepEqual(existing.Spec, p.Spec):
			notes = append(notes, fmt.Sprintf("MachineConfigPool %q is not compared: it can't be rendered, also without the files, so correct this in the cluster: %v", p.Name, err))
			continue
		case err != nil:
			if i := slices.IndexFunc(failures, func(f failure) bool { return f.why.Error() == err.Error() }); i >= 0 {
				failures[i].pools = append(failures[i].pools, p.Name)
			} else {
				failures = append(failures, failure{err, []string{p.Name}})
			}
			continue
		case wrong != nil:
			notes = append(notes, fmt.Sprintf("MachineConfigPool %q can't be rendered now (%v): the comparison is with %s", p.Name, wrong, cmp.Or(from.Name, "nothing")))
		}
		declared, err := compareDeclared(existing, p)
		if err != nil {
			return nil, notes, nil, err
		}
		if from.Name == to.Name && len(declared) == 0 {
			continue
		}
		changes, err := compare(from.Spec, to.Spec)
		if err != nil {
			return nil, notes, nil, fmt.Errorf("MachineConfigPool %q: %w", p.Name, err)
		}
		parent, _ := pool.ParentOf(&p, after.pools) // Render has refused several
		restarts := existing != nil && restartsKubelet(declared, *existing, p)
		restart := update.RestartNothing
		if existing != nil && existing.Spec.Updates.Restart.ID != p.Spec.Updates.Restart.ID {
			restart = pool.RestartKindOf(&p)
		}
		can := capabilities(p.Spec.PoolRole, hosts)
		plan, err := pool.PlanUpdate(&p, parent, from.Spec, to.Spec, restarts, restart, can)
		if err != nil {
			return nil, notes, nil, fmt.Errorf("MachineConfigPool %q: %w", p.Name, err)
		}
		differences = append(differences, difference{pool: p, before: from.Name, after: to.Name, isNew: isNew, changes: changes,
			replaced: listReplaced(from.Origins, to.Origins), plan: plan, can: can, declared: declared, restartsKubelet: restarts, to: to.Spec})
	}
	return differences, notes, failures, nil
}

// listReplaced returns a line for each entry of a MachineConfig that replaces another one's only after a change.
func listReplaced(before, after []pool.Origin) (lines []string) {
	for _, o := range after {
		wasReplaced := slices.ContainsFunc(before, func(was pool.Origin) bool {
			return was.Kind == o.Kind && was.Name == o.Name && was.MachineConfig == o.MachineConfig && slices.Equal(was.Overrides, o.Overrides)
		})
		if len(o.Overrides) > 0 && o.MachineConfig != "" && !wasReplaced {
			lines = append(lines, fmt.Sprintf("%s %s of MachineConfig %s replaces that of %s", o.Kind, o.Name, o.MachineConfig, strings.Join(o.Overrides, ", ")))
		}
	}
	return lines
}

// unknownEffect is the effect on a host whose rendered config does not exist any more, or can't be compared.
const unknownEffect = "Unknown"

// predict predicts what happens to each running host that has an agent, by the rendered config that it runs. That can
// be another one than those of its pool: its last update can have failed, or wait. The effect then says so, because it
// is not only that of the files.
func (d *difference) predict(o objects) {
	parent, _ := pool.ParentOf(&d.pool, o.pools)
	d.effects = map[string]string{}
	for _, c := range d.machines {
		runs := c.Status.Boot.ServedConfiguration.Name
		isSame := d.before == d.after && runs == d.after && pool.RestartOf(&d.pool, &c, false) == update.RestartNothing
		if !rollout.IsFollowed(&c) || c.Status.Update.DesiredRevision == "" || isSame && !d.restartsKubelet {
			continue
		}
		d.effects[c.Name] = unknownEffect
		at := slices.IndexFunc(o.configs, func(rendered poolv1.MachineConfig) bool { return rendered.Name == runs })
		if at >= 0 {
			isMoved := o.configs[at].Labels[poolv1.RenderedForLabel] != d.pool.Name
			if plan, err := pool.PlanUpdate(&d.pool, parent, o.configs[at].Spec, d.to, isMoved || d.restartsKubelet, pool.RestartOf(&d.pool, &c, isMoved), update.CapabilitiesWithout(c.Status.Update.UnsupportedChanges...)); err == nil {
				d.effects[c.Name] = string(plan.Effect())
			}
		}
		if !pool.HasSameContent(runs, d.before) && runs != "" {
			d.effects[c.Name] += ", because it still runs " + runs
		}
	}
}

// capabilities returns what at least one of the running hosts of a pool can change, or everything if there is no host.
func capabilities(role string, hosts []bootstrapv1.PoolbootConfig) update.Capabilities {
	unsupported, isFirst := []string(nil), true
	for i := range hosts {
		if is := &hosts[i].Status.Update; rollout.IsInPool(role, &hosts[i]) && is.DesiredRevision != "" {
			if isFirst {
				unsupported, isFirst = slices.Clone(is.UnsupportedChanges), false
			}
			unsupported = slices.DeleteFunc(unsupported, func(change string) bool { return !slices.Contains(is.UnsupportedChanges, change) })
		}
	}
	return update.CapabilitiesWithout(unsupported...)
}

// render returns what the pool with a role renders; for a new pool, what worker renders, or nothing without worker.
// When the pool can't be rendered, it returns the last rendered config, if there is one, and an error.
func (o objects) render(role string) (rendered *pool.Rendered, isNew bool, err error) {
	isMissing := func(role string) bool {
		_, err := pool.OfRole(o.pools, role)
		return errors.As(err, new(*pool.NotFoundError))
	}
	if isMissing(role) {
		if role, isNew = poolv1.RoleWorker, true; isMissing(role) {
			return &pool.Rendered{}, isNew, nil
		}
	}
	rendered, err = pool.Render(role, o.pools, o.configs)
	if err == nil {
		return rendered, isNew, nil
	}
	p, notOne := pool.OfRole(o.pools, role)
	for _, c := range o.configs {
		if notOne == nil && p.Status.Configuration.IsDefined() && p.Status.Configuration.Name == c.Name {
			return &pool.Rendered{Name: c.Name, Spec: c.Spec}, isNew, err
		}
	}
	return &pool.Rendered{}, isNew, err
}

// filterConfigs returns the PoolbootConfigs that match, in the order of their names.
func filterConfigs(all []bootstrapv1.PoolbootConfig, matches func(*bootstrapv1.PoolbootConfig) bool) []bootstrapv1.PoolbootConfig {
	filtered := slices.DeleteFunc(slices.Clone(all), func(c bootstrapv1.PoolbootConfig) bool { return !matches(&c) })
	slices.SortFunc(filtered, func(a, b bootstrapv1.PoolbootConfig) int { return strings.Compare(a.Name, b.Name) })
	return filtered
}
