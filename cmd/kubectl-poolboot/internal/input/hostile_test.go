package input_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// nestAliases returns a YAML mapping whose last entry expands to billions of items.
func aliases() string {
	text := "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
	for letter := 'b'; letter < 'k'; letter++ {
		text += fmt.Sprintf("%c: &%[1]c [%s*%c]\n", letter, strings.Repeat(fmt.Sprintf("*%c, ", letter-1), 8), letter-1)
	}
	return text
}

var _ = Describe("Hostile files", func() {
	worker := clitest.Pool("edge", "worker")
	bracketed := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

	DescribeTable("get an error that names the document",
		func(text func() string, why ...string) {
			clitest.ExpectError(poolboot("render", "-f", clitest.WriteFile("hostile.yaml", worker, text()), "--pool", "worker"), 1, why...)
		},
		Entry("aliases that expand to billions of items", aliases, "document 2", "excessive aliasing"),
		Entry("the same in Butane", func() string {
			return clitest.Config("bad", "worker", "{butane: "+fmt.Sprintf("%q", "variant: fcos\nversion: 1.5.0\n"+aliases())+"}")
		}, `MachineConfig "bad": spec.butane`),
		Entry("an anchor that contains itself", func() string { return "a: &a [*a]" }, "document 2", "contains itself"),
		Entry("100,000 levels of YAML", func() string { return bracketed(100_000) }, "document 2", "max depth"),
		Entry("100,000 levels of JSON", func() string { return `{"a":` + bracketed(100_000) + "}" }, "document 2", "max depth"),
		Entry("5,000 levels in the list of files of an Ignition", func() string {
			return clitest.Config("bad", "worker", "{config: {ignition: {version: 3.4.0}, storage: {files: "+bracketed(5_000)+"}}}")
		}, `MachineConfig "bad": spec.config.storage.files`),
		Entry("3,000 lists in lists", func() string {
			return strings.Repeat("{apiVersion: v1, kind: List, items: [", 3_000) + strings.Repeat("]}", 3_000)
		}, "document 2", "is a list in more than 16 lists"),
		Entry("2 MiB of configuration", func() string {
			return clitest.Config("bad", "worker", clitest.Motd(strings.Repeat("x", 2<<20)))
		}, "spec.config: Too long: may not be more than 1468006 bytes"),
		Entry("2 MiB of keys that Ignition does not have", func() string {
			return clitest.Config("bad", "worker", `{config: {a: `+strings.Repeat("x", 2<<20)+`}}`)
		}, "may not be more than 1468006 bytes"),
		Entry("a duplicate label", func() string { return clitest.Pool("edge", "infra") + "  node: {labels: {a: b, a: c}}\n" }, "document 2", `"a" is given twice`),
		Entry("bytes that are not text", func() string { return "\x00\xff\xfe" }, "document 2", "control characters"),
	)

	It("with 2 MiB of comments contain no object", func() {
		Expect(clitest.ExpectSuccess(poolboot("render", "-f", clitest.WriteFile("hostile.yaml", worker, "#"+strings.Repeat("x", 2<<20)), "--pool", "worker"))).To(ContainSubstring("rendered-worker-"))
	})
})
