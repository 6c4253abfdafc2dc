package nodelabels

import (
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	celast "github.com/google/cel-go/common/ast"
)

// maxInstructions is the maximum number of instructions of all compiled regular expressions of a rule. A typical
// expression has some tens.
const maxInstructions = 1000

// costPerStep is the cost of one instruction for one character. It equals the cost that Kubernetes has for one
// character of a pattern and one character of a text.
const costPerStep = 0.1 * 0.25

// Functions with a regular expression as an argument. The functions replace and split have plain strings.
const (
	matchesFunction = "matches"
	findFunction    = "find"
	findAllFunction = "findAll"
)

// checkRegexps refuses a regular expression that is not a literal, because its cost is unknown, that is not valid, or
// that is too large. Its input is the parsed expression, because the type checker already compiles regular expressions.
func checkRegexps(parsed *cel.Ast) *ExpressionError {
	a := parsed.NativeRep()
	total := 0
	for _, function := range []string{matchesFunction, findFunction, findAllFunction} {
		for _, call := range celast.MatchDescendants(celast.NavigateAST(a), celast.FunctionMatcher(function)) {
			pattern := patternOf(call)
			if pattern == nil {
				continue // the type checker refuses the call
			}
			literal, ok := literalText(pattern)
			if !ok {
				return ErrorAt(a, pattern, "a regular expression must be a string literal")
			}
			measure, err := MeasureRegexp(literal)
			if err != nil {
				return ErrorAt(a, pattern, printable(err.Error())+": correct it")
			}
			if total += measure.Instructions; total > maxInstructions {
				return ErrorAt(a, pattern, fmt.Sprintf("the compiled regular expressions of one rule can have at most %d instructions together, "+
					"and with this one they have %d: use fewer or smaller repetitions {n}", maxInstructions, total))
			}
		}
	}
	return nil
}

// patternOf returns the argument of a call that is the regular expression, and nil if there is none.
func patternOf(call celast.Expr) celast.Expr {
	args := call.AsCall().Args()
	if !call.AsCall().IsMemberFunction() && len(args) > 0 {
		args = args[1:] // matches(text, pattern)
	}
	if len(args) == 0 {
		return nil
	}
	return args[0]
}

func literalText(e celast.Expr) (string, bool) {
	if e.Kind() != celast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	return text, ok
}

// regexpCost estimates the cost of a call with a regular expression from the size of the compiled expression. given are
// the text, the pattern and, for findAll, the maximum number of matches.
func (e *estimator) regexpCost(function string, given []checker.AstNode) *checker.CallEstimate {
	if len(given) < 2 {
		return nil
	}
	literal, _ := literalText(given[1].Expr())
	measure, err := MeasureRegexp(literal)
	if err != nil {
		return nil // checkRegexps refuses it
	}
	characters := e.sum(given[:1])
	steps := measure.Steps(characters)
	result := &checker.CallEstimate{}
	switch function {
	case findFunction:
		result.ResultSize = &checker.SizeEstimate{Max: characters}
	case findAllFunction:
		limit := uint64(math.MaxInt64)
		if len(given) > 2 && given[2].Expr().Kind() == celast.LiteralKind {
			if n, ok := given[2].Expr().AsLiteral().Value().(int64); ok && n >= 0 {
				limit = uint64(n)
			}
		}
		steps = measure.StepsOfAll(characters, limit)
		result.ResultSize = &checker.SizeEstimate{Max: min(characters+1, limit)}
	}
	result.CostEstimate = checker.CostEstimate{Min: 1, Max: 1 + uint64(math.Ceil(float64(steps)*costPerStep))}
	return result
}
