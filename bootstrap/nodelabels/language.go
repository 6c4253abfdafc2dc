package nodelabels

import (
	"sync"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/cel/environment"
)

// celVersion is the Kubernetes version whose CEL functions are available.
var celVersion = version.MajorMinor(1, 36)

// Language is the CEL environment of Kubernetes for one kind of expressions.
type Language struct {
	// env has all macros. In plain, which has none, parsing takes memory in proportion to the length of an expression.
	env, plain func() (*cel.Env, error)
	check      func(written *celast.AST) *ExpressionError
}

// NewLanguage returns the language with some variables. check refuses an expression as it is written, before macros are
// replaced.
func NewLanguage(check func(written *celast.AST) *ExpressionError, variables environment.VersionedOptions) *Language {
	variables.IntroducedVersion = version.MajorMinor(1, 0)
	l := &Language{check: check}
	l.env = sync.OnceValues(func() (*cel.Env, error) {
		extended, err := environment.MustBaseEnvSet(celVersion).Extend(variables)
		if err != nil {
			return nil, err
		}
		return extended.NewExpressionsEnv(), nil
	})
	l.plain = sync.OnceValues(func() (*cel.Env, error) {
		env, err := l.env()
		if err != nil {
			return nil, err
		}
		return env.Extend(cel.ClearMacros())
	})
	return l
}

// Compile returns an expression of the language, and its environment. The error is an *ExpressionError if the
// expression cannot be used. It refuses a regular expression before the type checker compiles it.
func (l *Language) Compile(expression string) (*cel.Env, *cel.Ast, error) {
	plain, err := l.plain()
	if err != nil {
		return nil, nil, err
	}
	env, err := l.env()
	if err != nil {
		return nil, nil, err
	}
	written, issues := plain.Parse(expression)
	if issues.Err() != nil {
		return nil, nil, firstError(issues)
	}
	if err := l.check(written.NativeRep()); err != nil {
		return nil, nil, err
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return nil, nil, firstError(issues)
	}
	if err := checkRegexps(parsed); err != nil {
		return nil, nil, err
	}
	checked, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, nil, firstError(issues)
	}
	return env, checked, nil
}
