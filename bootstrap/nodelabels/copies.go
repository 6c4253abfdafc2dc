package nodelabels

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
)

// maxCopies is the maximum number of macros in an expression that copy what they are called on. With each of them in a
// chain, the parsed expression can double, so four make it at most 16 times as large.
const maxCopies = 4

// copyingMacros are the macros of Kubernetes' CEL environment that copy what they are called on.
var copyingMacros = []string{"optMap", "optFlatMap"}

// macroFree returns the environment of expressions without macros. In it, parsing takes memory in proportion to the
// length of an expression.
var macroFree = sync.OnceValues(func() (*cel.Env, error) {
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	return env.Extend(cel.ClearMacros())
})

// CheckCopies refuses an expression with too many macros that copy what they are called on. The parser itself copies,
// so its input is an expression that was not parsed. The error is an *ExpressionError if the expression is wrong.
func CheckCopies(expression string) error {
	env, err := macroFree()
	if err != nil {
		return err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return FirstError(issues)
	}
	a := parsed.NativeRep()
	calls := celast.MatchDescendants(celast.NavigateAST(a), func(e celast.NavigableExpr) bool {
		return e.Kind() == celast.CallKind && slices.Contains(copyingMacros, e.AsCall().FunctionName())
	})
	if len(calls) > maxCopies {
		slices.SortFunc(calls, func(x, y celast.NavigableExpr) int {
			atX, atY := a.SourceInfo().GetStartLocation(x.ID()), a.SourceInfo().GetStartLocation(y.ID())
			return cmp.Or(cmp.Compare(atX.Line(), atY.Line()), cmp.Compare(atX.Column(), atY.Column()))
		})
		return errorAt(a, calls[maxCopies], fmt.Sprintf("an expression can call optMap and optFlatMap at most %d times: "+
			"they copy what they are called on", maxCopies))
	}
	return nil
}
