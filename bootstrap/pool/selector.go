package pool

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// requirement is one requirement of a selector, with the path of its field.
type requirement struct {
	path string
	metav1.LabelSelectorRequirement
}

// requirementsOf returns the requirements of a selector: those of matchLabels in the order of their keys, then those of
// matchExpressions.
func requirementsOf(selector *metav1.LabelSelector) (requirements []requirement) {
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		requirements = append(requirements, requirement{"spec.nodeSelector.matchLabels", metav1.LabelSelectorRequirement{
			Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{selector.MatchLabels[key]}}})
	}
	for i, expression := range selector.MatchExpressions {
		requirements = append(requirements, requirement{fmt.Sprintf("spec.nodeSelector.matchExpressions[%d]", i), expression})
	}
	return requirements
}

// isNegative reports whether a requirement only excludes labels.
func (t requirement) isNegative() bool {
	return t.Operator == metav1.LabelSelectorOpNotIn || t.Operator == metav1.LabelSelectorOpDoesNotExist
}

func (t requirement) String() string {
	switch {
	case t.Operator == metav1.LabelSelectorOpIn && len(t.Values) == 1:
		return t.Key + "=" + t.Values[0]
	case len(t.Values) > 0:
		return fmt.Sprintf("%s %s [%s]", t.Key, t.Operator, strings.Join(t.Values, ", "))
	}
	return fmt.Sprintf("%s %s", t.Key, t.Operator)
}

// matches reports whether labels satisfy the requirement.
func (t requirement) matches(of map[string]string) bool {
	selector, err := selectorOf(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{t.LabelSelectorRequirement}})
	return err == nil && selector.Matches(labels.Set(of))
}

// Rejection is a requirement of a pool's node selector that labels do not satisfy.
type Rejection struct {
	// Path is the requirement's field, and Requirement is its text.
	Path, Requirement string
	// Key is the key of the label.
	Key string
}

// FindRejection returns the first requirement of a pool's node selector that labels do not satisfy, or nil if they
// satisfy all.
func FindRejection(p poolv1.MachineConfigPool, of map[string]string) *Rejection {
	for _, t := range requirementsOf(NodeSelector(p)) {
		if !t.matches(of) {
			return &Rejection{Path: t.path, Requirement: t.String(), Key: t.Key}
		}
	}
	return nil
}

// CanShareNode reports whether a Node can have labels that both pools select: it can unless the requirements of both
// for some label contradict each other. A malformed selector is a *SelectorError.
func CanShareNode(a, b poolv1.MachineConfigPool) (bool, error) {
	byKey, selectable := map[string][]requirement{}, true
	for _, p := range []poolv1.MachineConfigPool{a, b} {
		selector, err := nodeSelector(p)
		if err != nil {
			return false, err
		}
		_, selectsAny := selector.Requirements()
		selectable = selectable && selectsAny
		for _, t := range requirementsOf(NodeSelector(p)) {
			byKey[t.Key] = append(byKey[t.Key], t)
		}
	}
	for _, of := range byKey {
		if !isSatisfiable(of) {
			return false, nil
		}
	}
	return selectable, nil
}

// isSatisfiable reports whether some value of a label, or its absence, satisfies all requirements. All are about the
// same label.
func isSatisfiable(terms []requirement) bool {
	key, longest := terms[0].Key, ""
	candidates := []map[string]string{nil, {key: ""}}
	for _, t := range terms {
		for _, value := range t.Values {
			candidates = append(candidates, map[string]string{key: value})
			longest = slices.MaxFunc([]string{longest, value}, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
		}
	}
	candidates = append(candidates, map[string]string{key: longest + "x"}) // a value that no requirement names
	return slices.ContainsFunc(candidates, func(of map[string]string) bool {
		return !slices.ContainsFunc(terms, func(t requirement) bool { return !t.matches(of) })
	})
}

// nodeSelector returns the pool's node selector in a form that can be evaluated.
func nodeSelector(p poolv1.MachineConfigPool) (labels.Selector, error) {
	selector, err := selectorOf(NodeSelector(p))
	if err != nil {
		return nil, &SelectorError{Pool: p.Name, Path: "spec.nodeSelector", Err: err}
	}
	return selector, nil
}

// selectorOf returns a selector that, unlike that of Kubernetes, matches nothing if it is empty.
func selectorOf(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil || len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 {
		return labels.Nothing(), nil
	}
	return metav1.LabelSelectorAsSelector(selector)
}
