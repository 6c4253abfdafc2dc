package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Fields of a pool that are shown first, in this order. All others follow by their names.
const (
	configSelector     = "machineConfigSelector"
	nodeSelectorField  = "nodeSelector"
	nodeLabelField     = "node.labels"
	nodeTaintField     = "node.taints"
	nodeLabelRuleField = "node.labelRules"
	hostTemplateField  = "hosts.templateRef"
	policyField        = "updates.disruptionPolicy"
	pausedField        = "paused"
)

var declaredFields = []string{configSelector, nodeSelectorField, nodeLabelField, nodeTaintField, nodeLabelRuleField, hostTemplateField, policyField, pausedField}

// declaration is one thing in the spec of a pool.
type declaration struct {
	field string
	// key is that of a label, or of a taint with its effect, or what a policy is for; empty for a field that has one
	// value.
	key string
}

// declaredChange is a declaration that is added, removed or changed. Before or after is nil when there is none.
type declaredChange struct {
	declaration
	before, after *string
}

// compareDeclared returns the declarations that change; before is nil for a new pool. A pool in which no Node could be
// registered is an error.
func compareDeclared(before *poolv1.MachineConfigPool, after poolv1.MachineConfigPool) ([]declaredChange, error) {
	from, to := map[declaration]string{}, listDeclarations(after)
	if before != nil {
		from = listDeclarations(*before)
	}
	all := maps.Clone(from)
	maps.Copy(all, to)
	order := func(field string) int {
		if i := slices.Index(declaredFields, field); i >= 0 {
			return i
		}
		return len(declaredFields)
	}
	var changes []declaredChange
	for d := range all {
		c := declaredChange{declaration: d}
		if value, ok := from[d]; ok {
			c.before = &value
		}
		if value, ok := to[d]; ok {
			c.after = &value
		}
		if !ptr.Equal(c.before, c.after) {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b declaredChange) int {
		return cmp.Or(order(a.field)-order(b.field), cmp.Compare(a.field, b.field), cmp.Compare(a.key, b.key))
	})
	if len(changes) == 0 {
		return nil, nil
	}
	_, err := pool.Labels(after)
	return changes, err
}

// listDeclarations returns what the spec of a pool declares, as text. Its Cluster and role never change.
func listDeclarations(p poolv1.MachineConfigPool) map[declaration]string {
	declared := map[declaration]string{{field: nodeSelectorField}: metav1.FormatLabelSelector(pool.NodeSelector(p))}
	for key, value := range p.Spec.Node.Labels {
		declared[declaration{nodeLabelField, key}] = value
	}
	for _, taint := range p.Spec.Node.Taints {
		declared[declaration{nodeTaintField, taint.Key + ":" + string(taint.Effect)}] = taint.Value
	}
	for _, rule := range p.Spec.Node.LabelRules {
		declared[declaration{nodeLabelRuleField, rule.Key}] =
			fmt.Sprintf("%s (onMissing: %s, onInvalid: %s)", rule.ValueExpression, rule.WhenMissing(), rule.WhenInvalid())
	}
	if p.Spec.Hosts.TemplateRef.Name != "" {
		declared[declaration{field: hostTemplateField}] = p.Spec.Hosts.TemplateRef.Name
	}
	policy := p.Spec.Updates.DisruptionPolicy
	for _, file := range policy.Files {
		declared[declaration{policyField, file.Path}] = update.Summary(pool.UpdateActions(file.Actions))
	}
	for _, unit := range policy.Units {
		declared[declaration{policyField, string(unit.Name)}] = update.Summary(pool.UpdateActions(unit.Actions))
	}
	if len(policy.SSHKeys.Actions) > 0 {
		declared[declaration{policyField, "SSH keys"}] = update.Summary(pool.UpdateActions(policy.SSHKeys.Actions))
	}
	if p.Spec.IsPaused() {
		declared[declaration{field: pausedField}] = strconv.FormatBool(true)
	}
	if p.Spec.MachineConfigSelector != nil {
		declared[declaration{field: configSelector}] = metav1.FormatLabelSelector(p.Spec.MachineConfigSelector)
	}
	others := p.Spec
	others.ClusterName, others.PoolRole, others.MachineConfigSelector, others.NodeSelector, others.Paused = "", "", nil, nil, nil
	others.Node, others.Hosts.TemplateRef, others.Updates.DisruptionPolicy = nodev1.NodeSettings{}, poolv1.HostTemplateReference{}, poolv1.DisruptionPolicy{}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&others)
	utilruntime.Must(err) // it was read from JSON
	addFields(declared, "", fields)
	return declared
}

