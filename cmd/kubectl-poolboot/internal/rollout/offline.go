package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cluster-api/util/conditions"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// planFiles returns the plan of each pool in the files, by role. The second error is that of Nodes with the labels of
// several custom pools: they are in no pool, and the plans are those of the others.
func (o *planOptions) planFiles(ctx context.Context) (plans map[string]plan, conflicts, err error) {
	found, err := o.files.Read(o.files.Names...)
	if err != nil {
		return nil, nil, fmt.Errorf("--pools: %w", err)
	}
	ofCluster, err := found.Source().Pools(ctx, "", o.cluster)
	if err != nil {
		return nil, nil, fmt.Errorf("--pools: %w", err)
	}
	pools := slices.DeleteFunc(ofCluster.Items, func(p poolv1.MachineConfigPool) bool {
		if input.IsOpenShift(p.TypeMeta) {
			o.note("MachineConfigPool %q of OpenShift is left out: kubectl poolboot convert makes one of Poolboot of it", p.Name)
		}
		return input.IsOpenShift(p.TypeMeta)
	})
	if len(pools) == 0 {
		return nil, nil, fmt.Errorf("--pools %s: it contains no MachineConfigPool of %s: name a file with one",
			strings.Join(o.files.Names, ","), poolv1.GroupVersion)
	}
	objects, err := o.files.Read(o.nodes...)
	if err != nil {
		return nil, nil, fmt.Errorf("--nodes: %w", err)
	}
	nodes := input.Of[*corev1.Node](objects)
	nodesOf, conflicts, err := o.assign(objects, nodes, pools)
	if err != nil {
		return nil, nil, fmt.Errorf("--nodes: %w", err)
	}
	plans = map[string]plan{}
	for i := range pools {
		p := &pools[i]
		if _, err := pool.OfRole(pools, p.Spec.PoolRole); err != nil {
			return nil, nil, fmt.Errorf("--pools: %w", err)
		}
		if plans[p.Spec.PoolRole], err = planOf(p, pools, nodesOf[p.Spec.PoolRole]); err != nil {
			return nil, nil, fmt.Errorf("--pools: %w", err)
		}
		o.noteGates(p)
	}
	if len(nodes) == 0 {
		o.note("--nodes %s: it contains no Node", strings.Join(o.nodes, ","))
	}
	o.noteInvalid(found, pools)
	return plans, conflicts, nil
}

// note prints a note to standard error.
func (o *planOptions) note(text string, args ...any) {
	fmt.Fprintf(o.streams.ErrOut, "note: "+text+"\n", args...)
}

// noteGates notes that a file does not say whether the gates of a pool are open, or whether the control plane can be
// without a host.
func (o *planOptions) noteGates(p *poolv1.MachineConfigPool) {
	if !rollout.HasGates(p) || meta.FindStatusCondition(p.Status.Conditions, poolv1.UpdateGatesOpenCondition) != nil {
		return
	}
	what, open := "the objects of the update gates of pool "+p.Spec.PoolRole+" are", "they were open"
	if pool.IsOfControlPlane(*p) {
		what, open = "whether the control plane can be without a host is", "it could"
	}
	o.note("%s not read from files, and its status has no condition %s: the answer is as if %s", what, poolv1.UpdateGatesOpenCondition, open)
}

// noteInvalid notes what the API server or the webhook would refuse in the specs of the pools. The command answers for
// them anyway.
func (o *planOptions) noteInvalid(found *input.Objects, pools []poolv1.MachineConfigPool) {
	for i := range pools {
		errs := input.ValidatePool(pools, i)
		for _, own := range found.Own() {
			if own.Kind == input.PoolKind && own.GetName() == pools[i].Name {
				errs = append(own.Validate(), errs...)
			}
		}
		errs = slices.DeleteFunc(errs, func(err *field.Error) bool { return strings.HasPrefix(err.Field, "status") })
		for _, err := range input.InOrder(found.Refuse(input.PoolKind.Kind, pools[i].Name, errs)) {
			o.note("%v", err)
		}
	}
}

// assign returns the Nodes of each role, in the order of the files. A Node that is in no pool is noted.
func (o *planOptions) assign(
	objects *input.Objects, nodes []*corev1.Node, pools []poolv1.MachineConfigPool,
) (nodesOf map[string][]*corev1.Node, conflicts, err error) {
	nodesOf = map[string][]*corev1.Node{}
	seen := map[string]bool{}
	for _, node := range nodes {
		switch {
		case node.Name == "":
			return nil, nil, fmt.Errorf("%s: Node: metadata.name: is missing: set it", objects.PlaceOf("Node", ""))
		case seen[node.Name]:
			return nil, nil, fmt.Errorf("the files contain Node %q twice: remove one", node.Name)
		}
		seen[node.Name] = true
		decision, err := pool.Decide(node.Labels, pools)
		switch conflict := (*pool.ConflictError)(nil); {
		case errors.As(err, &conflict):
			conflicts = errors.Join(conflicts, fmt.Errorf("--nodes: Node %q: %w", node.Name, err))
		case err != nil:
			return nil, nil, err
		case decision.Role == "" && !decision.ControlPlane:
			o.note("Node %q is in no pool of the files", node.Name)
		case decision.Role != "":
			nodesOf[decision.Role] = append(nodesOf[decision.Role], node)
		}
	}
	return nodesOf, conflicts, nil
}

