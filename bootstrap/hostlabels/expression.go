package hostlabels

import (
	"errors"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"
)

// ExpressionError says why an expression can't be used.
type ExpressionError struct {
	// Line and Column are where in the expression the mistake is, counted from 1.
	Line, Column int
	// Problem says what is wrong there.
	Problem string
}

// Error begins with <line>:<column>.
func (e *ExpressionError) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Problem)
}

// Check compiles an expression. The error is an *ExpressionError.
func Check(expression string) error {
	_, err := compile(expression)
	return err
}

// program is an expression that is ready to be evaluated.
type program struct {
	ast *celast.AST
	// bounded is stopped at maxCost. traced keeps the values that it comes across, and is never stopped: the library does
	// not count costs then. So it is run only after bounded came to its end.
	bounded, traced cel.Program
}

// dialect is the version of Kubernetes whose CEL functions there are.
var dialect = version.MajorMinor(1, 36)

// celEnvironment is Kubernetes' CEL with the variables of host labels.
var celEnvironment = sync.OnceValues(func() (*cel.Env, error) {
	options := environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0)}
	for name, declared := range variables {
		options.EnvOptions = append(options.EnvOptions, cel.Variable(name, declared.CelType()))
		options.DeclTypes = append(options.DeclTypes, declared)
	}
	extended, err := environment.MustBaseEnvSet(dialect).Extend(options)
	if err != nil {
		return nil, err
	}
	return extended.NewExpressionsEnv(), nil
})

// compiled keeps the expressions that were used last: a pool's are the same for each of its Machines.
var compiled = lru.New(1024)

// compile returns the program of an expression: the one that was made before, if it is still kept.
func compile(expression string) (*program, error) {
	if kept, has := compiled.Get(expression); has {
		if p, is := kept.(*program); is {
			return p, nil
		}
	}
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	checked, issues := env.Compile(expression)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, &ExpressionError{Line: max(first.Location.Line(), 1), Column: max(first.Location.Column(), 0) + 1, Problem: printable(first.Message)}
	}
	if refused := refusal(env, checked); refused != nil {
		return nil, refused
	}
	p, err := newProgram(env, checked)
	if err != nil {
		return nil, &ExpressionError{Line: 1, Column: 1, Problem: printable(err.Error())}
	}
	compiled.Add(expression, p)
	return p, nil
}

func newProgram(env *cel.Env, checked *cel.Ast) (*program, error) {
	bounded, err := env.Program(checked, cel.CostLimit(maxCost))
	if err != nil {
		return nil, err
	}
	traced, err := env.Program(checked, cel.EvalOptions(cel.OptTrackState))
	if err != nil {
		return nil, err
	}
	return &program{ast: checked.NativeRep(), bounded: bounded, traced: traced}, nil
}

// eval evaluates the expression, and tells what it looked at.
func (p *program) eval(facts Facts) (ref.Val, []Fact, error) {
	value, _, err := p.bounded.Eval(map[string]any(facts))
	var stopped interpreter.EvalCancelledError
	if errors.As(err, &stopped) {
		return nil, nil, err
	}
	_, details, _ := p.traced.Eval(map[string]any(facts)) // comes to the same
	return value, p.factsRead(details.State()), err
}
