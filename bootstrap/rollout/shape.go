package rollout

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
)

// maxAdditions is the maximum number of operators + in an expression. A list that is a sum is read through all its
// parts.
const maxAdditions = 8

// missingMacros are the macros of CEL that gates do not have.
var missingMacros = map[string]bool{"map": true, "optMap": true, "optFlatMap": true}

// macroFree is the environment of gates without macros, in which an expression is parsed as it is written.
var macroFree = sync.OnceValues(func() (*cel.Env, error) {
	env, err := environment()
	if err != nil {
		return nil, err
	}
	return env.Extend(cel.ClearMacros())
})

// checkShape refuses an expression that can make a value which contains another one several times. Each step of
// [1].map(a, [a, a]).map(a, [a, a]) costs little and doubles what a comparison looks at, and a comparison can't be
// interrupted. So the values of an expression are constants, and parts of the object.
func checkShape(expression string) error {
	env, err := macroFree()
	if err != nil {
		return err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return nodelabels.FirstError(issues)
	}
	a, additions := parsed.NativeRep(), 0
	refuse := func(e celast.Expr, why string) error {
		at := a.SourceInfo().GetStartLocation(e.ID())
		return fmt.Errorf("%d:%d: %s", max(at.Line(), 1), max(at.Column(), 0)+1, why)
	}
	for _, e := range celast.MatchDescendants(celast.NavigateAST(a), celast.AllMatcher()) {
		switch e.Kind() {
		case celast.CallKind:
			function := e.AsCall().FunctionName()
			if missingMacros[function] {
				return refuse(e, function+" is not available, because it can make values that take too long to compare: use exists, all or filter")
			}
			if function == "_+_" {
				additions++
			}
			if additions > maxAdditions {
				return refuse(e, fmt.Sprintf("an expression can have at most %d operators +", maxAdditions))
			}
		case celast.ListKind, celast.MapKind, celast.StructKind:
			if !isConstant(e) {
				return refuse(e, "the entries of a list or a map must be constants, because it can take too long to compare others: compare each value")
			}
		}
	}
	return nil
}

// isConstant reports whether a list or a map consists of constants.
func isConstant(e celast.NavigableExpr) bool {
	return len(celast.MatchDescendants(e, func(part celast.NavigableExpr) bool {
		switch part.Kind() {
		case celast.LiteralKind, celast.ListKind, celast.MapKind, celast.UnspecifiedExprKind:
			return false
		}
		return true
	})) == 0
}
