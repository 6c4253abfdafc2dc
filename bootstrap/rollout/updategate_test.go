package rollout_test

import (
	"errors"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

func newGate(expression string) *poolv1.UpdateGate {
	return &poolv1.UpdateGate{Name: "storage", Expression: expression, ObjectRef: poolv1.UpdateGateObjectReference{
		APIVersion: "apps/v1", Kind: "Deployment", Namespace: "edge", Name: "store",
	}}
}

// theObject returns an object as the API server returns it.
func theObject() map[string]any {
	return map[string]any{
		"spec": map[string]any{"replicas": int64(3), "token": "hunter2"},
		"status": map[string]any{
			"readyReplicas": int64(3), "ratio": 0.5, "free": "12Gi", "health": "HEALTH_OK",
			"conditions": []any{map[string]any{"type": "Available", "status": "True"}, map[string]any{"type": "Progressing", "status": "False"}},
		},
	}
}

var gatesPath = field.NewPath("spec", "updates", "gates")

var _ = Describe("A gate", func() {
	DescribeTable("is open if its expression is true", func(ctx SpecContext, expression string) {
		Expect(rollout.CheckGates([]poolv1.UpdateGate{*newGate(expression)}, gatesPath)).To(BeEmpty())
		Expect(rollout.EvaluateGate(ctx, newGate(expression), theObject())).To(BeNil())
	},
		Entry("for two fields", `object.status.readyReplicas == object.spec.replicas`),
		Entry("for a text", `object.status.health == "HEALTH_OK"`),
		Entry("for a number of another type", `object.status.ratio < 1 && object.spec.replicas > 2.5`),
		Entry("for a condition", `object.status.conditions.exists(c, c.type == "Available" && c.status == "True")`),
		Entry("for a field that can be missing", `object.?status.?unavailableReplicas.orValue(0) == 0`),
		Entry("for a missing field", `!has(object.status.degraded)`),
		Entry("for a quantity", `quantity(object.status.free).isGreaterThan(quantity("10Gi"))`),
		Entry("for a regular expression", `object.status.health.matches("^HEALTH_(OK|WARN)$")`),
		Entry("for one of several constants", `object.status.health in ["HEALTH_OK", "HEALTH_WARN"] && {"a": [-1, 2]} != object`),
		Entry("for a number of elements", `object.status.conditions.filter(c, c.status == "True").size() + 1 == 2`),
		Entry("for any type that is compared", `dyn(object.spec.replicas) == 3`),
	)

	It("is closed if its expression is false", func(ctx SpecContext) {
		Expect(rollout.EvaluateGate(ctx, newGate(`object.status.readyReplicas > 3`), theObject())).To(Equal(&rollout.ClosedGate{
			Reason: poolv1.GateClosedReason, Why: "the gate storage is closed: its expression is false for Deployment edge/store"}))
	})

	DescribeTable("is refused, with the field and the position of the mistake,", func(ctx SpecContext, expression, message string) {
		Expect(rollout.CheckGates([]poolv1.UpdateGate{*newGate("true"), *newGate(expression)}, gatesPath).ToAggregate()).
			To(MatchError(ContainSubstring("spec.updates.gates[1].expression: Invalid value: " + message)))
		closed := rollout.EvaluateGate(ctx, newGate(expression), theObject())
		Expect(closed).To(And(HaveField("Reason", poolv1.GateUnreadableReason), HaveField("Why", ContainSubstring(message))))
	},
		Entry("if its result is any type", `object.status.ready`, "1:1: the result is of type dyn, and must be of type bool: compare it"),
		Entry("if its result is a text", `"a"`, "1:1: the result is of type string"),
		Entry("if its result is optional", `optional.of(true)`, "1:1: the result is of type optional_type(bool)"),
		Entry("with a wrong syntax", `object.status ==`, "1:17: Syntax error"),
		Entry("with an unknown variable", `self.a == 1`, "1:1: undeclared reference to 'self'"),
		Entry("with a function whose result can be much larger than its arguments", `object.a.replace("", object.b) == ""`, "1:17: replace is not available"),
		Entry("with such a function for lists", `object.list.join(object.a) == ""`, "1:17: join is not available"),
		Entry("with a search in texts of the object, which can't be interrupted", `object.a.indexOf(object.b) < 0`, "1:17: indexOf is not available"),
		Entry("with a function of sets", `sets.contains(object.a, object.b)`, "1:14: contains is not available"),
		Entry("with a format", `"%999999999d".format([1]) == ""`, "1:21: format is not available"),
		Entry("with a list of any length", `lists.range(100000000).size() > 1`, "1:12: range is not available"),
		Entry("with a regular expression from the object", `object.a.matches(object.b)`, "1:24: a regular expression must be a string literal"),
		Entry("with a large regular expression", `object.a.matches("(?:(?:a?){1000}){1}")`, "1:18: the compiled regular expressions"),
		Entry("with a chain of macros that copy", `optional.of(object)`+strings.Repeat(`.optMap(x, x)`, 12)+`.hasValue()`, "1:27: optMap is not available"),
		Entry("with a value that contains itself many times", `[1]`+strings.Repeat(`.map(a, [a, a])`, 40)+`.all(a, a == a)`, "1:12: the entries of a list or a map must be constants"),
		Entry("with a list of copies of another one", `object.list.map(a, object.list) == object.list`, "1:16: map is not available"),
		Entry("with a list that is not constant", `[object, object] == [object, object]`, "1:1: the entries of a list or a map must be constants"),
		Entry("with a map that is not constant", `{"a": {"b": object}} == object`, "1:7: the entries of a list or a map must be constants"),
		Entry("with a message that is not constant", `google.protobuf.ListValue{values: [object]} == object`, "1:35: the entries of a list"),
		Entry("with a long sum", `object.list`+strings.Repeat(` + object.list`, 9)+` == object.list`, "1:125: an expression can have at most 8 operators +"),
	)

	It("can't read a Secret, of any group, and in lower case, by which clients find it too", func() {
		for _, secret := range [][2]string{{"v1", "Secret"}, {"example.com/v1", "Secret"}, {"v1", "secret"}} {
			gate := newGate("true")
			gate.ObjectRef.APIVersion, gate.ObjectRef.Kind = secret[0], secret[1]
			Expect(rollout.CheckGates([]poolv1.UpdateGate{*gate}, gatesPath).ToAggregate()).To(MatchError(And(ContainSubstring("spec.updates.gates[0].objectRef.kind"), ContainSubstring("can't read Secrets"))))
		}
	})

	DescribeTable("can't be read, and the message has no value of the object", func(ctx SpecContext, expression, position string) {
		object := theObject()
		object["list"] = make([]any, 5000)
		for i := range object["list"].([]any) {
			object["list"].([]any)[i] = "hunter2"
		}
		closed := rollout.EvaluateGate(ctx, newGate(expression), object)
		Expect(closed).NotTo(BeNil())
		Expect(closed.Reason).To(Equal(poolv1.GateUnreadableReason))
		Expect(closed.Why).To(HavePrefix("the gate storage can't be read, so it is closed: its expression fails for Deployment edge/store" + position + ": test with has()"))
		Expect(closed.Why).NotTo(ContainSubstring("hunter2"))
	},
		Entry("if a field is missing", `object.status.degraded == false`, " at 1:14"),
		Entry("if the name of a field is a value", `object.status[object.spec.token] == 1`, " at 1:14"),
		Entry("if a value can't be converted", `int(object.spec.token) == 1`, " at 1:4"),
		Entry("if a quantity is wrong", `quantity(object.spec.token).isGreaterThan(quantity("1"))`, " at 1:9"),
		Entry("if types differ", `object.spec.token > 5`, " at 1:19"),
		Entry("if it costs too much", `object.list.all(a, object.list.all(b, a == b))`, ""),
	)

	DescribeTable("is closed if its object can't be read", func(err error, words string) {
		Expect(rollout.UnreadableGate(newGate("true"), err)).To(Equal(&rollout.ClosedGate{
			Reason: poolv1.GateUnreadableReason, Why: "the gate storage can't be read, so it is closed: " + words}))
	},
		Entry("because it does not exist", apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, "hunter2"),
			"Deployment edge/store does not exist: create it, or correct objectRef"),
		Entry("because the user has no right", apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "hunter2", nil),
			"the user poolboot:update-gates of the workload cluster can't get Deployment edge/store: give it this right"),
		Entry("because the kind does not exist", &meta.NoKindMatchError{}, "the workload cluster has no kind Deployment in apps/v1: correct objectRef"),
		Entry("for another reason", errors.New("hunter2"), "Deployment edge/store can't be read: correct objectRef, and set its namespace if the kind has namespaces"),
	)

	It("holds a pool only as long as the pool has gates, and its condition is false", func() {
		p := &poolv1.MachineConfigPool{}
		p.Spec.Updates.Gates = []poolv1.UpdateGate{*newGate("true")}
		Expect(rollout.HoldOfGates(p)).To(BeEmpty())
		p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionFalse, Message: "it is closed"}}
		Expect(rollout.HoldOfGates(p)).To(Equal("it is closed"))
		p.Status.Conditions[0].Status = metav1.ConditionTrue
		Expect(rollout.HoldOfGates(p)).To(BeEmpty())
		p.Status.Conditions[0].Status = metav1.ConditionFalse
		p.Spec.Updates.Gates = nil
		Expect(rollout.HoldOfGates(p)).To(BeEmpty())
	})

	It("is named in what a host says that waits for its turn, only while it is closed", func() {
		p := &poolv1.MachineConfigPool{}
		p.Spec.Updates.Gates = []poolv1.UpdateGate{*newGate("true")}
		p.Status.Conditions = []metav1.Condition{{Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionFalse, Message: "the gate storage is closed"}}
		waits := "Node a runs x, and waits for its turn before its update to y" + rollout.SeePlan(p)
		Expect(rollout.Resolve(waits, p)).To(Equal("Node a runs x, and the gate storage is closed"), "its turn is not what it waits for")
		Expect(rollout.Resolve("Node a reboots", p)).To(Equal("Node a reboots"))
		p.Status.Conditions[0].Status = metav1.ConditionTrue
		Expect(rollout.Resolve(waits, p)).To(Equal(waits))
	})
})
