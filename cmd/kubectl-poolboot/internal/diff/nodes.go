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
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// workloadOf returns a reader of a Cluster's own objects.
type workloadOf func(context.Context, client.ObjectKey) (client.Reader, error)

// nodeOutlook is what becomes of an existing Node.
type nodeOutlook struct {
	name string
	// lines say what it gets and what it keeps.
	lines []string
}

// assignment is a Node as the manager would have it with some pools.
type assignment struct {
	node *corev1.Node
	role string
	// in is the pool of that role; nil when there is none.
	in *poolv1.MachineConfigPool
	// problem says why the manager would write nothing; nil when it does.
	problem error
}

// assign does to a copy of a Node what the manager does: the Node's labels decide its pool, and it gets what the pool
// declares.
func assign(existing *corev1.Node, pools []poolv1.MachineConfigPool) assignment {
	a := assignment{node: existing.DeepCopy()}
	decision, err := pool.Decide(existing.Labels, pools)
	if err != nil || decision.Role == "" {
		a.problem = err
		return a
	}
	a.role = decision.Role
	of, err := pool.OfRole(pools, a.role)
	if err != nil {
		a.problem = err
		return a
	}
	a.in = of
	labels, err := pool.Labels(*of)
	if err != nil {
		a.problem = err
		return a
	}
	registration.AddLabels(a.node, labels)
	if now, err := pool.Decide(a.node.Labels, pools); err != nil || now.Role != a.role {
		a.node = existing.DeepCopy()
		a.problem = errors.Join(err, fmt.Errorf("the labels that pool %q declares would put the Node in another one", a.role))
		return a
	}
	registration.DeclareTaints(a.node, nodev1.CoreTaints(of.Spec.NodeTaints))
	return a
}

// isIn says whether the Node is in a pool, whatever version of that is meant.
func (a assignment) isIn(p *poolv1.MachineConfigPool) bool {
	return a.in != nil && pool.SameRole(a.in, p)
}

