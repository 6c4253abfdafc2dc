package explain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/cure"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
)

// State says how a label or taint that a Node should have stands on it.
type State string

// States of labels and taints.
const (
	Stands    State = "Stands"
	Missing   State = "Missing"
	Differs   State = "Differs"   // the Node has another value
	TakenAway State = "TakenAway" // a taint that had to be there only until the Node was ready for pods
	NotSeen   State = "NotSeen"   // the Node could not be looked at, or does not exist yet
)

// onNode is a label or a taint that a Node has or should have.
type onNode struct {
	// Text is key=value, and :effect of a taint.
	Text string `json:"text"`
	// From are the fields that declare it; of what nothing declares, who set it.
	From []string `json:"from"`
	// State is how it stands on the Node, Value the Node's own value when that is another.
	State State  `json:"state"`
	Value string `json:"value,omitempty"`
}

func (p onNode) state() string {
	if p.State == Differs {
		return fmt.Sprintf("%s: %q", p.State, p.Value)
	}
	return string(p.State)
}

// explain works out the answer.
func (s *subject) explain(synced []*regexp.Regexp) *bootExplained {
	b := &bootExplained{Node: s.nodeName(), NodeSeen: s.node != nil, Unseen: append([]string{}, s.unseen...),
		Timeline: []record.Moment{}, Addresses: []boots.Address{}, Labels: []onNode{}, Taints: []onNode{}, Todo: []string{}}
	if s.cluster.Name != "" {
		b.Cluster = klog.KRef(s.cluster.Namespace, s.cluster.Name).String()
	}
	if s.machine != nil {
		b.Machine = klog.KObj(s.machine).String()
	}
	if s.bmh != nil {
		b.Host = klog.KObj(s.bmh).String()
	}
	if s.config == nil {
		s.explainForeign(b)
		return b
	}
	b.PoolbootConfig, b.Timeline, b.Message = klog.KObj(s.config).String(), record.Moments(s.config), outlook.Message(s.config)
	b.Stage, b.Since = record.StageOf(s.config)
	b.Addresses = boots.AddressesOf(s.config)
	if b.Host == "" && s.config.Status.HostRef.IsDefined() {
		b.Host = s.config.Status.HostRef.Namespace + "/" + s.config.Status.HostRef.Name
	}
	if conditions.IsFalse(s.config, clusterv1.ReadyCondition) && b.Stage != record.StageDeleting && !onlyWaits(s.config) {
		b.Todo = append(b.Todo, b.Message)
	}
	var err error
	if b.Pool, b.Why, err = s.pool(); err != nil {
		b.todo(err.Error())
		return b
	}
	b.compareConfiguration(s)
	registration, err := s.register(b.Pool, synced)
	if err != nil {
		b.todo(err.Error())
	} else {
		b.compare(s, registration)
	}
	return b
}

// compareConfiguration adds what the host runs and what its pool hands out now, and what to do about a host that has
// joined and runs something else, as the pool's condition Updated says it.
func (b *bootExplained) compareConfiguration(s *subject) {
	b.Configuration = s.config.Status.Configuration.Name
	if of, err := pool.OfRole(s.pools, b.Pool); err == nil && of.Status.Configuration.IsDefined() {
		b.PoolConfiguration = of.Status.Configuration.Name
	}
	hasJoined := b.Stage == record.StageReady || b.Stage == record.StageNotReady
	if hasJoined && b.PoolConfiguration != "" && !pool.HasSameContent(b.Configuration, b.PoolConfiguration) {
		b.todo(fmt.Sprintf("%s runs another configuration than pool %s hands out: %s", cure.Whose(s.config), b.Pool, cure.Renew(s.config)))
	}
}

// todo adds what a person has to do, unless a condition says it already.
func (b *bootExplained) todo(text string) {
	if !slices.ContainsFunc(b.Todo, func(said string) bool { return strings.Contains(said, text) }) {
		b.Todo = append(b.Todo, text)
	}
}

// explainForeign is about a Node that Poolboot did not boot.
func (s *subject) explainForeign(b *bootExplained) {
	decision, err := pool.Decide(s.node.Labels, s.pools)
	b.Pool, b.Why = decision.Role, "by the labels of the Node, which Poolboot did not boot"
	switch {
	case err != nil:
		b.Why = "none: " + err.Error()
		b.todo("correct the labels of Node " + s.node.Name + ": " + err.Error())
	case decision.ControlPlane:
		b.Why = "none: a control plane"
	case decision.Role == "":
		b.Why = "none: no pool selects its labels"
	}
	b.compare(s, &registration.Registration{})
}

