package rollout

import (
	"fmt"
	"unicode"

	celast "github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
)

// maxAdditions is the maximum number of operators + in an expression. A list that is a sum is read through all its
// parts.
const maxAdditions = 8

// functions are the macros and functions that a gate can call. The results of others, such as replace and join, can be
// strings of gigabytes for an object of the maximum size, or contain a value several times.
var functions = sets.New("has", "all", "exists", "exists_one", "filter", "contains", "startsWith", "endsWith", "matches", "size",
	"int", "uint", "double", "string", "bool", "bytes", "dyn", "type", "of", "none", "ofNonZeroValue", "or", "orValue", "value", "hasValue",
	"timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes",
	"getSeconds", "getMilliseconds", "quantity", "isQuantity", "isInteger", "asInteger", "asApproximateFloat", "sign", "add", "sub",
	"isLessThan", "isGreaterThan", "compareTo", "isSorted", "sum", "min", "max", "indexOf", "lastIndexOf")

// checkShape refuses an expression that can make a value which contains another one several times. Each step of
// [1].map(a, [a, a]).map(a, [a, a]) costs little and doubles what a comparison looks at, and a comparison can't be
// interrupted. So the values of an expression are constants, and parts of the object.
func checkShape(a *celast.AST) *nodelabels.ExpressionError {
	additions := 0
	refuse := func(e celast.Expr, why string) *nodelabels.ExpressionError { return nodelabels.ErrorAt(a, e, why) }
	for _, e := range celast.MatchDescendants(celast.NavigateAST(a), celast.AllMatcher()) {
		switch e.Kind() {
		case celast.CallKind:
			function := e.AsCall().FunctionName()
			if unicode.IsLetter(rune(function[0])) && !functions.Has(function) {
				return refuse(e, function+" is not available, because it could make values that are too large or take too long to compare: use exists, all or filter")
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