// compareNodes adds to the differences of one Cluster what becomes of the existing Nodes of its Machines. What the
// workload cluster does not tell is said at the differences that concern Nodes.
func compareNodes(ctx context.Context, workload workloadOf, differences []difference, before, after objects, machines []bootstrapv1.PoolbootConfig) {
	names := map[string]bool{}
	for _, machine := range machines {
		if machine.Status.NodeRef.IsDefined() {
			names[machine.Status.NodeRef.Name] = true
		}
	}
	if len(names) == 0 || !slices.ContainsFunc(differences, func(d difference) bool { return reachesNodes(d.declared) }) {
		return
	}
	unread := func(err error) {
		for i := range differences {
			if reachesNodes(differences[i].declared) {
				differences[i].unread = err
			}
		}
	}
	of := differences[0].pool
	reader, err := workload(ctx, client.ObjectKey{Namespace: of.Namespace, Name: of.Spec.ClusterName})
	if err != nil {
		unread(err)
		return
	}
	nodes := &corev1.NodeList{}
	if err := reader.List(ctx, nodes); err != nil {
		unread(fmt.Errorf("list the Nodes of Cluster %s: %w", of.Spec.ClusterName, err))
		return
	}
	slices.SortFunc(nodes.Items, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var pods podsByNode
	for i := range nodes.Items {
		existing := &nodes.Items[i]
		if !names[existing.Name] {
			continue
		}
		was := assign(existing, before.pools)
		is := assign(was.node, after.pools)
		d := differenceFor(differences, was, is)
		outlook := nodeOutlook{name: existing.Name, lines: d.about(was, is)}
		if evicting := gained(was, is, corev1.TaintEffectNoExecute); len(evicting) > 0 {
			if pods == nil {
				pods, err = readPods(ctx, reader)
			}
			outlook.lines = append(outlook.lines, evictions(pods[existing.Name], evicting, err)...)
		}
		if len(outlook.lines) > 0 {
			d.nodes = append(d.nodes, outlook)
		}
	}
}

// differenceFor is the difference at which a Node is shown: that of the pool in which it is then, else that of the pool
// in which it is now, else the first one that reaches Nodes.
func differenceFor(differences []difference, was, is assignment) *difference {
	for _, of := range []assignment{is, was} {
		for i := range differences {
			if d := &differences[i]; of.isIn(&d.pool) && len(d.declared) > 0 {
				return d
			}
		}
	}
	return &differences[slices.IndexFunc(differences, func(d difference) bool { return reachesNodes(d.declared) })]
}

// about says what becomes of a Node's pool, labels and taints.
func (d *difference) about(was, is assignment) (lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	switch {
	case is.problem != nil && (was.problem == nil || was.problem.Error() != is.problem.Error()):
		say("gets nothing, and waits for a person: %v", is.problem)
	case was.role != is.role && is.role == "":
		say("leaves pool %s: its labels select no pool then", was.role)
	case was.role != is.role && was.role == "":
		say("joins pool %s", is.role)
	case was.role != is.role:
		say("moves from pool %s to pool %s", was.role, is.role)
	}
	for _, key := range slices.Sorted(maps.Keys(is.node.Labels)) {
		if _, had := was.node.Labels[key]; !had {
			say("+ label %s: %s", key, quoteEmpty(is.node.Labels[key]))
		}
	}
	for _, taint := range gained(was, is, "") {
		say("+ taint %s", taint.ToString())
	}
	if !is.isIn(&d.pool) {
		return lines
	}
	for _, c := range d.declared {
		switch c.field {
		case nodeLabelField:
			if value, has := was.node.Labels[c.key]; has && (c.after == nil || *c.after != value) {
				say("= label %s: %s stays", c.key, quoteEmpty(value))
			}
		case nodeTaintField:
			for _, taint := range was.node.Spec.Taints {
				if taint.Key+":"+string(taint.Effect) == c.key && (c.after == nil || *c.after != taint.Value) {
					say("= taint %s stays", taint.ToString())
				}
			}
		}
	}
	return lines
}

// gained are the taints of an effect that a Node gets; "" stands for every effect.
func gained(was, is assignment, effect corev1.TaintEffect) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(is.node.Spec.Taints), func(t corev1.Taint) bool {
		return effect != "" && t.Effect != effect || slices.ContainsFunc(was.node.Spec.Taints, func(had corev1.Taint) bool { return had.MatchTaint(&t) })
	})
}

// podsByNode are Pods by the name of the Node that they are assigned to.
type podsByNode map[string][]corev1.Pod

// podsAtOnce is how many Pods are read in one request.
const podsAtOnce = 500

func readPods(ctx context.Context, workload client.Reader) (podsByNode, error) {
	found := podsByNode{}
	next := ""
	for {
		pods := &corev1.PodList{}
		if err := workload.List(ctx, pods, client.Limit(podsAtOnce), client.Continue(next)); err != nil {
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

// evictions say which Pods taints with the effect NoExecute evict, as Kubernetes' taint eviction controller does.
func evictions(pods []corev1.Pod, taints []corev1.Taint, unread error) (lines []string) {
	if unread != nil {
		return []string{fmt.Sprintf("which Pods are evicted can't be told: %v", unread)}
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
		switch after := toleratedFor(pod.Spec.Tolerations, taints); {
		case after == 0:
			lines = append(lines, "evicts Pod "+name)
		case after > 0:
			lines = append(lines, fmt.Sprintf("evicts Pod %s after %s (tolerationSeconds)", name, after))
		}
	}
	switch {
	case running == 0:
		return []string{"evicts no Pod: none runs there"}
	case len(lines) == 0:
		return []string{"evicts no Pod: those that run there tolerate the taint"}
	}
	return lines
}

// toleratedFor returns how long a Pod stays on a Node with taints: 0 when it is evicted at once, less when it stays.
func toleratedFor(tolerations []corev1.Toleration, taints []corev1.Taint) time.Duration {
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