// planOf returns the plan of one of the pools, with its Nodes.
func planOf(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, nodes []*corev1.Node) (plan, error) {
	limit, err := rollout.MaxUnavailable(p.Spec.MaxUnavailable, len(nodes))
	if err != nil {
		return plan{}, fmt.Errorf("MachineConfigPool %q: spec.%w", p.Name, err)
	}
	members, hold := make([]member, len(nodes)), rollout.HoldOf(p, time.Now())
	for i, node := range nodes {
		members[i] = nodeMember(p, pools, node, hold)
	}
	return decide(p, members, limit), nil
}

// holdOf returns why no host of a pool begins an update, or "". This command does not read the objects of update gates:
// the manager reads them, and reports a closed gate in the status of the pool.
func holdOf(p *poolv1.MachineConfigPool) string {
	return cmp.Or(waitsInPause(p), rollout.HoldOf(p, time.Now()).Why, rollout.HoldOfGates(p))
}

// holdOn returns why the host of a pool with a Node begins no update, or "". hold is that of the pool.
func holdOn(p *poolv1.MachineConfigPool, node string, hold rollout.Hold) string {
	of := hold.Of(node)
	if of.IsSkipped {
		return of.Why
	}
	return cmp.Or(waitsInPause(p), of.Why, rollout.HoldOfGates(p))
}

// waitsInPause says what a paused pool renders and does not hand out. It returns "" if there is nothing.
func waitsInPause(p *poolv1.MachineConfigPool) string {
	if c := conditions.Get(p, poolv1.UpdatedCondition); p.Spec.IsPaused() && c != nil && c.Reason == poolv1.RolloutPausedReason {
		return c.Message
	}
	return ""
}

// member is a host as the rollout decides about it.
type member struct {
	rollout.Candidate
	// node is the name of its Node, and hold why it begins no update, or "".
	node, hold string
	// place is why the host takes a place of maxUnavailable, or "". Details and remedies follow ": " or ", so ".
	place string
	// note is why the host is left alone, or "".
	note string
	// staging is why the host has not staged its update, or "".
	staging string
}

// decide returns the plan for the hosts of a pool, in their order.
func decide(of *poolv1.MachineConfigPool, members []member, limit int) plan {
	gate, canary := rollout.HoldOfGates(of), ""
	if c := conditions.Get(of, poolv1.UpdateGatesOpenCondition); c != nil && c.Reason == poolv1.CanaryPendingReason {
		gate = "" // canaries can be next
		for i := range members {
			if members[i].hold == c.Message {
				members[i].hold = ""
			}
		}
	}
	p := plan{
		MaxUnavailable: limit, Pinned: rollout.DescribePin(of), Problem: describeProblem(of), Unavailable: []string{}, Next: []string{}, Hosts: []notNext{},
		Exceptions: exceptionsOf(of, members),
	}
	hosts := make([]rollout.Candidate, len(members))
	for i := range members {
		m := &members[i]
		hosts[i] = m.Candidate
		if m.TakesPlace() {
			p.Unavailable = append(p.Unavailable, m.Name)
		}
	}
	p.Capacity = max(limit-rollout.Count(hosts), 0)
	if gate == "" {
		isActive := func(name string) bool {
			return slices.ContainsFunc(members, func(m member) bool { return m.Name == name && m.IsActive() })
		}
		next, closed := rollout.NextAfter(&of.Spec.Updates.Canary, hosts, limit, time.Now())
		if p.Next = append(p.Next, slices.DeleteFunc(next, isActive)...); closed != nil {
			canary = closed.Why
		}
	}
	var full string
	if p.Capacity == 0 {
		full = fmt.Sprintf("%d of the pool's hosts can be unavailable at a time, and these hold the places: %s", limit, describeHolders(members))
	}
	for _, m := range members {
		if note := m.whyNot(p, cmp.Or(m.hold, canary, otherDomains(members, p, m, of.Spec.Updates.FailureDomainLabel)), full); note != "" {
			p.Hosts = append(p.Hosts, notNext{m.Name, note})
		}
	}
	slices.SortFunc(p.Hosts, func(a, b notNext) int { return cmp.Compare(a.Node, b.Node) })
	switch {
	case len(p.Next) > 0:
	case !of.Status.Configuration.IsDefined():
		p.Reason = fmt.Sprintf("MachineConfigPool %q has no status.configuration.name, the rendered config that its hosts should run", of.Name)
	case !slices.ContainsFunc(members, func(m member) bool { return m.isWaiting() }):
		none := "none"
		if slices.ContainsFunc(members, func(m member) bool {
			return m.Desired != m.Target || m.Progress == rollout.InUpdate || m.Progress == rollout.Unknown
		}) {
			none = "no other host"
		}
		p.Reason = cmp.Or(waitsInPause(of), describeKept(members, p.Hosts), none+" waits for an update to "+of.Status.Configuration.Name)
	default:
		p.Reason = cmp.Or(describeHeld(members), full, canary, describeStaging(members), "those that wait are in other failure domains than the unavailable ones")
	}
	return p
}

