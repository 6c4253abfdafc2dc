package main

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// controls matches characters that control a terminal, or change the direction of text.
var controls = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f\u202a-\u202e]")

var _ = Describe("What a file contains", func() {
	const escape = `\e[2Jx\u202e\u009b`
	replace := func(document, old string) string { return strings.Replace(document, old, `"`+escape+`"`, 1) }

	DescribeTable("does not control the terminal",
		func(document string, args ...string) {
			directory := GinkgoT().TempDir()
			clitest.WriteFileIn(directory, "worker.yaml", clitest.OpenShiftWorker)
			clitest.WriteFileIn(directory, "a\x1b[2J.yaml", document)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "DIRECTORY", directory)
			}
			r := runPoolboot(args...)
			if index := slices.Index(args, "--nodes"); index < 0 {
				Expect(r.ErrOut).To(ContainSubstring(`\x1b[2J`), filepath.Base(directory))
			}
			Expect(controls.FindString(r.Out+r.ErrOut)).To(BeEmpty(), "%q", r.Out+r.ErrOut)
		},
		Entry("as another kind", "apiVersion: v1\nkind: \"A"+escape+"\"\n", "which", "--pools", "DIRECTORY", "--labels", "a=b"),
		Entry("as a name that is refused", replace(clitest.OpenShiftInfra, "infra"), "convert", "-f", "DIRECTORY", "--cluster", "c", "-n", "n"),
		Entry("as a value that is refused", clitest.Pool("edge", "infra")+"  kubelet: {wrapper: [\""+escape+"\"]}\n", "render", "-f", "DIRECTORY", "--pool", "worker"),
		Entry("as a key that Ignition does not have", clitest.Config("a", "worker", `{config: {ignition: {version: 3.4.0}, "`+escape+`": {}}}`), "render", "-f", "DIRECTORY", "--pool", "worker"),
		Entry("as the name of a Node", "apiVersion: v1\nkind: Node\nmetadata: {name: \""+escape+"\"}\n", "which", "--pools", "DIRECTORY/worker.yaml", "--nodes", "DIRECTORY/a\x1b[2J.yaml"),
		Entry("as malformed YAML", "a: [\n", "which", "--pools", "DIRECTORY", "--labels", "a=b"),
	)
})
