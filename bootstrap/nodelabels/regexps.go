package nodelabels

import (
	"fmt"
	"math"
	"regexp/syntax"

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

// Unlimited is the length of a text without a limit.
const Unlimited = -1

// RegexpSize is the maximum cost of a regular expression.
type RegexpSize struct {
	// Instructions is the maximum number of instructions of the compiled program.
	Instructions int
	// Longest is the number of characters of the longest text that the expression matches. It is Unlimited if there is
	// no limit.
	Longest int
	// Anchored is true if the expression matches only at the start of a text.
	Anchored bool
}

// MeasureRegexp measures a regular expression in the syntax of package regexp. It returns an error if the expression is
// not valid.
func MeasureRegexp(expression string) (RegexpSize, error) {
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return RegexpSize{}, fmt.Errorf("%q is not a valid regular expression: %w", expression, err)
	}
	return RegexpSize{
		Instructions: countInstructions(parsed) + 3, // fail at the start, match at the end, and an instruction to search at any position
		Longest:      longestMatch(parsed),
		Anchored:     isAnchored(parsed),
	}, nil
}

// Steps returns the maximum number of steps of one match in a text with this number of characters.
func (m RegexpSize) Steps(characters uint64) uint64 {
	if m.Anchored && m.Longest != Unlimited {
		characters = min(characters, uint64(m.Longest))
	}
	return (characters + 1) * uint64(m.Instructions)
}

// StepsOfAll returns the maximum number of steps to find all matches, or the first limit matches, in a text with this
// number of characters. The search for a match can read ahead as far as the longest match would reach, before it
// returns a shorter match.
func (m RegexpSize) StepsOfAll(characters, limit uint64) uint64 {
	ahead := characters
	if m.Longest != Unlimited {
		ahead = min(ahead, uint64(m.Longest))
	}
	if m.Anchored {
		limit = min(limit, 1)
	}
	return m.Steps(characters) + min(characters+1, limit)*(ahead+1)*uint64(m.Instructions)
}

// countInstructions returns the maximum number of instructions to which regexp/syntax compiles an expression. It
// compiles a repetition as often as the expression can repeat.
func countInstructions(re *syntax.Regexp) int {
	sum := 0
	for _, sub := range re.Sub {
		sum += countInstructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return max(len(re.Rune), 1)
	case syntax.OpCapture, syntax.OpStar:
		return sum + 2
	case syntax.OpPlus, syntax.OpQuest:
		return sum + 1
	case syntax.OpConcat:
		return max(sum, 1)
	case syntax.OpAlternate:
		return sum + len(re.Sub)
	case syntax.OpRepeat:
		copies := re.Max
		if copies < 0 {
			copies = re.Min + 1
		}
		return max(copies, 1) * (sum + 1)
	default:
		return 1
	}
}

// longestMatch returns the length of the longest text that an expression matches, in characters.
func longestMatch(re *syntax.Regexp) int {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpCapture, syntax.OpQuest:
		return longestMatch(re.Sub[0])
	case syntax.OpStar, syntax.OpPlus:
		return repeat(longestMatch(re.Sub[0]), Unlimited)
	case syntax.OpRepeat:
		return repeat(longestMatch(re.Sub[0]), re.Max)
	case syntax.OpConcat, syntax.OpAlternate:
		sum, most := 0, 0
		for _, sub := range re.Sub {
			length := longestMatch(sub)
			if length == Unlimited {
				return Unlimited
			}
			sum, most = sum+length, max(most, length)
		}
		if re.Op == syntax.OpAlternate {
			return most
		}
		return sum
	default: // matches no characters
		return 0
	}
}

// repeat returns the length of a text that is repeated a number of times. Both can be Unlimited.
func repeat(length, times int) int {
	switch {
	case length == 0 || times == 0:
		return 0
	case length == Unlimited || times < 0:
		return Unlimited
	}
	return length * times
}

func isAnchored(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText:
		return true
	case syntax.OpCapture, syntax.OpConcat:
		return len(re.Sub) > 0 && isAnchored(re.Sub[0])
	}
	return false
}
