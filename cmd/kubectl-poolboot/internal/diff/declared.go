package diff

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// Fields of a pool that say what its Nodes carry, in the order in which they are shown.
const (
	nodeSelectorField  = "nodeSelector"
	nodeLabelField     = "nodeLabel"
	nodeTaintField     = "nodeTaint"
	nodeLabelRuleField = "nodeLabelRule"
	hostTemplateField  = "hostTemplateRef"
	pausedField        = "paused"
)

var declaredFields = []string{nodeSelectorField, nodeLabelField, nodeTaintField, nodeLabelRuleField, hostTemplateField, pausedField}

// declaration is one thing that a pool declares beside its config.
type declaration struct {
	field string
	// key is that of a label, or of a taint with its effect; empty for a field that has one value.
	key string
}

// declaredChange is a declaration that a pool gains, loses or changes. A side that does not have it is nil.
type declaredChange struct {
	declaration
	before, after *string
	// effect is a taint's.
	effect corev1.TaintEffect
}

// compareDeclared returns what a pool declares differently beside the config; before is nil for a new one. A pool that
// no Node could be registered in is an error.
func compareDeclared(before *poolv1.MachineConfigPool, after poolv1.MachineConfigPool) ([]declaredChange, error) {
	from, to := map[declaration]declared{}, declarationsOf(after)
	if before != nil {
		from = declarationsOf(*before)
	}
	all := maps.Clone(from)
	maps.Copy(all, to)
	var changes []declaredChange
	for found := range all {
		c := declaredChange{declaration: found}
		if value, has := from[found]; has {
			c.before, c.effect = &value.text, value.effect
		}
		if value, has := to[found]; has {
			c.after, c.effect = &value.text, value.effect
		}
		if c.before == nil || c.after == nil || *c.before != *c.after {
			changes = append(changes, c)
		}
	}
	slices.SortFunc(changes, func(a, b declaredChange) int {
		return cmp.Or(slices.Index(declaredFields, a.field)-slices.Index(declaredFields, b.field), cmp.Compare(a.key, b.key))
	})
	if len(changes) == 0 {
		return nil, nil
	}
	_, err := pool.Labels(after)
	return changes, err
}

// declared is what a declaration says.
type declared struct {
	text   string
	effect corev1.TaintEffect
}

func declarationsOf(p poolv1.MachineConfigPool) map[declaration]declared {
	of := map[declaration]declared{}
	of[declaration{field: nodeSelectorField}] = declared{text: metav1.FormatLabelSelector(pool.NodeSelector(p))}
	for key, value := range p.Spec.NodeLabels {
		of[declaration{nodeLabelField, key}] = declared{text: value}
	}
	for _, taint := range p.Spec.NodeTaints {
		of[declaration{nodeTaintField, taint.Key + ":" + string(taint.Effect)}] = declared{text: taint.Value, effect: taint.Effect}
	}
	for _, rule := range p.Spec.NodeLabelRules {
		of[declaration{nodeLabelRuleField, rule.Key}] = declared{text: fmt.Sprintf("%s (onMissing: %s, onInvalid: %s)", rule.ValueExpression, rule.WhenMissing(), rule.WhenInvalid())}
	}
	if p.Spec.HostTemplateRef.Name != "" {
		of[declaration{field: hostTemplateField}] = declared{text: p.Spec.HostTemplateRef.Name}
	}
	if p.Spec.IsPaused() {
		of[declaration{field: pausedField}] = declared{text: strconv.FormatBool(true)}
	}
	return of
}

// String names what changes, with its value where only one side has it.
func (c declaredChange) String() string {
	name := c.field
	if c.key != "" {
		name += " " + c.key
	}
	switch {
	case c.before == nil:
		return "+ " + name + ": " + quoteEmpty(*c.after)
	case c.after == nil:
		return "- " + name + ": " + quoteEmpty(*c.before)
	}
	return "~ " + name + ": " + quoteEmpty(*c.before) + " -> " + quoteEmpty(*c.after)
}

// quoteEmpty makes an empty value visible.
func quoteEmpty(value string) string {
	if value == "" {
		return `""`
	}
	return value
}

// consequences say what the manager makes of the change, by what it does with existing Nodes: it only adds.
func (c declaredChange) consequences() []string {
	switch c.field {
	case nodeSelectorField:
		if c.before != nil {
			return []string{"existing Nodes go to the pool that their labels select then"}
		}
	case nodeLabelField:
		switch {
		case c.after == nil:
			return []string{"existing Nodes keep the label; Nodes that are registered later do not get it"}
		case c.before == nil:
			return []string{"existing Nodes without the label get it; one that has another value keeps that"}
		}
		return []string{"existing Nodes that have the label keep their value; those without it get the new one"}
	case nodeTaintField:
		switch {
		case c.after == nil:
			return []string{"existing Nodes keep the taint; Nodes that are registered later do not get it"}
		case c.before == nil:
			return []string{"existing Nodes get it, once; one that has a taint of this key and effect keeps its value", c.onPods()}
		}
		return []string{"existing Nodes that have the taint keep its value; those without it get the new one", c.onPods()}
	case nodeLabelRuleField:
		return []string{"counts for hosts that boot later; existing Nodes keep their labels"}
	}
	return nil
}

// onPods says what a taint does to Pods.
func (c declaredChange) onPods() string {
	switch c.effect {
	case corev1.TaintEffectNoExecute:
		return "Pods that do not tolerate it are evicted from Nodes that get it, and new ones are not scheduled there"
	case corev1.TaintEffectPreferNoSchedule:
		return "the scheduler avoids Nodes that get it for new Pods that do not tolerate it"
	case corev1.TaintEffectNoSchedule:
	}
	return "new Pods that do not tolerate it are not scheduled to Nodes that get it; Pods that run there stay"
}

// reachesNodes says whether a change concerns Nodes that exist.
func reachesNodes(changes []declaredChange) bool {
	return slices.ContainsFunc(changes, func(c declaredChange) bool {
		return c.field == nodeSelectorField || c.field == nodeLabelField || c.field == nodeTaintField
	})
}
