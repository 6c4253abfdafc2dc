package explain

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
	status "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/rollout"
)

// State is the state of a label or taint on a Node.
type State string

// States of labels and taints.
const (
	StatePresent State = "Present" // the Node has it, with the declared value
	StateMissing State = "Missing"
	StateDiffers State = "Differs" // the Node has another value
	StateRemoved State = "Removed" // a taint that a Node has only until it is ready for Pods
)

// nodeProperty is a label or a taint that a Node has or should have.
type nodeProperty struct {
	// Text is key=value, and :effect of a taint.
	Text string `json:"text"`
	// From are the fields that declare it; without one, the client that set it.
	From []string `json:"from"`
	// State is its state on the Node; empty for a Node that was not read. Value is the Node's value when that differs.
	State State  `json:"state,omitempty"`
	Value string `json:"value,omitempty"`
}

func (p nodeProperty) state() string {
	if p.State == StateDiffers {
		return fmt.Sprintf("%s: %q", p.State, p.Value)
	}
	return string(p.State)
}

// explain returns the answer.
func (s *subject) explain(synced []*regexp.Regexp) *bootReport {
	b := &bootReport{Node: s.nodeName(), NodeSeen: s.node != nil, Unseen: append([]string{}, s.unseen...),
		Machine: klog.KObj(s.machine).String(), Host: klog.KObj(s.bmh).String(),
		Timeline: []record.Moment{}, Addresses: []boots.Address{}, nodeProperties: noProperties(), Todo: []string{}}
	if s.cluster.Name != "" {
		b.Cluster = klog.KRef(s.cluster.Namespace, s.cluster.Name).String()
	}
	var err error
	b.membership, err = s.decidePool()
	b.checkRoleLabels(s)
	if s.config == nil {
		b.Message = "none: no PoolbootConfig has this Node, so Poolboot neither booted it nor manages it"
		if err != nil {
			b.addTask("correct the labels of Node " + s.node.Name + ": " + err.Error())
		}
		b.compare(s, &registration.Registration{})
		return b
	}
	b.PoolbootConfig, b.Timeline, b.Message = klog.KObj(s.config).String(), record.Moments(s.config), outlook.Message(s.config)
	b.Stage, b.Since = record.StageOf(s.config)
	b.Addresses = boots.ListAddresses(s.config)
	if b.Host == "" && s.config.Status.HostRef.IsDefined() {
		b.Host = s.config.Status.HostRef.Namespace + "/" + s.config.Status.HostRef.Name
	}
	b.addVerdict(s)
	if served := s.config.Status.Boot.ServedConfiguration.Name; !record.IsBootComplete(s.config) {
		b.runsNothing = "nothing: the host has not booted"
		if served != "" {
			b.runsNothing = "nothing: the host boots with " + served + ", and has not joined"
		}
		b.runsNothing += fmt.Sprintf(". See its console, and its stage with kubectl poolboot boots %s -n %s", s.config.Name, s.config.Namespace)
	}
	b.addMetal3Tasks(s)
	if err != nil {
		b.addTask(err.Error())
		return b
	}
	b.compareConfiguration(s)
	if record.IsAsFound(s.config) { // its Node has nothing of the pool
		b.compare(s, &registration.Registration{})
		return b
	}
	report := rollout.ReportOf(s.node)
	for _, unit := range slices.Concat(report.FailingUnits, report.MissingUnits) {
		b.addTask(unit.String())
	}
	registered, err := s.register(b.Pool, synced)
	if err != nil {
		b.addTask(err.Error())
	} else {
		b.compare(s, registered)
		if of, err := pool.OfRole(s.pools, b.Pool); err == nil {
			if warning := registration.MachineTaintWarning(s.machine, of, s.config); warning != "" {
				b.addTask(warning)
			}
		}
		b.compareRules(s, registered)
	}
	return b
}

