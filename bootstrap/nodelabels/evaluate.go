package nodelabels

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Outcome is the effect of a rule on one host.
type Outcome string

const (
	// Set means that the Node gets the label.
	Set Outcome = "Set"
	// Skipped means that a fact is missing, and the Node does not get the label.
	Skipped Outcome = "Skipped"
	// Blocked means that a fact is missing, and the host waits until the fact exists.
	Blocked Outcome = "Blocked"
	// Invalid means that the result is not a label value, or that the expression fails for this host. The host waits
	// until the rule or the fact is corrected.
	Invalid Outcome = "Invalid"
)

// Blocks reports whether a host with this outcome gets no configuration.
func (o Outcome) Blocks() bool { return o == Blocked || o == Invalid }

// Result is the result of a rule for one host.
type Result struct {
	// Key is the key of the label.
	Key string `json:"key"`
	// Outcome is the effect of the rule.
	Outcome Outcome `json:"outcome"`
	// Value is the value of the label. It is empty if the label is not set.
	Value string `json:"value"`
	// Why explains the outcome. It contains strings of the host quoted and cut.
	Why string `json:"why"`
	// From names the object and the field that has the rule.
	From string `json:"from"`
	// Facts are the facts that the expression read.
	Facts []Fact `json:"facts,omitempty"`
}

// Evaluate evaluates each rule on its own with the facts about a host. The same rules and facts have the same results.
func Evaluate(facts Facts, rules ...Rules) []Result {
	var results []Result
	for _, of := range rules {
		for _, rule := range of.Rules {
			result := evaluate(rule, facts)
			result.From = of.From
			results = append(results, result)
		}
	}
	return results
}

// Blocking returns a *BlockedError if a result blocks the host, and nil otherwise.
func Blocking(results []Result) error {
	blocked := slices.DeleteFunc(slices.Clone(results), func(r Result) bool { return !r.Outcome.Blocks() })
	if len(blocked) == 0 {
		return nil
	}
	return &BlockedError{Results: blocked}
}

// BlockedError reports that rules prevent a host from getting its configuration.
type BlockedError struct {
	// Results are the results that block the host.
	Results []Result
}

// Missing reports whether only missing facts block the host. The host continues when the facts exist, and no rule needs
// a correction.
func (e *BlockedError) Missing() bool {
	return !slices.ContainsFunc(e.Results, func(r Result) bool { return r.Outcome != Blocked })
}

// Limits of the text of a BlockedError, which must fit into an event: the number of rules, and the characters for each.
const (
	maxRules   = 3
	maxMessage = 280
)

