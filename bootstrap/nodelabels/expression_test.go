package nodelabels

import (
	"context"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("An expression", func() {
	DescribeTable("that cannot be used in a rule is refused, with the position of the mistake",
		func(expression, message string) {
			err := Check(expression)
			Expect(err).To(BeAssignableToTypeOf(&ExpressionError{}))
			Expect(err).To(MatchError(HavePrefix(message)))
			result := given(theFacts(), expression)
			Expect(result.Outcome).To(Equal(Invalid))
			Expect(result.Why).To(HavePrefix("valueExpression:" + message))
		},
		Entry("an unknown field", `host.nmae`, `1:5: undefined field 'nmae': correct the name`),
		Entry("an unknown field in the third line", "host.name +\n  \"-\" +\n  host.hardware.cpu.cores", `3:20: undefined field 'cores': correct the name`),
		Entry("an unknown variable", `bmh.name`, `1:1: undeclared reference to 'bmh': correct the name`),
		Entry("an unknown function", `host.name.rot13()`, `1:16: undeclared reference to 'rot13': correct the name`),
		Entry("an operator with operands of different types", `host.name + 5`, `1:11: found no matching overload for '_+_'`),
		Entry("an incomplete expression", `host.name +`, `1:12: Syntax error`),
		Entry("an invalid regular expression", `host.name.find("(")`, `1:16: "(" is not a valid regular expression: error parsing regexp: missing closing )`),
		Entry("a regular expression from a fact", `host.name.matches(host.annotations["note"]) ? "a" : "b"`, "1:35: a regular expression must be a string literal"),
		Entry("a concatenated regular expression", `matches(host.name, "a" + "b") ? "a" : "b"`, "1:24: a regular expression must be a string literal"),
		Entry("find with a regular expression from a fact", `host.name.find(host.name)`, "1:20: a regular expression must be a string literal"),
		Entry("findAll with a regular expression from a fact, on a value of any type", `dyn(host.name).findAll(host.name, 1)[0]`, "1:28: a regular expression must be a string literal"),
		Entry("a regular expression with counted repetitions", `host.hardware.vendor.matches("^(?:(?:a?){1000}){1}$") ? "a" : "b"`, "1:30: the compiled regular expressions of one rule can have at most 1000 instructions"),
		Entry("nested counted repetitions", `host.hardware.vendor.find("(?:(?:a?){30}){30}")`, "1:27: the compiled regular expressions of one rule can have at most 1000 instructions"),
		Entry("many regular expressions", `[`+strings.Repeat(`host.name.matches("[ab]{150}"), `, 4)+`true].all(m, m) ? "a" : "b"`, "1:116: the compiled regular expressions of one rule can have at most 1000 instructions"),
		Entry("a long chain of optMap, which copies what it is called on", `optional.of("a")`+strings.Repeat(`.optMap(x, x)`, 12), "1:76: an expression can call optMap and optFlatMap at most 4 times"),
		Entry("a long chain of optFlatMap", `optional.of("a")`+strings.Repeat(`.optFlatMap(x, optional.of(x))`, 12), "1:148: an expression can call optMap and optFlatMap at most 4 times"),
		Entry("optMap nested many times", `optional.of("a")`+strings.Repeat(`.optMap(x, optional.of(x)`, 12)+strings.Repeat(`)`, 12), "1:124: an expression can call optMap and optFlatMap at most 4 times"),
		Entry("a number", `host.hardware.cpu.count`, `1:1: the result is of type int, and a label value is a string: convert it with string(…)`),
		Entry("a bool", `host.hardware.nics.size() > 1`, `1:1: the result is of type bool`),
		Entry("an object", `host.hardware.cpu`, `1:1: the result is of type poolboot.CPU`),
		Entry("a list", `host.hardware.cpu.flags`, `1:1: the result is of type list(string)`),
		Entry("null", `null`, `1:1: the result is of type null, and a label value is a string: return optional.none() for no label`),
		Entry("a value of any type", `dyn(host.name)`, `1:1: the result is of type dyn`),
		Entry("an optional number", `host.?hardware.?memoryMebibytes`, `1:1: the result is of type optional_type(int)`),
		Entry("a loop over an unordered map", `"-" + {"a": "b", "c": "d"}.map(k, k).join("")`, `1:7: a loop over a map that the expression creates has no order: loop over a list`),
		Entry("a format from a fact", `host.annotations["note"].format([1])`, `1:17: format must be called on a string literal`),
		Entry("a format with a large precision", `"%.999999f".format([1.5])`, `1:1: format must be called on a string literal`),
	)

	DescribeTable("that can cost too much is refused",
		func(expression string) {
			Expect(Check(expression)).To(MatchError(And(ContainSubstring("its estimated cost is "), ContainSubstring("the limit of 200000"))))
		},
		Entry("nested loops", `host.hardware.disks.all(a, host.hardware.disks.all(b, a.name == b.name)) ? "a" : "b"`),
		Entry("a regular expression with repetitions, in a loop", `host.hardware.disks.all(d, d.name.matches("(?:a?){300}b")) ? "a" : "b"`),
		Entry("all matches of a regular expression that reads to the end for each match", `host.annotations["note"].findAll("a.*b|a").join("")`),
		Entry("a string that grows", `host.annotations["a"].replace("", host.annotations["b"])`),
		Entry("a string that grows repeatedly", "host.name"+strings.Repeat(`.replace("", host.name)`, 3)),
		Entry("a string that grows through a list", "host.name"+strings.Repeat(`.replace("", host.name).split("@")[0]`, 3)),
		Entry("a string that grows through format", `"%s%s%s".format([`+strings.Repeat(`"%s%s%s".format([`, 4)+`host.name`+strings.Repeat(`, host.name, host.name])`, 5)),
		Entry("a string that grows through join", `host.hardware.disks.map(d, host.annotations["a"]).join("")`),
		Entry("a list of any length", `lists.range(100000000).size() > 0 ? "a" : "b"`),
		Entry("a long list", `lists.range(500000).map(x, "aaaaaaaaaaaaaaaa").join("")`),
	)

	It("is stopped when it costs more than the limit", func() {
		const expression = `lists.range(2000).all(a, lists.range(2000).all(b, a + b >= 0)) ? host.name : "b"`
		env, err := language.env()
		Expect(err).NotTo(HaveOccurred())
		checked, issues := env.Compile(expression)
		Expect(issues.Err()).NotTo(HaveOccurred())
		made, err := newProgram(env, checked)
		Expect(err).NotTo(HaveOccurred())
		_, _, err = made.evalWithin(context.Background(), theFacts()) // without a timeout, because the machine can be slow
		Expect(err).To(MatchError(ContainSubstring("cost limit exceeded")))
	})

	It("with regular expressions is accepted when its cost is limited", func() {
		for _, expression := range []string{
			`host.name.matches("^[a-z]{6}[a-z0-9]{5}$") ? "a" : "b"`,
			`host.hardware.disks.exists(d, d.name.matches("^/dev/nvme[0-9]n[0-9]$")) ? "a" : "b"`,
			`host.hardware.disks.exists(d, d.name.matches("^nvme[0-9]+$")) ? "a" : "b"`,
			`host.hardware.product.findAll("[0-9]+")[0]`,
			`host.annotations["note"].findAll("[0-9]+", 3).join("-")`,
		} {
			Expect(Check(expression)).To(Succeed(), expression)
		}
	})

	It("can use optMap and optFlatMap four times", func() {
		Expect(Check(`host.?labels["rack"].optMap(r, r + "-").optFlatMap(r, host.?labels["row"].optMap(w, r + w)).optMap(r, r + "x")`)).To(Succeed())
	})

	It("is stopped when its context is done", func() {
		p, err := compile(`lists.range(100).all(a, a >= 0) ? host.name : "b"`)
		Expect(err).NotTo(HaveOccurred())
		over := errors.New("its time is over")
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(over)
		_, _, err = p.evalWithin(ctx, theFacts())
		Expect(err).To(MatchError(over))
	})

	It("is compiled once, and the number of cached expressions is limited", func() {
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