// checkRoleLabels adds what to do about role labels of the Node that no pool selects, with which no Machine would boot.
func (b *bootReport) checkRoleLabels(s *subject) {
	if s.node == nil || s.config != nil && s.config.Spec.PoolRole != "" { // then role labels need not name pools
		return
	}
	decision, err := pool.Decide(s.node.Labels, s.pools)
	isWindows := s.node.Labels[corev1.LabelOSStable] == string(corev1.Windows)
	if err != nil || decision.ControlPlane || isWindows || pool.IsCustom(decision.Role) {
		return
	}
	if unselected := pool.UnselectedLabels(s.node.Labels, s.pools); len(unselected) > 0 {
		b.addTask(fmt.Sprintf("correct or remove %s of Node %s, or create its pool: no pool selects this label", strings.Join(unselected, " and "), s.node.Name))
	}
}

// compareRules adds what to do if the Node lacks labels that the rules of its pool give to new hosts: rules are
// evaluated only when a host boots, and this one booted into another pool, or before the pool had them.
func (b *bootReport) compareRules(s *subject, expected *registration.Registration) {
	of, err := pool.OfRole(s.pools, b.Pool)
	if err != nil || s.node == nil {
		return
	}
	rules, lacking := nodelabels.OfPool(of), []string(nil)
	for _, result := range s.evaluate(rules) {
		_, isExpected := expected.Labels[result.Key]
		if _, exists := s.node.Labels[result.Key]; result.Outcome == nodelabels.Set && !exists && !isExpected {
			lacking = append(lacking, result.Key+"="+result.Value)
		}
	}
	if len(lacking) > 0 {
		b.addTask(fmt.Sprintf("kubectl label node %s %s: %s gives them to hosts that boot in the pool, and this Node does not have them",
			s.node.Name, strings.Join(lacking, " "), rules.From))
	}
}

// compareConfiguration adds the rendered config of the host and the one that its pool hands out, and what to do when a
// joined host has another one, as the pool's condition Updated reports it. A host with an agent follows by itself, and
// its own condition Updated describes what to do if it cannot.
func (b *bootReport) compareConfiguration(s *subject) {
	b.Configuration, b.Reboot = s.config.Status.Boot.ServedConfiguration.Name, s.reboot
	of, err := pool.OfRole(s.pools, b.Pool)
	if err == nil && of.Status.Configuration.IsDefined() {
		b.PoolConfiguration, b.Pinned = of.Status.Configuration.Name, rollout.DescribePin(of)
	}
	updated := conditions.Get(s.config, bootstrapv1.UpdatedCondition)
	if updated != nil {
		b.Update = updated.Reason + ": " + updated.Message
		if err == nil {
			b.Update = rollout.Resolve(b.Update, of)
		}
	}
	if err == nil {
		b.addException(rollout.ExceptionOf(of, s.config.Status.NodeRef.Name, time.Now()))
	}
	if b.Stage == record.StageAsFound {
		b.Configuration = agentv1.AsFoundConfig
	}
	if s.config.Status.Update.DesiredRevision == "" && !record.IsAdopted(s.config) && b.Stage.IsAfterBoot() && b.PoolConfiguration != "" && !pool.HasSameContent(b.Configuration, b.PoolConfiguration) {
		b.addTask(fmt.Sprintf("%s runs another configuration than pool %s hands out: %s", outlook.OwnerOf(s.config), b.Pool, pool.Boot{Config: s.config, Machine: s.machine, Pools: s.pools}.HowToRenew()))
	}
}

// addException adds the exception of the pool for the host, which can be nil, unless the condition Updated has it.
func (b *bootReport) addException(e *poolv1.UpdateException) {
	if e == nil {
		return
	}
	if does := rollout.DescribeException(e); !strings.Contains(b.Update, does) {
		b.Update += ". Exception: " + does
	}
}

// addVerdict adds what a person has to do because of the conditions of the host, and those of its pool. Once the host
// is in a pool, that is what rollout status says: an update can explain why its Node is not Ready.
func (b *bootReport) addVerdict(s *subject) {
	of, err := pool.OfRole(s.pools, s.config.Status.PoolRole)
	isFollowed := err == nil && rollout.IsInPool(of.Spec.PoolRole, s.config)
	reason := conditions.GetReason(s.config, clusterv1.ReadyCondition)
	isInVerdict := isFollowed && (reason == conditions.GetReason(s.config, bootstrapv1.NodeInPoolCondition) || reason == conditions.GetReason(s.config, bootstrapv1.PoolDecidedCondition))
	if outlook.NeedsAction(conditions.Get(s.config, clusterv1.ReadyCondition)) && !isInVerdict {
		b.Todo = append(b.Todo, b.Message)
	}
	if isFollowed {
		b.Todo = append(b.Todo, status.ToDo(of, s.config)...)
	}
}