// Error names the object, field and key of each rule, with the problem and the remedy.
func (e *BlockedError) Error() string {
	var rules []string
	for _, r := range e.Results[:min(len(e.Results), maxRules)] {
		rules = append(rules, truncate(fmt.Sprintf("%s[%s]: %s", r.From, r.Key, r.Why), maxMessage))
	}
	if more := len(e.Results) - maxRules; more > 0 {
		rules = append(rules, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(rules, "; ")
}

func evaluate(rule nodev1.NodeLabelRule, facts Facts) Result {
	result := Result{Key: rule.Key, Outcome: Invalid}
	p, err := compile(rule.ValueExpression)
	if err != nil {
		result.Why = fmt.Sprintf("valueExpression:%v", err)
		return result
	}
	value, factsRead, err := p.eval(facts)
	result.Facts = factsRead
	if optional, ok := value.(*types.Optional); ok {
		if value = optional.GetValue(); !optional.HasValue() {
			err = errNone
		}
	}
	switch {
	case err != nil && isMissing(err):
		return withoutFact(rule, result, err, facts.hostKind)
	case err != nil:
		result.Why = fmt.Sprintf("valueExpression fails for this host: %s%s: correct it, or return optional.none() for hosts to which it does not apply",
			printable(err.Error()), listFacts(result.Facts))
		return result
	}
	text, _ := value.(types.String)
	return withValue(rule, result, string(text))
}

// withValue returns the result of a rule whose expression returned a string.
func withValue(rule nodev1.NodeLabelRule, result Result, text string) Result {
	problems := validation.IsValidLabelValue(text)
	switch {
	case len(problems) == 0:
		result.Outcome, result.Value = Set, text
		if result.Why = strings.TrimPrefix(listFacts(result.Facts), ", "); result.Why == "" {
			result.Why = "the expression read no facts of the host"
		}
	case rule.WhenInvalid() != nodev1.OnInvalidSanitize:
		result.Why = fmt.Sprintf("%s is not a valid label value: %s: correct valueExpression or the fact, or set onInvalid: Sanitize", quote(text), problems[0])
	default:
		if result.Value = sanitize(text); result.Value == "" {
			result.Why = fmt.Sprintf("%s has no characters that a label value can contain: correct valueExpression or the fact", quote(text))
			return result
		}
		result.Outcome = Set
		result.Why = fmt.Sprintf("sanitized from %s%s", quote(text), listFacts(result.Facts))
	}
	return result
}

// withoutFact returns the result of a rule whose expression read a fact that does not exist.
func withoutFact(rule nodev1.NodeLabelRule, result Result, err error, of record.HostKind) Result {
	what, path := printable(err.Error()), ""
	if at := slices.IndexFunc(result.Facts, func(f Fact) bool { return f.Value == missing }); at >= 0 {
		path = result.Facts[at].Path
		what = path + " is missing"
	}
	result.Outcome, result.Why = Skipped, what+listFacts(result.Facts)
	if rule.WhenMissing() == nodev1.OnMissingBlock {
		result.Outcome, result.Why = Blocked, what+": "+missingFactRemedy(path, of)+listFacts(result.Facts)
	}
	return result
}

// missingFactRemedy returns how to provide a missing fact, or what to do instead, for a kind of host.
func missingFactRemedy(path string, of record.HostKind) string {
	const skip = "set onMissing: Skip"
	variable, _, _ := strings.Cut(path, ".")
	switch {
	case variable == clusterVariable:
		return "add this fact to the Cluster, or " + skip
	case variable == machineVariable && (of == record.BareMetalHost || of == record.EnrolledHost || of == record.AdoptedHost):
		return "the host has no Machine: " + skip
	case variable == machineVariable:
		return "add this fact to the Machine, or " + skip
	case variable == hostVariable && (of == record.EnrolledHost || of == record.AdoptedHost):
		return "the host enrolled and has no BareMetalHost, so host.name is its only fact: " + skip
	case variable == hostVariable:
		return "add this fact to the BareMetalHost, or " + skip
	}
	return "correct valueExpression or the fact, or " + skip
}

// listFacts returns the list of the facts that exist, as the end of a sentence.
func listFacts(facts []Fact) string {
	list := ""
	for _, fact := range facts {
		if fact.Value != missing {
			list += ", " + fact.Path + " = " + fact.Value
		}
	}
	return list
}

// errNone is the error of an expression that returns an empty optional value.
var errNone = errors.New("the expression returned optional.none()")

// isMissing reports whether an evaluation failed because a key, a list item or an optional value does not exist. The
// library has no types for these errors.
func isMissing(err error) bool {
	if errors.Is(err, errNone) {
		return true
	}
	prefixes := []string{"no such key", "index out of bounds", "optional.none() dereference"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(err.Error(), prefix) })
}

// Rules are the rules in a field of an object.
type Rules struct {
	// From names the object and the field, for example "MachineConfigPool metal/infra spec.node.labelRules".
	From string
	// Rules are the value of the field.
	Rules []nodev1.NodeLabelRule
}

// OfPool returns the rules of a pool.
func OfPool(p *poolv1.MachineConfigPool) Rules {
	return Rules{From: "MachineConfigPool " + klog.KObj(p).String() + " spec.node.labelRules", Rules: p.Spec.Node.LabelRules}
}

// OfConfig returns the rules of a PoolbootConfig.
func OfConfig(c *bootstrapv1.PoolbootConfig) Rules {
	return Rules{From: "PoolbootConfig " + klog.KObj(c).String() + " spec.node.labelRules", Rules: c.Spec.Node.LabelRules}
}

// OfTemplate returns the rules of the PoolbootConfigs that are created from a template.
func OfTemplate(t *bootstrapv1.PoolbootConfigTemplate) Rules {
	return Rules{From: "PoolbootConfigTemplate " + klog.KObj(t).String() + " spec.template.spec.node.labelRules", Rules: t.Spec.Template.Spec.Node.LabelRules}
}

// sanitize converts a string to a label value, as OnInvalidSanitize specifies. It returns "" if nothing remains.
func sanitize(text string) string {
	value := strings.Join(strings.FieldsFunc(text, isInvalidInLabel), "-")
	return strings.Trim(value[:min(len(value), validation.LabelValueMaxLength)], "-_.")
}

// isInvalidInLabel reports whether a label value cannot contain a character.
func isInvalidInLabel(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
}
