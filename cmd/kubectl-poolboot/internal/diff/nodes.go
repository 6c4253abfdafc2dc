package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// openWorkload returns a reader of a workload cluster.
type openWorkload func(context.Context, client.ObjectKey) (client.Reader, error)

// nodeChange is what changes on an existing Node.
type nodeChange struct {
	name string
	// lines are what it gets and what it keeps.
	lines []string
}

// assignment is a Node as the manager would leave it with some pools.
type assignment struct {
	node *corev1.Node
	role string
	// pool is the pool with the role; nil when there is none.
	pool *poolv1.MachineConfigPool
	// problem is why the manager would change nothing; nil when it would.
	problem error
}

// assign changes a copy of a Node as the manager does: the Node's labels decide its pool, and the Node gets the labels
// and taints of the pool.
func assign(existing *corev1.Node, pools []poolv1.MachineConfigPool) assignment {
	a := assignment{node: existing.DeepCopy()}
	if a.problem = a.change(pools); a.problem != nil {
		a.node = existing.DeepCopy()
	}
	return a
}

// change adds the labels and taints of the Node's pool to the Node.
func (a *assignment) change(pools []poolv1.MachineConfigPool) error {
	decision, err := pool.Decide(a.node.Labels, pools)
	if err != nil || decision.Role == "" {
		return err
	}
	a.role = decision.Role
	if a.pool, err = pool.OfRole(pools, a.role); err != nil {
		return err
	}
	labels, err := pool.Labels(*a.pool)
	if err != nil {
		return err
	}
	registration.AddLabels(a.node, labels)
	if then, err := pool.Decide(a.node.Labels, pools); err != nil || then.Role != a.role {
		return errors.Join(err, fmt.Errorf("the labels of pool %q would put the Node in another pool", a.role))
	}
	registration.DeclareTaints(a.node, nodev1.CoreTaints(a.pool.Spec.Node.Taints))
	return nil
}

// isIn reports whether the Node is in a pool, before or after its change.
func (a assignment) isIn(p *poolv1.MachineConfigPool) bool {
	return a.pool != nil && pool.SameRole(a.pool, p)
}

// compareNodes adds to the differences of one Cluster the changes of the existing Nodes of its Machines. When it can't
// read the workload cluster, it adds the error to the differences that affect Nodes.
func compareNodes(ctx context.Context, open openWorkload, differences []difference, before, after objects, configs []bootstrapv1.PoolbootConfig) {
	names := sets.New[string]()
	for _, config := range configs {
		if record.HasNode(&config) {
			names.Insert(config.Status.NodeRef.Name)
		}
	}
	if len(names) == 0 || !slices.ContainsFunc(differences, affectsNodes) {
		return
	}
	cluster := client.ObjectKey{Namespace: differences[0].pool.Namespace, Name: differences[0].pool.Spec.ClusterName}
	nodes := &corev1.NodeList{}
	reader, err := open(ctx, cluster)
	if err == nil {
		if err = reader.List(ctx, nodes); err != nil {
			err = fmt.Errorf("list the Nodes of Cluster %s: %w", cluster.Name, err)
		}
	}
	if err != nil {
		for i := range differences {
			if affectsNodes(differences[i]) {
				differences[i].nodesErr = err
			}
		}
		return
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var pods podsByNode
	for i := range nodes.Items {
		existing := &nodes.Items[i]
		if !names.Has(existing.Name) {
			continue
		}
		current := assign(existing, before.pools)
		expected := assign(current.node, after.pools)
		d := differenceFor(differences, current, expected)
		changed := nodeChange{name: existing.Name, lines: d.describe(current, expected)}
		if evicting := addedTaints(current, expected, corev1.TaintEffectNoExecute); len(evicting) > 0 {
			if pods == nil {
				pods, err = listPods(ctx, reader)
			}
			changed.lines = append(changed.lines, describeEvictions(pods[existing.Name], evicting, err)...)
		}
		if len(changed.lines) > 0 {
			d.nodes = append(d.nodes, changed)
		}
	}
}

// differenceFor returns the difference under which a Node is shown: that of the pool that it will be in, else that of
// the pool that it is in, else the first one that affects Nodes.
func differenceFor(differences []difference, before, after assignment) *difference {
	for _, of := range []assignment{after, before} {
		for i := range differences {
			if d := &differences[i]; of.isIn(&d.pool) && len(d.declared) > 0 {
				return d
			}
		}
	}
	return &differences[slices.IndexFunc(differences, affectsNodes)]
}

// describe returns what changes of a Node's pool, labels and taints.
func (d *difference) describe(before, after assignment) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch {
	case after.problem != nil && (before.problem == nil || before.problem.Error() != after.problem.Error()):
		add("gets no change until a person acts: %v", after.problem)
	case before.role != after.role && after.role == "":
		add("leaves pool %s: no pool selects its labels then", before.role)
	case before.role != after.role && before.role == "":
		add("joins pool %s", after.role)
	case before.role != after.role:
		add("moves from pool %s to pool %s", before.role, after.role)
	}
	for _, key := range slices.Sorted(maps.Keys(after.node.Labels)) {
		if _, had := before.node.Labels[key]; !had {
			add("+ label %s: %s", key, quoteEmpty(after.node.Labels[key]))
		}
	}
	for _, taint := range addedTaints(before, after, "") {
		add("+ taint %s", taint.ToString())
	}
	if !after.isIn(&d.pool) {
		return lines
	}
	for _, c := range d.declared {
		switch c.field {
		case nodeLabelField:
			if value, has := before.node.Labels[c.key]; has && (c.after == nil || *c.after != value) {
				add("= label %s: %s stays", c.key, quoteEmpty(value))
			}
		case nodeTaintField:
			for _, taint := range before.node.Spec.Taints {
				if taint.Key+":"+string(taint.Effect) == c.key && (c.after == nil || *c.after != taint.Value) {
					add("= taint %s stays", taint.ToString())
				}
			}
		}
	}
	return lines
}