// addTask adds what a person has to do, unless a condition reports it already.
func (b *bootReport) addTask(text string) {
	if !slices.ContainsFunc(b.Todo, func(other string) bool { return strings.Contains(other, text) }) {
		b.Todo = append(b.Todo, text)
	}
}

// compare adds the labels and taints that a Node should have, and the further ones that it has.
func (b *bootReport) compare(s *subject, expected *registration.Registration) {
	node := cmp.Or(s.node, &corev1.Node{})
	for _, key := range slices.Sorted(maps.Keys(expected.Labels)) {
		value, exists := node.Labels[key]
		label := nodeProperty{Text: key + "=" + expected.Labels[key], From: expected.LabelSources[key], State: StatePresent}
		overwrites := s.labelSyncConflict(label, key, expected.Labels[key])
		if overwrites != "" {
			b.addTask(overwrites)
		}
		switch {
		case s.node == nil:
			label.State = ""
		case !exists && overwrites != "":
			label.State = StateMissing
		case !exists:
			label.State = StateMissing
			b.addTask(fmt.Sprintf("kubectl label node %s %s: %s declares it, and the Node does not have it", node.Name, label.Text, label.From[0]))
		case value != expected.Labels[key] && (registration.IsReported(key) || overwrites != ""): // the kubelet or Metal3 sets it
			label.State, label.Value = StateDiffers, value
		case value != expected.Labels[key]:
			label.State, label.Value = StateDiffers, value
			b.addTask(fmt.Sprintf("kubectl label node %s %s --overwrite, or change %s: %q was set by %s, and Poolboot does not overwrite it",
				node.Name, label.Text, label.From[0], value, s.labelOwner(key)))
		}
		b.Labels = append(b.Labels, label)
	}
	for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
		if _, declared := expected.Labels[key]; !declared {
			b.Labels = append(b.Labels, nodeProperty{Text: key + "=" + node.Labels[key], From: []string{s.labelOwner(key) + ", on the Node"}, State: StatePresent})
		}
	}
	b.compareTaints(s, node, expected)
}

func (b *bootReport) compareTaints(s *subject, node *corev1.Node, expected *registration.Registration) {
	for i := range expected.Taints {
		taint := &expected.Taints[i]
		shown := nodeProperty{Text: taint.ToString(), From: expected.TaintSources[taint.ToString()], State: StatePresent}
		at := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(taint) })
		passing := taint.Key == poolv1.NodeUnassignedTaint || taint.Key == clusterv1.NodeUninitializedTaint.Key
		switch {
		case s.node == nil:
			shown.State = ""
		case at < 0 && passing:
			shown.State = StateRemoved
		case slices.Contains(shown.From, registration.MachineTaintsSource) && (at < 0 || node.Spec.Taints[at].Value != taint.Value):
			shown.State = StateMissing
			b.addTask(fmt.Sprintf("start Cluster API with --feature-gates=MachineTaintPropagation=true, or read its log: the Node does not have the taint %s of %s",
				shown.Text, registration.MachineTaintsSource))
		case at < 0:
			shown.State = StateMissing
			b.addTask(fmt.Sprintf("kubectl taint node %s %s: it was removed, and Poolboot does not add it again", node.Name, shown.Text))
		case node.Spec.Taints[at].Value != taint.Value:
			shown.State, shown.Value = StateDiffers, node.Spec.Taints[at].Value
			b.addTask(fmt.Sprintf("kubectl taint node %s %s --overwrite, or change %s: the Node has the value %q, which Poolboot does not overwrite", node.Name, shown.Text, shown.From[0], shown.Value))
		case slices.Contains(shown.From, registration.MachineTaintsSource) && !keepsMachineTaints(node):
			b.addTask(fmt.Sprintf("start Cluster API with --feature-gates=MachineTaintPropagation=true, or remove the taint %s from the Machine and with kubectl taint node %s %[1]s-: without the feature gate, "+
				"Cluster API does not remove it from the Node", shown.Text, node.Name))
		case passing && b.Stage == record.StageReady:
			b.addTask(fmt.Sprintf("read the log of %s: the Node is Ready and still has the taint %s", taintOwner(taint.Key), shown.Text))
		}
		b.Taints = append(b.Taints, shown)
	}
	for i := range node.Spec.Taints {
		taint := &node.Spec.Taints[i]
		if !slices.ContainsFunc(expected.Taints, func(t corev1.Taint) bool { return t.MatchTaint(taint) }) {
			from := cmp.Or(strings.Join(expected.TaintSources[taint.ToString()], " and "), taintOwner(taint.Key))
			b.Taints = append(b.Taints, nodeProperty{Text: taint.ToString(), From: []string{from}, State: StatePresent})
		}
	}
}