// compare adds the labels and taints that a Node should have, and those that it has beyond them.
func (b *bootExplained) compare(s *subject, wanted *registration.Registration) {
	var has *corev1.Node
	if has = s.node; has == nil {
		has = &corev1.Node{}
	}
	for _, key := range slices.Sorted(maps.Keys(wanted.Labels)) {
		value, stands := has.Labels[key]
		label := onNode{Text: key + "=" + wanted.Labels[key], From: wanted.LabelSources[key], State: Stands}
		switch {
		case s.node == nil:
			label.State = NotSeen
		case !stands:
			label.State = Missing
			b.todo(fmt.Sprintf("kubectl label node %s %s: it is missing, and %s declares it", has.Name, label.Text, label.From[0]))
		case value != wanted.Labels[key] && registration.IsReported(key): // the kubelet knows better
			label.State, label.Value = Differs, value
		case value != wanted.Labels[key]:
			label.State, label.Value = Differs, value
			b.todo(fmt.Sprintf("kubectl label node %s %s --overwrite, or change %s: %q was set by %s, and Poolboot leaves it",
				has.Name, label.Text, label.From[0], value, s.setBy("f:labels", key)))
		}
		b.Labels = append(b.Labels, label)
	}
	for _, key := range slices.Sorted(maps.Keys(has.Labels)) {
		if _, declared := wanted.Labels[key]; !declared {
			b.Labels = append(b.Labels, onNode{Text: key + "=" + has.Labels[key], From: []string{s.setBy("f:labels", key)}, State: Stands})
		}
	}
	b.compareTaints(s, has, wanted)
}

func (b *bootExplained) compareTaints(s *subject, has *corev1.Node, wanted *registration.Registration) {
	for i := range wanted.Taints {
		taint := &wanted.Taints[i]
		shown := onNode{Text: taint.ToString(), From: wanted.TaintSources[taint.ToString()], State: Stands}
		at := slices.IndexFunc(has.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(taint) })
		passing := taint.Key == poolv1.NodeUnassignedTaint || taint.Key == clusterv1.NodeUninitializedTaint.Key
		switch {
		case s.node == nil:
			shown.State = NotSeen
		case at < 0 && passing:
			shown.State = TakenAway
		case at < 0:
			shown.State = Missing
			b.todo(fmt.Sprintf("kubectl taint node %s %s: a person took it away, and Poolboot does not put it back", has.Name, shown.Text))
		case has.Spec.Taints[at].Value != taint.Value:
			shown.State, shown.Value = Differs, has.Spec.Taints[at].Value
			b.todo(fmt.Sprintf("kubectl taint node %s %s --overwrite, or change %s: the Node has %q, which Poolboot leaves", has.Name, shown.Text, shown.From[0], shown.Value))
		case passing && b.Stage == record.StageReady:
			b.todo(fmt.Sprintf("look at the log of the %s: the Node is Ready and still has the taint %s", ownerOf(taint.Key), shown.Text))
		}
		b.Taints = append(b.Taints, shown)
	}
	for i := range has.Spec.Taints {
		taint := &has.Spec.Taints[i]
		if !slices.ContainsFunc(wanted.Taints, func(t corev1.Taint) bool { return t.MatchTaint(taint) }) {
			b.Taints = append(b.Taints, onNode{Text: taint.ToString(), From: []string{ownerOf(taint.Key)}, State: Stands})
		}
	}
}

// ownerOf names who sets taints of a key. The API server keeps one owner for the whole list, which says nothing.
func ownerOf(key string) string {
	switch {
	case strings.HasPrefix(key, "node.kubernetes.io/"):
		return "Kubernetes, by the Node's conditions"
	case strings.HasPrefix(key, "node.cluster.x-k8s.io/"):
		return "Cluster API"
	case strings.HasPrefix(key, "pool.cluster.x-k8s.io/"):
		return "Poolboot's manager"
	}
	return "somebody, on the Node"
}

// setBy names who set a label on the Node, as the API server keeps it: the field manager, or "somebody" when it has not
// kept it.
func (s *subject) setBy(list, key string) string {
	var last *metav1.ManagedFieldsEntry
	for i := range s.node.ManagedFields {
		entry := &s.node.ManagedFields[i]
		var fields map[string]any
		if entry.FieldsV1 == nil || kjson.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns, _ := unstructured.NestedFieldNoCopy(fields, "f:metadata", list, "f:"+key); owns && (last == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	if last == nil {
		return "somebody, on the Node"
	}
	return last.Manager + ", on the Node"
}
