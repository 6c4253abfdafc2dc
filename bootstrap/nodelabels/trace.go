package nodelabels

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// Fact is something that an expression looked at.
type Fact struct {
	// Path is the fact as one writes it in an expression, for example host.labels["rack"].
	Path string `json:"path"`
	// Value is its value: texts are quoted and cut, of lists and maps it is their size. It is "missing" when the host
	// does not have it.
	Value string `json:"value"`
}

// missing is the value of a fact that is not there.
const missing = "missing"

// maxShown is how much of a text is shown, in characters.
const maxShown = 80

// factsRead are the facts that an expression looked at, each once, in the order in which it names them.
func (p *program) factsRead(state interpreter.EvalState) []Fact {
	var facts []Fact
	seen := map[string]bool{}
	var visit func(ast.NavigableExpr)
	visit = func(e ast.NavigableExpr) {
		path, ok := factPath(e)
		value, looked := state.Value(e.ID())
		if !ok || !looked {
			for _, child := range e.Children() {
				visit(child)
			}
			return
		}
		if !seen[path] {
			seen[path] = true
			facts = append(facts, Fact{Path: path, Value: shown(value)})
		}
	}
	visit(ast.NavigateAST(p.ast))
	return facts
}

// factPath is the path of a fact that an expression names, if it names one and no more.
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
			return of + "[" + shown(at) + "]", ok
		case operators.OptSelect:
			return fmt.Sprintf("%s.%v", of, at.Value()), ok
		}
	}
	return "", false
}

// shown is a value as people are shown it: nothing in it can do anything to a terminal.
func shown(value ref.Val) string {
	switch value := value.(type) {
	case types.String:
		return quoted(string(value))
	case *types.Optional:
		if value.HasValue() {
			return shown(value.GetValue())
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

// printable is a message without what would do something to a terminal: it may hold texts of the host.
func printable(message string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, cut(message, 4*maxShown))
}

// quoted is a text in quotes, cut to what is worth showing.
func quoted(text string) string {
	if short := cut(text, maxShown); short != text {
		return strconv.Quote(short) + "…"
	}
	return strconv.Quote(text)
}
