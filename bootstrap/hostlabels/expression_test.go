package hostlabels

import (
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An expression", func() {
	DescribeTable("that can't be a rule is refused, with the place of the mistake",
		func(expression, message string) {
			err := Check(expression)
			Expect(err).To(BeAssignableToTypeOf(&ExpressionError{}))
			Expect(err).To(MatchError(HavePrefix(message)))
			result := given(theFacts(), expression)
			Expect(result.Outcome).To(Equal(Refused))
			Expect(result.Why).To(HavePrefix("valueExpression:" + message))
		},
		Entry("a field that hosts don't have", `host.nmae`, `1:5: undefined field 'nmae'`),
		Entry("in the third line", "host.name +\n  \"-\" +\n  host.hardware.cpu.cores", `3:20: undefined field 'cores'`),
		Entry("a variable that there is not", `bmh.name`, `1:1: undeclared reference to 'bmh'`),
		Entry("a function that there is not", `host.name.rot13()`, `1:16: undeclared reference to 'rot13'`),
		Entry("an operator between types", `host.name + 5`, `1:11: found no matching overload for '_+_'`),
		Entry("half an expression", `host.name +`, `1:12: Syntax error`),
		Entry("a regular expression that is none", `host.name.find("(")`, "1:1: error parsing regexp: missing closing )"),
		Entry("a number", `host.hardware.cpu.count`, `1:1: it gives int, and a label's value is a string: make a text of it with string(…)`),
		Entry("a bool", `host.hardware.nics.size() > 1`, `1:1: it gives bool`),
		Entry("an object", `host.hardware.cpu`, `1:1: it gives poolboot.CPU`),
		Entry("a list", `host.hardware.cpu.flags`, `1:1: it gives list(string)`),
		Entry("null", `null`, `1:1: it gives null, and a label's value is a string: say optional.none() for no label`),
		Entry("something of any type", `dyn(host.name)`, `1:1: it gives dyn`),
		Entry("an optional number", `host.?hardware.?memoryMebibytes`, `1:1: it gives optional_type(int)`),
		Entry("a loop over a map without order", `"-" + {"a": "b", "c": "d"}.map(k, k).join("")`, `1:7: a loop over a map of one's own has no order: loop over a list`),
		Entry("a format that is not known before", `host.annotations["note"].format([1])`, `1:17: format is called on something else`),
		Entry("a format of any length", `"%.999999f".format([1.5])`, `1:1: format is called on something else`),
	)

	DescribeTable("that may cost too much is refused",
		func(expression string) {
			Expect(Check(expression)).To(MatchError(And(ContainSubstring("it may cost too much"), ContainSubstring("the limit of 200000"))))
		},
		Entry("loops in loops", `host.hardware.disks.all(a, host.hardware.disks.all(b, a.name == b.name)) ? "a" : "b"`),
		Entry("a regular expression out of a fact, in a loop", `host.hardware.disks.all(d, d.name.matches(host.annotations["note"])) ? "a" : "b"`),
		Entry("a text that grows", `host.annotations["a"].replace("", host.annotations["b"])`),
		Entry("a text that grows again and again", "host.name"+strings.Repeat(`.replace("", host.name)`, 3)),
		Entry("a text that grows behind a list", "host.name"+strings.Repeat(`.replace("", host.name).split("@")[0]`, 3)),
		Entry("a text that grows by a format", `"%s%s%s".format([`+strings.Repeat(`"%s%s%s".format([`, 4)+`host.name`+strings.Repeat(`, host.name, host.name])`, 5)),
		Entry("a text that grows by a join", `host.hardware.disks.map(d, host.annotations["a"]).join("")`),
		Entry("a list of any length", `lists.range(100000000).size() > 0 ? "a" : "b"`),
		Entry("a long list", `lists.range(500000).map(x, "aaaaaaaaaaaaaaaa").join("")`),
	)

	It("is stopped when it costs more than was estimated", func() {
		const expression = `lists.range(2000).all(a, lists.range(2000).all(b, a + b >= 0)) ? host.name : "b"`
		env, err := celEnvironment()
		Expect(err).NotTo(HaveOccurred())
		checked, issues := env.Compile(expression)
		Expect(issues.Err()).NotTo(HaveOccurred())
		made, err := newProgram(env, checked)
		Expect(err).NotTo(HaveOccurred())
		compiled.Add(expression, made)
		defer compiled.Remove(expression)
		Expect(given(theFacts(), expression)).To(And(HaveField("Outcome", Refused), HaveField("Why", ContainSubstring("cost limit exceeded"))))
	})

	It("is compiled once, and not kept for ever", func() {
		Expect(Check(`host.name + "once"`)).To(Succeed())
		first, err := compile(`host.name + "once"`)
		Expect(err).NotTo(HaveOccurred())
		Expect(compile(`host.name + "once"`)).To(BeIdenticalTo(first))
		for i := range 1100 {
			Expect(Check(fmt.Sprintf(`host.name + "%d"`, i))).To(Succeed())
		}
		Expect(compiled.Len()).To(BeNumerically("<=", 1024))
		var mistake *ExpressionError
		Expect(errors.As(Check(`host.nmae`), &mistake)).To(BeTrue())
		_, kept := compiled.Get(`host.nmae`)
		Expect(kept).To(BeFalse())
	})
})
