package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/utils/lru"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

const (
	// MaxObject is the maximum size of an object, in bytes of JSON.
	MaxObject = 256 << 10

	// maxCost limits the cost of an evaluation, as Kubernetes counts it. An evaluation with this cost takes well below
	// a second.
	maxCost = 200_000

	// maxTime is the safeguard for what the cost does not count. It is checked between the iterations of loops.
	maxTime = 2 * time.Second
	// interruptCheckFrequency is the number of iterations after which an evaluation checks its deadline.
	interruptCheckFrequency = 16

	// objectVariable is the variable of an expression.
	objectVariable = "object"
)

// language is that of gates.
var language = nodelabels.NewLanguage(checkShape, environment.VersionedOptions{EnvOptions: []cel.EnvOption{cel.Variable(objectVariable, cel.DynType)}})

// compiled caches the most recently used expressions.
var compiled = lru.New(256)

// program is a compiled expression.
type program struct {
	cel.Program
	ast *cel.Ast
}

// CheckGates returns the mistakes in the gates of a pool. The path is that of the list.
func CheckGates(gates []poolv1.UpdateGate, path *field.Path) (errs field.ErrorList) {
	for i, gate := range gates {
		at, object := path.Index(i), gate.ObjectRef
		if version, err := schema.ParseGroupVersion(object.APIVersion); err != nil {
			errs = append(errs, field.Invalid(at.Child("objectRef", "apiVersion"), object.APIVersion, "it must be a group and a version, such as apps/v1"))
		} else if isSecret(version.WithKind(object.Kind)) {
			errs = append(errs, field.Forbidden(at.Child("objectRef", "kind"), "a gate can't read Secrets: use an object whose status is not secret"))
		}
		if _, err := compile(gate.Expression); err != nil {
			errs = append(errs, field.Invalid(at.Child("expression"), field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}

// isSecret reports whether a kind is that of Secrets. Other groups can also store secrets in a kind of this name.
// Clients of Kubernetes find a resource by its kind in lower case, too.
func isSecret(kind schema.GroupVersionKind) bool { return strings.EqualFold(kind.Kind, "Secret") }

// compile returns the program of an expression. The error starts with its position.
func compile(expression string) (*program, error) {
	if cached, ok := compiled.Get(expression); ok {
		return cached.(*program), nil
	}
	env, checked, err := language.Compile(expression)
	if err != nil {
		return nil, err
	}
	if !checked.OutputType().IsExactType(cel.BoolType) {
		return nil, nodelabels.ErrorAtStart(fmt.Sprintf("the result is of type %s, and must be of type bool: compare it, for example with == true", cel.FormatCELType(checked.OutputType())))
	}
	made, err := env.Program(checked, cel.EvalOptions(cel.OptTrackCost), cel.CostTracking(&library.CostEstimator{}), cel.CostLimit(maxCost),
		cel.InterruptCheckFrequency(interruptCheckFrequency))
	if err != nil {
		return nil, nodelabels.ErrorAtStart(err.Error())
	}
	p := &program{Program: made, ast: checked}
	compiled.Add(expression, p)
	return p, nil
}

// ClosedGate reports why a gate is closed.
type ClosedGate struct {
	// Reason is that of the condition UpdateGatesOpen.
	Reason string
	// Why is the message of the condition. It contains no values of the object.
	Why string
}

// EvaluateGate returns why a gate is closed for an object, or nil if it is open.
func EvaluateGate(ctx context.Context, gate *poolv1.UpdateGate, object map[string]any) *ClosedGate {
	p, err := compile(gate.Expression)
	if err != nil {
		return unreadable(gate, fmt.Sprintf("its expression can't be used: %s: correct it", err))
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	result, _, err := p.ContextEval(ctx, map[string]any{objectVariable: object})
	switch {
	case err != nil:
		return unreadable(gate, fmt.Sprintf("its expression fails for %s%s: test with has() for fields that can be missing, compare values of one type, "+
			"and do not nest loops over long lists", DescribeObject(gate.ObjectRef), p.positionOf(err)))
	case result != types.True:
		return &ClosedGate{poolv1.GateClosedReason, fmt.Sprintf("the gate %s is closed: its expression is false for %s", gate.Name, DescribeObject(gate.ObjectRef))}
	}
	return nil
}

// positionOf returns where an evaluation failed. The message of the error is not used, because it can contain values.
func (p *program) positionOf(err error) string {
	failed, ok := errors.AsType[*types.Err](err)
	if !ok {
		return ""
	}
	at := p.ast.NativeRep().SourceInfo().GetStartLocation(failed.NodeID())
	if at.Line() < 1 {
		return ""
	}
	return fmt.Sprintf(" at %d:%d", at.Line(), at.Column()+1)
}

// UnreadableGate returns why a gate is closed whose object was not read.
func UnreadableGate(gate *poolv1.UpdateGate, err error) *ClosedGate {
	object := DescribeObject(gate.ObjectRef)
	switch {
	case apierrors.IsNotFound(err):
		return unreadable(gate, object+" does not exist: create it, or correct objectRef")
	case apierrors.IsForbidden(err):
		return unreadable(gate, fmt.Sprintf("the user %s of the workload cluster can't get %s: give it this right", poolv1.UpdateGatesUser, object))
	case meta.IsNoMatchError(err):
		return unreadable(gate, fmt.Sprintf("the workload cluster has no kind %s in %s: correct objectRef", gate.ObjectRef.Kind, gate.ObjectRef.APIVersion))
	}
	return unreadable(gate, object+" can't be read: correct objectRef, and set its namespace if the kind has namespaces")
}

// UnansweredGate returns why a gate is closed whose object could not be read because the API server did not answer, and
// for how long.
func UnansweredGate(gate *poolv1.UpdateGate, since time.Duration) *ClosedGate {
	return unreadable(gate, fmt.Sprintf("the API server has not answered a request for %s for more than %s: check the server of this kind", DescribeObject(gate.ObjectRef), since.Round(time.Second)))
}

// TooLargeGate returns why a gate is closed whose object has more than MaxObject bytes.
func TooLargeGate(gate *poolv1.UpdateGate) *ClosedGate {
	return unreadable(gate, fmt.Sprintf("%s has more than %d bytes: use a smaller object", DescribeObject(gate.ObjectRef), MaxObject))
}

// InvalidGate returns why a gate is closed that Check refuses. A user can store it while the webhook does not run.
func InvalidGate(gate *poolv1.UpdateGate, errs field.ErrorList) *ClosedGate {
	return unreadable(gate, errs.ToAggregate().Error())
}

func unreadable(gate *poolv1.UpdateGate, why string) *ClosedGate {
	return &ClosedGate{poolv1.GateUnreadableReason, fmt.Sprintf("the gate %s can't be read, so it is closed: %s", gate.Name, why)}
}

// DescribeObject returns kind, namespace and name of an object.
func DescribeObject(o poolv1.UpdateGateObjectReference) string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	return cmp.Or(o.Kind, "object") + " " + name
}

// HasGates reports whether hosts of a pool begin updates only while gates are open. The control plane always has one.
func HasGates(p *poolv1.MachineConfigPool) bool {
	return len(p.Spec.Updates.Gates) > 0 || pool.IsOfControlPlane(*p)
}

// isHeldByPools reports whether a reason of the condition UpdateGatesOpen is none of a gate, and the pool can still
// have it.
func isHeldByPools(p *poolv1.MachineConfigPool, reason string) bool {
	return reason == poolv1.EarlierPoolsPendingReason || reason == poolv1.ClusterLimitReason || reason == poolv1.CanaryPendingReason && p.Spec.Updates.Canary.IsDefined()
}

// HoldOfGates returns why a gate, other pools of the cluster, or a canary prevent hosts of a pool from beginning
// updates, from the condition of the pool, or "".
func HoldOfGates(p *poolv1.MachineConfigPool) string {
	c := meta.FindStatusCondition(p.Status.Conditions, poolv1.UpdateGatesOpenCondition)
	if c == nil || c.Status != "False" || !isHeldByPools(p, c.Reason) && !HasGates(p) {
		return ""
	}
	return c.Message
}

// WaitsForTurn begins, and SeePlan ends what the condition Updated of a host says that could begin its update. It does
// not say what holds the host, because the condition is not written again whenever another host begins or ends, or a
// gate opens or closes: a pool can have thousands of such hosts.
const WaitsForTurn = "waits for its turn"

// SeePlan says how to see what holds a host of a pool.
func SeePlan(p *poolv1.MachineConfigPool) string { return ": see " + Command("plan", p) }

// Resolve replaces what a message says about waiting for a turn with why a gate of the pool is closed, if one is.
func Resolve(message string, p *poolv1.MachineConfigPool) string {
	why := HoldOfGates(p)
	if !strings.HasSuffix(message, SeePlan(p)) || why == "" {
		return message
	}
	text, _, _ := strings.Cut(message, WaitsForTurn)
	return strings.TrimSuffix(text, SeePlan(p)) + why
}

// maxAdditions is the maximum number of operators + in an expression. A list that is a sum is read through all its
// parts.
const maxAdditions = 8

// functions are the macros and functions that a gate can call. The results of others, such as replace and join, can be
// strings of gigabytes for an object of the maximum size, or contain a value several times.
var functions = sets.New("has", "all", "exists", "exists_one", "filter", "contains", "startsWith", "endsWith", "matches", "size",
	"int", "uint", "double", "string", "bool", "bytes", "dyn", "type", "of", "none", "ofNonZeroValue", "or", "orValue", "value", "hasValue",
	"timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes",
	"getSeconds", "getMilliseconds", "quantity", "isQuantity", "isInteger", "asInteger", "asApproximateFloat", "sign", "add", "sub",
	"isLessThan", "isGreaterThan", "compareTo", "isSorted", "sum", "min", "max")

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
			ofSets := e.AsCall().IsMemberFunction() && e.AsCall().Target().Kind() == celast.IdentKind && e.AsCall().Target().AsIdent() == "sets"
			if unicode.IsLetter(rune(function[0])) && !functions.Has(function) || ofSets {
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
