package nodelabels

import (
	"slices"

	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/operators"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// maxCost is the limit for the cost of an expression: for the estimate with facts of the maximum size, and for each
// evaluation. It is a fifth of what Kubernetes allows for one call. An evaluation with this cost takes well below a
// second, also on a busy machine.
const maxCost = 200_000

// costPerCharacter is the cost of creating one character. It equals the cost that Kubernetes has for reading one.
const costPerCharacter = 0.1

// growingFunctions are the functions, other than +, whose result can be longer than their arguments.
var growingFunctions = []string{"replace", "join", "format", "strings.quote"}

// estimator estimates costs as Kubernetes does, and adds the cost of the strings that growing functions create.
// Kubernetes treats an unknown size as infinite. The estimator uses the largest size that it found before.
type estimator struct {
	kubernetes library.CostEstimator
	largest    uint64
}

func newEstimator() *estimator {
	e := &estimator{largest: maxText}
	e.kubernetes.SizeEstimator = e
	return e
}

// EstimateSize returns the declared size of a fact. For all other expressions, it returns the largest size so far.
func (e *estimator) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	unknown := &checker.SizeEstimate{Max: e.largest}
	path := element.Path()
	if len(path) == 0 {
		return unknown
	}
	t := variables[path[0]]
	for _, step := range path[1:] {
		t = typeOfStep(t, step)
	}
	if t == nil {
		return unknown
	}
	size := uint64(max(t.MaxElements, 0))
	e.observe(size)
	return &checker.SizeEstimate{Max: size}
}

// typeOfStep returns the type of the next step of a path in a type. It returns nil if the step does not exist.
func typeOfStep(t *apiservercel.DeclType, step string) *apiservercel.DeclType {
	if t == nil {
		return nil
	}
	switch step {
	case "@items", "@values":
		return t.ElemType
	case "@keys":
		return t.KeyType
	}
	if field, ok := t.Fields[step]; ok {
		return field.Type
	}
	return t.ElemType // an entry of a map, read as a field
}

// EstimateCallCost estimates the cost of a function call.
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
		e.observe(e.sum(given))
	}
	if !slices.Contains(growingFunctions, function) {
		return estimate
	}
	if estimate == nil {
		estimate = &checker.CallEstimate{CostEstimate: checker.FixedCostEstimate(1)}
	}
	if function != "replace" || estimate.ResultSize == nil {
		// Kubernetes does not estimate this size. Each item of a list can have the largest size so far.
		size := checker.SizeEstimate{Max: e.sum(given)}.Multiply(checker.FixedSizeEstimate(e.largest))
		estimate.ResultSize = &size
	}
	e.observe(estimate.ResultSize.Max)
	estimate.CostEstimate = estimate.Add(estimate.ResultSize.MultiplyByCostFactor(costPerCharacter))
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

// observe remembers a size if it is the largest so far.
func (e *estimator) observe(size uint64) { e.largest = max(e.largest, size) }