// addedTaints returns the taints with an effect that a Node gets; "" means every effect.
func addedTaints(before, after assignment, effect corev1.TaintEffect) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(after.node.Spec.Taints), func(t corev1.Taint) bool {
		return effect != "" && t.Effect != effect || slices.ContainsFunc(before.node.Spec.Taints, func(had corev1.Taint) bool { return had.MatchTaint(&t) })
	})
}

// podsByNode are Pods by the name of their Node.
type podsByNode map[string][]corev1.Pod

// podPageSize is how many Pods are read in one request.
const podPageSize = 500

// listPods returns the Pods of all Nodes, and on an error those that it has read.
func listPods(ctx context.Context, workload client.Reader) (podsByNode, error) {
	found := podsByNode{}
	next := ""
	for {
		pods := &corev1.PodList{}
		if err := workload.List(ctx, pods, client.Limit(podPageSize), client.Continue(next)); err != nil {
			return found, fmt.Errorf("list Pods: %w", err)
		}
		for _, pod := range pods.Items {
			found[pod.Spec.NodeName] = append(found[pod.Spec.NodeName], pod)
		}
		if next = pods.Continue; next == "" {
			return found, nil
		}
	}
}

// describeEvictions returns which Pods are evicted by taints with the effect NoExecute, as Kubernetes' taint eviction
// controller decides it.
func describeEvictions(pods []corev1.Pod, taints []corev1.Taint, podsErr error) (lines []string) {
	if podsErr != nil {
		return []string{fmt.Sprintf("the Pods that are evicted are unknown: %v", podsErr)}
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	running := 0
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		running++
		name := cli.Printable(pod.Namespace + "/" + pod.Name)
		switch after := tolerationDuration(pod.Spec.Tolerations, taints); {
		case after == 0:
			lines = append(lines, "evicts Pod "+name)
		case after > 0:
			lines = append(lines, fmt.Sprintf("evicts Pod %s after %s (tolerationSeconds)", name, after))
		}
	}
	switch {
	case running == 0:
		return []string{"evicts no Pod: no Pod runs on the Node"}
	case len(lines) == 0:
		return []string{"evicts no Pod: the running Pods tolerate the taint"}
	}
	return lines
}

// tolerationDuration returns how long a Pod stays on a Node with taints: 0 when it is evicted immediately, less than 0
// when it is not evicted.
func tolerationDuration(tolerations []corev1.Toleration, taints []corev1.Taint) time.Duration {
	stays := time.Duration(-1)
	for i := range taints {
		first := slices.IndexFunc(tolerations, func(t corev1.Toleration) bool { return t.ToleratesTaint(logr.Discard(), &taints[i], false) })
		if first < 0 {
			return 0
		}
		if seconds := tolerations[first].TolerationSeconds; seconds != nil {
			if until := time.Duration(max(0, *seconds)) * time.Second; stays < 0 || until < stays {
				stays = until
			}
		}
	}
	return stays
}
