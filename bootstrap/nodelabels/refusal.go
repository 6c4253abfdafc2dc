package nodelabels

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// maxCopies is the maximum number of macros in an expression that copy what they are called on. With each of them in a
// chain, the parsed expression can double, so four make it at most 16 times as large.
const maxCopies = 4

// copyingMacros are the macros of Kubernetes' CEL environment that copy what they are called on.
var copyingMacros = []string{"optMap", "optFlatMap"}

// checkCopies refuses an expression with too many macros that copy what they are called on. The parser itself copies,
// so its input is the expression as it is written.
func checkCopies(written *celast.AST) *ExpressionError {
	calls := celast.MatchDescendants(celast.NavigateAST(written), func(e celast.NavigableExpr) bool {
		return e.Kind() == celast.CallKind && slices.Contains(copyingMacros, e.AsCall().FunctionName())
	})
	if len(calls) <= maxCopies {
		return nil
	}
	slices.SortFunc(calls, func(x, y celast.NavigableExpr) int {
		atX, atY := written.SourceInfo().GetStartLocation(x.ID()), written.SourceInfo().GetStartLocation(y.ID())
		return cmp.Or(cmp.Compare(atX.Line(), atY.Line()), cmp.Compare(atX.Column(), atY.Column()))
	})
	return ErrorAt(written, calls[maxCopies], fmt.Sprintf("an expression can call optMap and optFlatMap at most %d times: "+
		"they copy what they are called on", maxCopies))
}

// checkExpression returns why a compiled expression cannot be used in a rule, and nil if it can.
func checkExpression(env *cel.Env, checked *cel.Ast) *ExpressionError {
	return cmp.Or(checkResultType(checked), checkLoops(checked), checkFormats(checked), checkCost(env, checked))
}

// checkResultType refuses an expression whose result is not a string.
func checkResultType(checked *cel.Ast) *ExpressionError {
	result := checked.OutputType()
	if result.IsExactType(cel.StringType) || result.IsExactType(cel.OptionalType(cel.StringType)) {
		return nil
	}
	remedy := "convert it with string(…)"
	if result.IsExactType(cel.NullType) {
		remedy = "return optional.none() for no label"
	}
	return ErrorAtStart(fmt.Sprintf("the result is of type %s, and a label value is a string: %s", cel.FormatCELType(result), remedy))
}

// checkLoops refuses a loop over a map that is not a fact. Such a map has no order, so the result could differ each
// time.
func checkLoops(checked *cel.Ast) *ExpressionError {
	a := checked.NativeRep()
	for _, loop := range celast.MatchDescendants(celast.NavigateAST(a), celast.KindMatcher(celast.ComprehensionKind)) {
		collection := loop.AsComprehension().IterRange()
		if _, isFact := factPath(collection); a.GetType(collection.ID()).Kind() == types.MapKind && !isFact {
			return ErrorAt(a, collection, "a loop over a map that the expression creates has no order: loop over a list")
		}
	}
	return nil
}

// longPrecision matches a precision of 100 digits or more in a format. All these digits would be written to memory.
var longPrecision = regexp.MustCompile(`%\.[0-9]{3,}`)

// checkFormats refuses a format that could create a string of any length from one number.
func checkFormats(checked *cel.Ast) *ExpressionError {
	a := checked.NativeRep()
	for _, call := range celast.MatchDescendants(celast.NavigateAST(a), celast.FunctionMatcher("format")) {
		format := call.AsCall().Target()
		if literal, ok := literalText(format); !ok || longPrecision.MatchString(literal) {
			return ErrorAt(a, format, "format must be called on a string literal with a precision of at most 99 digits")
		}
	}
	return nil
}

// checkCost refuses an expression whose estimated cost is higher than maxCost.
func checkCost(env *cel.Env, checked *cel.Ast) *ExpressionError {
	cost, err := env.EstimateCost(checked, newEstimator())
	switch {
	case err != nil:
		return ErrorAtStart(err.Error())
	case cost.Max <= maxCost:
		return nil
	}
	times := "more than 1000 times"
	if cost.Max/maxCost <= 1000 {
		times = fmt.Sprintf("%.1f times", float64(cost.Max)/maxCost)
	}
	return ErrorAtStart(fmt.Sprintf("its estimated cost is %s the limit of %d: "+
		"do not nest loops over lists, and shorten strings before you process them", times, maxCost))
}
