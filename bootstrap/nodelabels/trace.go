package nodelabels

import (
	"fmt"
	"strconv"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// Fact is a fact that an expression read.
type Fact struct {
	// Path is the fact as an expression names it, for example host.labels["rack"].
	Path string `json:"path"`
	// Value is the value of the fact. A string is quoted and cut, and a list or map is shown as its size. The value is
	// "missing" if the host does not have the fact.
	Value string `json:"value"`
}

// missing is the value of a fact that does not exist.
const missing = "missing"

// maxShown is the maximum number of characters that are shown of a string.
const maxShown = 80

// factsRead returns the facts that an expression read, each once, in the order of the expression.
func (p *program) factsRead(state interpreter.EvalState) []Fact {
	var facts []Fact
	seen := sets.New[string]()
	var visit func(ast.NavigableExpr)
	visit = func(e ast.NavigableExpr) {
		path, ok := factPath(e)
		value, evaluated := state.Value(e.ID())
		if !ok || !evaluated {
			for _, child := range e.Children() {
				visit(child)
			}
			return
		}
		if !seen.Has(path) {
			seen.Insert(path)
			facts = append(facts, Fact{Path: path, Value: formatValue(value)})
		}
	}
	visit(ast.NavigateAST(p.ast))
	return facts
}

// factPath returns the path of a fact if an expression is only the name of that fact.
func factPath(e ast.Expr) (string, bool) {
	switch e.Kind() {
	case ast.IdentKind:
		_, ok := variables[e.AsIdent()]
		return e.AsIdent(), ok
	case ast.SelectKind:
		of, ok := factPath(e.AsSelect().Operand())
		if e.AsSelect().IsTestOnly() {
			return "has(" + of + "." + e.AsSelect().FieldName() + ")", ok
		}
		return of + "." + e.AsSelect().FieldName(), ok
	case ast.CallKind:
		call := e.AsCall()
		if len(call.Args()) != 2 || call.Args()[1].Kind() != ast.LiteralKind {
			return "", false
		}
		of, ok := factPath(call.Args()[0])
		at := call.Args()[1].AsLiteral()
		switch call.FunctionName() {
		case operators.Index, operators.OptIndex:
			return of + "[" + formatValue(at) + "]", ok
		case operators.OptSelect:
			return fmt.Sprintf("%s.%v", of, at.Value()), ok
		}
	}
	return "", false
}

// formatValue returns a value as it is displayed to users. It has no characters that control a terminal.
func formatValue(value ref.Val) string {
	switch value := value.(type) {
	case types.String:
		return quote(string(value))
	case *types.Optional:
		if value.HasValue() {
			return formatValue(value.GetValue())
		}
		return missing
	case *types.Err:
		return missing
	case traits.Mapper:
		return fmt.Sprintf("{%v entries}", value.Size())
	case traits.Lister:
		return fmt.Sprintf("[%v items]", value.Size())
	default:
		return fmt.Sprint(value.Value())
	}
}

// printable returns the start of a message in one line that prints. The message can contain strings of the host.
func printable(message string) string { return excerpt.Line(message, 4*maxShown) }

// quote returns a string in quotes, cut to maxShown characters.
func quote(text string) string {
	if short := truncate(text, maxShown); short != text {
		return strconv.Quote(short) + "…"
	}
	return strconv.Quote(text)
}