// addFields adds the fields below a path, with a list as one value.
func addFields(declared map[declaration]string, path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			addFields(declared, strings.TrimPrefix(path+"."+key, "."), v)
		}
	case string:
		declared[declaration{field: path}] = value
	default:
		text, err := json.Marshal(value)
		utilruntime.Must(err) // as above
		declared[declaration{field: path}] = string(text)
	}
}

// String returns the change as one line.
func (c declaredChange) String() string {
	name := strings.TrimSpace(c.field + " " + c.key)
	switch {
	case c.before == nil:
		return "+ " + name + ": " + quoteEmpty(*c.after)
	case c.after == nil:
		return "- " + name + ": " + quoteEmpty(*c.before)
	}
	return "~ " + name + ": " + quoteEmpty(*c.before) + " -> " + quoteEmpty(*c.after)
}

// quoteEmpty quotes an empty value.
func quoteEmpty(value string) string {
	if value == "" {
		return `""`
	}
	return value
}

// describe returns what the change means for Nodes: the manager only adds labels and taints to existing Nodes.
func (c declaredChange) describe() []string {
	switch c.field {
	case nodeSelectorField:
		if c.before != nil {
			return []string{"existing Nodes move to the pool that then selects their labels"}
		}
	case nodeLabelField:
		switch {
		case c.after == nil:
			return []string{"existing Nodes keep the label; Nodes that register later do not get it"}
		case c.before == nil:
			return []string{"existing Nodes without the label get it; Nodes with another value keep it"}
		}
		return []string{"existing Nodes with the label keep their value; Nodes without it get the new value"}
	case nodeTaintField:
		switch {
		case c.after == nil:
			return []string{"existing Nodes keep the taint; Nodes that register later do not get it"}
		case c.before == nil:
			return []string{"existing Nodes get the taint once; Nodes that have a taint with this key and effect keep its value", c.describePods()}
		}
		return []string{"existing Nodes with the taint keep its value; Nodes without it get the new value", c.describePods()}
	case nodeLabelRuleField:
		return []string{"applies to hosts that boot later; existing Nodes keep their labels"}
	case policyField:
		return []string{"applies to every later change of the config"}
	}
	return nil
}

// describePods returns what a taint does to Pods.
func (c declaredChange) describePods() string {
	switch _, effect, _ := strings.Cut(c.key, ":"); corev1.TaintEffect(effect) {
	case corev1.TaintEffectNoExecute:
		return "on Nodes that get the taint, Pods that do not tolerate it are evicted, and new ones are not scheduled"
	case corev1.TaintEffectPreferNoSchedule:
		return "the scheduler avoids Nodes that get the taint for new Pods that do not tolerate it"
	default:
		return "on Nodes that get the taint, new Pods that do not tolerate it are not scheduled; running Pods stay"
	}
}

// affectsNodes reports whether a difference affects existing Nodes.
func affectsNodes(d difference) bool {
	return slices.ContainsFunc(d.declared, func(c declaredChange) bool {
		return c.field == nodeSelectorField || c.field == nodeLabelField || c.field == nodeTaintField
	})
}

// restartsKubelet reports whether changes of a pool's spec change the flags of its hosts' kubelets, which are in each
// host's own part of the configuration.
func restartsKubelet(changes []declaredChange, before, after poolv1.MachineConfigPool) bool {
	flags := func(p poolv1.MachineConfigPool) []string {
		labels, _ := pool.Labels(p) // none if no Node can be registered
		return registration.Registration{Labels: labels}.KubeletArgs()
	}
	return slices.ContainsFunc(changes, func(c declaredChange) bool { return c.field == nodeTaintField }) || !slices.Equal(flags(before), flags(after))
}