// keepsMachineTaints reports whether Cluster API keeps the taints of the Machine on a Node, or has not seen it yet: it
// notes which ones, also if there are none, together with its labels.
func keepsMachineTaints(node *corev1.Node) bool {
	return metav1.HasAnnotation(node.ObjectMeta, clusterv1.TaintsFromMachineAnnotation) || !metav1.HasAnnotation(node.ObjectMeta, clusterv1.LabelsFromMachineAnnotation)
}

// taintOwner returns the program that sets taints with a key. The API server records only one owner of all taints.
func taintOwner(key string) string {
	switch {
	case strings.HasPrefix(key, "node.kubernetes.io/"):
		return "Kubernetes, by the Node's conditions"
	case strings.HasPrefix(key, "node.cluster.x-k8s.io/"):
		return "Cluster API"
	case strings.HasPrefix(key, poolv1.GroupVersion.Group+"/"):
		return "Poolboot's manager"
	}
	return byPoolboot + ", or another client, on the Node"
}

// byPoolboot says who set a label that is declared with another value now, or not any more.
const byPoolboot = "Poolboot, as declared earlier"

// labelOwner returns the field manager that set a label on the Node, as the API server recorded it.
func (s *subject) labelOwner(key string) string {
	var last *metav1.ManagedFieldsEntry
	for i := range s.node.ManagedFields {
		entry := &s.node.ManagedFields[i]
		var fields map[string]any
		if entry.FieldsV1 == nil || kjson.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if _, owns, _ := unstructured.NestedFieldNoCopy(fields, "f:metadata", "f:labels", "f:"+key); owns && (last == nil || last.Time.Before(entry.Time)) {
			last = entry
		}
	}
	switch {
	case last == nil:
		return "unknown client"
	case last.Manager == join.FieldManager:
		return byPoolboot
	case last.Manager == "manager": // the name of the program of most controllers
		return `a controller (field manager "manager")`
	}
	return last.Manager
}

// addMetal3Tasks adds what a person has to do because Metal3 does not get on with the host.
func (b *bootReport) addMetal3Tasks(s *subject) {
	if s.trouble != "" {
		b.Todo = append(b.Todo, s.trouble+". Metal3 tries again by itself: if it fails again, check the BMC and the console of the host, its image, and the log of the baremetal-operator")
	}
	b.Todo = append(b.Todo, s.missingSecrets...)
}

// labelSyncConflict returns what to do about a label that Metal3 sets to another value than it is declared with, again
// each time that it is set. It returns "" for all other labels.
func (s *subject) labelSyncConflict(label nodeProperty, key, value string) string {
	prefix := s.labelSync.PrefixOf(key)
	if prefix == "" || s.bmh == nil {
		return ""
	}
	does := "removes the label from the Node, because BareMetalHost " + klog.KObj(s.bmh).String() + " does not have it"
	switch synced, has := s.bmh.Labels[key]; {
	case has && synced == value:
		return ""
	case has:
		does = fmt.Sprintf("sets it to %q, as on BareMetalHost %s", synced, klog.KObj(s.bmh))
	}
	return fmt.Sprintf("%s declares %s, and every minute Metal3 %s: annotation %s of Metal3Cluster %s has its prefix %s. "+
		"Use another prefix for the label, remove the prefix from the annotation, or: kubectl -n %s label baremetalhost %s %s --overwrite",
		label.From[0], label.Text, does, host.LabelSyncAnnotation, s.labelSync.Metal3Cluster, prefix, s.bmh.Namespace, s.bmh.Name, label.Text)
}
