package nodelabels

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/utils/lru"
)

// ExpressionError reports why an expression cannot be used.
type ExpressionError struct {
	// Line and Column are the position of the mistake in the expression, counted from 1.
	Line, Column int
	// Problem describes the mistake.
	Problem string
}

// Error starts with <line>:<column>.
func (e *ExpressionError) Error() string {
	return fmt.Sprintf("%d:%d: %s", e.Line, e.Column, e.Problem)
}

// ErrorAt returns an error with the position of a part of an expression.
func ErrorAt(a *celast.AST, part celast.Expr, problem string) *ExpressionError {
	return errorAtLocation(a.SourceInfo().GetStartLocation(part.ID()), problem)
}

// ErrorAtStart returns an error about a whole expression.
func ErrorAtStart(problem string) *ExpressionError {
	return &ExpressionError{Line: 1, Column: 1, Problem: problem}
}

func errorAtLocation(location common.Location, problem string) *ExpressionError {
	return &ExpressionError{Line: max(location.Line(), 1), Column: max(location.Column(), 0) + 1, Problem: problem}
}

// Check compiles an expression. It returns an *ExpressionError if the expression cannot be used.
func Check(expression string) error {
	_, err := compile(expression)
	return err
}

// program is a compiled expression.
type program struct {
	ast *celast.AST
	// bounded stops at maxCost. traced records the values that it reads. It does not stop, because the library does not
	// count costs while it records values. So it runs only after bounded has finished.
	bounded, traced cel.Program
}

// language is that of label rules.
var language = NewLanguage(checkCopies, func() (of environment.VersionedOptions) {
	for name, declared := range variables {
		of.EnvOptions = append(of.EnvOptions, cel.Variable(name, declared.CelType()))
		of.DeclTypes = append(of.DeclTypes, declared)
	}
	return of
}())

// compiled caches the most recently used expressions. All Machines of a pool have the same ones.
var compiled = lru.New(1024)

// compile returns the program of an expression, from the cache if it is there.
func compile(expression string) (*program, error) {
	if cached, ok := compiled.Get(expression); ok {
		return cached.(*program), nil
	}
	env, checked, err := language.Compile(expression)
	if err != nil {
		return nil, err
	}
	if err := checkExpression(env, checked); err != nil {
		return nil, err
	}
	p, err := newProgram(env, checked)
	if err != nil {
		return nil, ErrorAtStart(printable(err.Error()))
	}
	compiled.Add(expression, p)
	return p, nil
}

// firstError returns the first mistake that the compiler found, with what to do.
func firstError(issues *cel.Issues) *ExpressionError {
	first := issues.Errors()[0]
	problem := strings.TrimSuffix(printable(first.Message), " (in container '')") // there are no containers
	remedy := "correct the expression"
	switch {
	case strings.HasPrefix(problem, "undefined field"), strings.HasPrefix(problem, "undeclared reference"):
		remedy = "correct the name"
	case strings.HasPrefix(problem, "found no matching overload"):
		remedy = "convert its operands, for example with string(…)"
	}
	return errorAtLocation(first.Location, problem+": "+remedy)
}

func newProgram(env *cel.Env, checked *cel.Ast) (*program, error) {
	bounded, err := env.Program(checked, cel.CostLimit(maxCost), cel.InterruptCheckFrequency(interruptCheckFrequency))
	if err != nil {
		return nil, err
	}
	traced, err := env.Program(checked, cel.EvalOptions(cel.OptTrackState), cel.InterruptCheckFrequency(interruptCheckFrequency))
	if err != nil {
		return nil, err
	}
	return &program{ast: checked.NativeRep(), bounded: bounded, traced: traced}, nil
}

// maxTime is the maximum time of one evaluation. The cost limit stops every expression long before, also on a busy
// machine. maxTime is the safeguard for a wrong estimate. The library checks it between the iterations of loops, so it
// does not interrupt a function call.
const maxTime = 5 * time.Second

// interruptCheckFrequency is the number of loop iterations after which an evaluation checks its deadline.
const interruptCheckFrequency = 16

// eval evaluates the expression, and also returns the facts that it read.
func (p *program) eval(facts Facts) (ref.Val, []Fact, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), maxTime, fmt.Errorf("it took longer than %s", maxTime))
	defer cancel()
	return p.evalWithin(ctx, facts)
}

func (p *program) evalWithin(ctx context.Context, facts Facts) (ref.Val, []Fact, error) {
	value, _, err := p.bounded.ContextEval(ctx, facts.values)
	var stopped interpreter.EvalCancelledError
	switch {
	case errors.Is(err, interpreter.InterruptError{}):
		return nil, nil, context.Cause(ctx)
	case errors.As(err, &stopped):
		return nil, nil, err
	}
	_, details, _ := p.traced.ContextEval(ctx, facts.values) // has the same result
	return value, p.factsRead(details.State()), err
}