// describeProblem returns why a pool can't be rendered, what to do, and what its hosts do until then, or "".
func describeProblem(of *poolv1.MachineConfigPool) string {
	c := conditions.Get(of, poolv1.RenderDegradedCondition)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	does := "no host boots or is updated"
	switch name := of.Status.Configuration.Name; {
	case c.Reason == poolv1.DuplicateRoleReason:
		does = "no host boots into this role"
	case name != "" && of.Spec.IsPaused():
		does = "the paused pool hands out " + name + ": new hosts boot with it, and no running host begins an update before " + rollout.Command("resume", of)
	case name != "":
		does = "the pool hands out " + name + ": new hosts boot with it, and running hosts are updated to it"
	}
	return fmt.Sprintf("%s: %s. Until then, %s", c.Reason, strings.TrimSuffix(c.Message, "."), does)
}

// describeHeld returns why all hosts that wait are held, or "" if one is not: what holds the pool, or else what holds
// the first of them.
func describeHeld(members []member) (hold string) {
	skipped := ""
	for i := range members {
		switch m := &members[i]; {
		case !m.isWaiting():
		case m.hold == "":
			return ""
		case m.IsSkipped:
			skipped = cmp.Or(skipped, "host "+m.Name+": "+m.hold)
		default:
			hold = cmp.Or(hold, m.hold)
		}
	}
	return cmp.Or(hold, skipped)
}

// describeStaging names the first host that waits and has not staged its update, and says why, or returns "".
func describeStaging(members []member) string {
	for _, m := range members {
		if m.isWaiting() && m.staging != "" {
			return "host " + m.Name + ": " + m.staging
		}
	}
	return ""
}

// describeKept names the first host that should be updated and begins no update, and says why, or returns "".
func describeKept(members []member, notes []notNext) string {
	for _, note := range notes {
		if slices.ContainsFunc(members, func(m member) bool {
			return m.Name == note.Node && m.Desired != m.Target && (m.Progress == rollout.Done || m.Progress == rollout.Failed)
		}) {
			return "host " + note.Node + ": " + note.Message
		}
	}
	return ""
}

// otherDomains returns which failure domains block a host that has a place, or "".
func otherDomains(members []member, p plan, of member, label string) string {
	if label == "" || p.Capacity == 0 || !of.isWaiting() {
		return ""
	}
	busy := map[string][]string{}
	for _, m := range members {
		if m.TakesPlace() {
			busy[m.Domain] = append(busy[m.Domain], m.Name)
		}
	}
	if len(busy) == 0 { // those that are next will be
		for _, m := range members {
			if slices.Contains(p.Next, m.Name) {
				busy[m.Domain] = append(busy[m.Domain], m.Name)
			}
		}
	}
	delete(busy, of.Domain)
	if len(busy) == 0 {
		return ""
	}
	var blocking []string
	for _, domain := range slices.Sorted(maps.Keys(busy)) {
		blocking = append(blocking, fmt.Sprintf("%s (%s)", describeDomain(label, domain), strings.Join(busy[domain], ", ")))
	}
	own := "it is in the failure domain " + describeDomain(label, of.Domain)
	if of.Domain == "" {
		own = fmt.Sprintf("its Node has no label %s, so it is last", label)
	}
	return fmt.Sprintf("%s, and others are unavailable or first: %s", own, strings.Join(blocking, ", "))
}

// describeDomain returns a failure domain in the way of a label.
func describeDomain(label, domain string) string {
	if domain == "" {
		return "no label " + label
	}
	return label + "=" + domain
}

// isWaiting reports whether the host could be next.
func (m *member) isWaiting() bool {
	return m.Desired != m.Target && !m.IsExcluded && !m.IsActive()
}

// whyNot returns why the host is not next, or "" if it is, or needs no update. full is which hosts hold all places, or
// "" if a place is free.
func (m *member) whyNot(p plan, hold, full string) string {
	switch {
	case slices.Contains(p.Next, m.Name):
		return ""
	case m.note != "":
		return m.note
	case m.Desired == m.Target:
		return ""
	case hold != "":
		return hold
	case m.isWaiting() && m.staging != "":
		return m.staging
	case m.isWaiting() && full != "":
		return cmp.Or(m.place, full)
	case m.isWaiting():
		if m.IsLast {
			return "its Machine is about to be replaced, so others are first"
		}
		return "others are first, by zone and age"
	}
	return ""
}
