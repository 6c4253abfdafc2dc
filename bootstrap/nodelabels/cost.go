package nodelabels

import (
	"slices"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/operators"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// maxCost is the highest cost that an expression may be estimated at, for facts as large as they can be, and that its
// evaluation may come to. It is a fifth of what Kubernetes allows one call: well below a second, also on a busy
// machine.
const maxCost = 200_000

// perCharacter is what it costs to make one character, as Kubernetes has it for reading one.
const perCharacter = 0.1

// growing are the functions whose result can be longer than what they are given, but for +.
var growing = []string{"replace", "join", "format", "strings.quote"}

// estimator estimates costs as Kubernetes does and, beyond that, counts the texts that growing functions make.
// Kubernetes takes a size that it can't tell for infinite; here nothing is larger than the largest thing that was seen
// on the way.
type estimator struct {
	kubernetes library.CostEstimator
	largest    uint64
}

func newEstimator() *estimator {
	e := &estimator{largest: maxText}
	e.kubernetes.SizeEstimator = e
	return e
}

// EstimateSize is the declared size of a fact.
func (e *estimator) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	unknown := &checker.SizeEstimate{Max: e.largest}
	path := element.Path()
	if len(path) == 0 {
		return unknown
	}
	t := variables[path[0]]
	for _, step := range path[1:] {
		if t == nil {
			return unknown
		}
		t = below(t, step)
	}
	if t == nil {
		return unknown
	}
	size := uint64(max(t.MaxElements, 0))
	e.saw(size)
	return &checker.SizeEstimate{Max: size}
}

// below is the type that one step of a path leads to, nil when it leads nowhere.
func below(t *apiservercel.DeclType, step string) *apiservercel.DeclType {
	switch step {
	case "@items", "@values":
		return t.ElemType
	case "@keys":
		return t.KeyType
	}
	if field, has := t.Fields[step]; has {
		return field.Type
	}
	return t.ElemType // a map's entry, read as a field
}

// EstimateCallCost estimates a call.
func (e *estimator) EstimateCallCost(function, overloadID string, target *checker.AstNode, args []checker.AstNode) *checker.CallEstimate {
	var given []checker.AstNode
	if target != nil {
		given = append(given, *target)
	}
	given = append(given, args...)
	switch function {
	case matchesFunction, findFunction, findAllFunction:
		return e.regexpCost(function, given)
	}
	estimate := e.kubernetes.EstimateCallCost(function, overloadID, target, args)
	if function == operators.Add {
		e.saw(e.sum(given))
	}
	if !slices.Contains(growing, function) {
		return estimate
	}
	if estimate == nil {
		estimate = &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(1)}
	}
	if function != "replace" || estimate.ResultSize == nil {
		// Kubernetes leaves out what it can't tell: here, each item of a list may be as long as anything.
		size := checker.SizeEstimate{Max: e.sum(given)}.Multiply(checker.FixedSizeEstimate(e.largest))
		estimate.ResultSize = &size
	}
	e.saw(estimate.ResultSize.Max)
	estimate.CostEstimate = estimate.Add(estimate.ResultSize.MultiplyByCostFactor(perCharacter))
	return estimate
}

func (e *estimator) sum(nodes []checker.AstNode) uint64 {
	total := checker.SizeEstimate{}
	for _, node := range nodes {
		if size := node.ComputedSize(); size != nil {
			total = total.Add(*size)
		} else {
			total = total.Add(*e.EstimateSize(node))
		}
	}
	return total.Max
}

func (e *estimator) saw(size uint64) { e.largest = max(e.largest, size) }
