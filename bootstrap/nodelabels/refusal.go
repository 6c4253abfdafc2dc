package nodelabels

import (
	"fmt"
	"regexp"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
)

// refusal returns why a compiled expression cannot be used in a rule, and nil if it can.
func refusal(env *cel.Env, checked *cel.Ast) *ExpressionError {
	for _, refuse := range []func(*cel.Env, *cel.Ast) *ExpressionError{noText, noOrder, longNumbers, tooCostly} {
		if refused := refuse(env, checked); refused != nil {
			return refused
		}
	}
	return nil
}

// noText refuses an expression whose result is not a string.
func noText(_ *cel.Env, checked *cel.Ast) *ExpressionError {
	result := checked.OutputType()
	if result.IsExactType(cel.StringType) || result.IsExactType(cel.OptionalType(cel.StringType)) {
		return nil
	}
	remedy := "make a text of it with string(…)"
	if result.IsExactType(cel.NullType) {
		remedy = "say optional.none() for no label"
	}
	return &ExpressionError{Line: 1, Column: 1,
		Problem: fmt.Sprintf("it gives %s, and a label's value is a string: %s", cel.FormatCELType(result), remedy)}
}

// noOrder refuses a loop over a map that is not a fact. Such a map has no order, so the result could differ each time.
func noOrder(_ *cel.Env, checked *cel.Ast) *ExpressionError {
	a := checked.NativeRep()
	for _, loop := range celast.MatchDescendants(celast.NavigateAST(a), celast.KindMatcher(celast.ComprehensionKind)) {
		over := loop.AsComprehension().IterRange()
		if _, isFact := factPath(over); a.GetType(over.ID()).Kind() == types.MapKind && !isFact {
			return at(a, over, "a loop over a map of one's own has no order: loop over a list")
		}
	}
	return nil
}

// longNumber matches a precision of 100 digits or more in a format. All these digits would be written to memory.
var longNumber = regexp.MustCompile(`%\.[0-9]{3,}`)

// longNumbers refuses a format that could create a string of any length from one number.
func longNumbers(_ *cel.Env, checked *cel.Ast) *ExpressionError {
	a := checked.NativeRep()
	for _, call := range celast.MatchDescendants(celast.NavigateAST(a), celast.FunctionMatcher("format")) {
		format := call.AsCall().Target()
		literal, ok := "", false
		if format.Kind() == celast.LiteralKind {
			literal, ok = format.AsLiteral().Value().(string)
		}
		if !ok || longNumber.MatchString(literal) {
			return at(a, format, "format is called on something else than a plain text with at most 99 digits of precision")
		}
	}
	return nil
}

// tooCostly refuses an expression whose estimated cost is higher than maxCost.
func tooCostly(env *cel.Env, checked *cel.Ast) *ExpressionError {
	cost, err := env.EstimateCost(checked, newEstimator())
	switch {
	case err != nil:
		return &ExpressionError{Line: 1, Column: 1, Problem: err.Error()}
	case cost.Max <= maxCost:
		return nil
	}
	times := "more than 1000 times"
	if cost.Max/maxCost <= 1000 {
		times = fmt.Sprintf("%.1f times", float64(cost.Max)/maxCost)
	}
	return &ExpressionError{Line: 1, Column: 1, Problem: fmt.Sprintf("it may cost too much, %s the limit of %d: "+
		"don't put loops over lists into each other, and take less of a text before working on it", times, maxCost)}
}

// at returns an error with the position of a part of an expression.
func at(a *celast.AST, part celast.Expr, problem string) *ExpressionError {
	location := a.SourceInfo().GetStartLocation(part.ID())
	return &ExpressionError{Line: max(location.Line(), 1), Column: max(location.Column(), 0) + 1, Problem: problem}
}
