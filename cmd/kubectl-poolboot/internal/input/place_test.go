package input_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// encodeUTF16 returns a text as PowerShell writes the output of a command to a file.
func encodeUTF16(text string, order binary.AppendByteOrder) string {
	var encoded []byte
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
		encoded = order.AppendUint16(encoded, unit)
	}
	return string(encoded)
}

var _ = Describe("The place of a mistake", func() {
	worker := clitest.Pool("edge", "worker")
	// wrong is a MachineConfig whose line 10 has a mistake.
	const wrong = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: 50-a
  labels: {machineconfiguration.openshift.io/role: worker}
spec:
  config:
    ignition: {version: 3.4.0}
    storage:
      files: [{path: etc/a}]
`
	// indentedJSON has the same mistake in line 13, which is another line of its Ignition.
	const indentedJSON = `{
  "kind": "MachineConfig",
  "apiVersion": "machineconfiguration.openshift.io/v1",
  "metadata": {
    "name": "50-a",
    "labels": {"machineconfiguration.openshift.io/role": "worker"}
  },
  "spec": {
    "config": {
      "ignition": {"version": "3.4.0"},
      "storage": {
        "files": [
          {"path": "etc/a"}
        ]
      }
    }
  }
}
`
	const mistake = `MachineConfig "50-a": spec.config.storage.files[0].path: path not absolute`
	indent := func(text string, by int) string {
		return strings.Repeat(" ", by-2) + "- " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by)) + "\n"
	}
	list := "apiVersion: v1\nkind: List\nitems:\n"

	DescribeTable("is the line in the file",
		func(contents func() string, at string) {
			file := clitest.WriteFile("a.yaml", contents())
			r := poolboot("render", "-f", clitest.WriteFile("worker.yaml", clitest.OpenShiftWorker), "-f", file, "--pool", "worker")
			clitest.ExpectError(r, 1, file+": "+at)
			Expect(r.ErrOut).NotTo(ContainSubstring("(line"))
		},
		Entry("in the first document", func() string { return wrong }, "document 1: line 10: "+mistake),
		Entry("without a line feed at the end", func() string { return strings.TrimSpace(wrong) }, "document 1: line 10: "+mistake),
		Entry("after comments and empty documents", func() string { return "---\n---\n# b\n---\n" + wrong }, "document 1: line 14: "+mistake),
		Entry("with a byte order mark and carriage returns", func() string { return "\ufeff" + strings.ReplaceAll(wrong, "\n", "\r\n") }, "document 1: line 10: "+mistake),
		Entry("in UTF-16 of PowerShell", func() string { return encodeUTF16(wrong, binary.LittleEndian) }, "document 1: line 10: "+mistake),
		Entry("in UTF-16 with the other order", func() string { return encodeUTF16(wrong, binary.BigEndian) }, "document 1: line 10: "+mistake),
		Entry("in a list", func() string { return list + indent(clitest.OpenShiftInfra, 2) + indent(wrong, 2) }, "document 1: item 2: line 24: "+mistake),
		Entry("in a list in a list", func() string {
			return list + indent(clitest.OpenShiftInfra, 2) + "- apiVersion: v1\n  kind: List\n  items:\n" + indent(clitest.OpenShiftInfra51, 4) + indent(wrong, 4)
		}, "document 1: item 2: item 2: line 44: "+mistake),
		Entry("through an anchor", func() string {
			return strings.Replace(strings.Replace(wrong, "spec:", "x: &files [{path: etc/a}]\nspec:", 1), "files: [{path: etc/a}]", "files: *files", 1)
		}, `document 1: line 6: `+mistake),
		Entry("in the second document of JSON", func() string { return jsonOf(clitest.OpenShiftInfra) + "\n" + jsonOf(wrong) }, "document 2: line 2: "+mistake),
		Entry("in JSON with line feeds", func() string { return indentedJSON }, "document 1: line 13: "+mistake),
		Entry("in a text in Butane", func() string {
			return clitest.Config("50-a", "worker", "") + "  butane: |\n    variant: fcos\n    version: 1.5.0\n    storage:\n      filez: []\n"
		}, `document 1: line 11: MachineConfig "50-a": spec.butane.storage.filez: unused key filez`),
		Entry("in Butane that is quoted", func() string {
			return clitest.Config("50-a", "worker", `{butane: "variant: fcos\nversion: 1.5.0\nstorage:\n  filez: []\n"}`)
		},
			`document 1: line 6: MachineConfig "50-a": spec.butane.storage.filez: unused key filez`),
		Entry("of every message about YAML", func() string { return "a: b\na: c\nd: e\nd: f\n" }, "document 1: line 2: \"a\" is given twice: remove one\n"),
	)

	It("is that of each problem", func() {
		file := clitest.WriteFile("a.yaml", clitest.OpenShiftWorker, strings.Replace(wrong, "[{path: etc/a}]", "\n      - path: etc/a\n      - path: /b\n        mode: -1", 1))
		r := poolboot("render", "-f", file, "--pool", "worker")
		for i, problem := range []string{"[0].path: path not absolute", "[1].mode: illegal file mode"} {
			Expect(r.ErrOut).To(ContainSubstring(fmt.Sprintf(`%s: document 2: line %d: MachineConfig "50-a": spec.config.storage.files%s`, file, strings.Count(clitest.OpenShiftWorker, "\n")+13+2*i, problem)))
		}
	})

	It("is the file if it is compressed", func() {
		file := clitest.WriteFile("a.yaml", "\x1f\x8b\x08")
		clitest.ExpectError(poolboot("render", "-f", file, "--pool", "worker"), 1, file+": is compressed with gzip")
	})

	It("comes with an error without names of Go", func() {
		for _, text := range []string{"kind: [a]\n", "{apiVersion: v1, kind: List, items: {a: b}}\n", strings.Replace(worker, "clusterName: edge", "clusterName: [a]", 1)} {
			r := poolboot("render", "-f", clitest.WriteFile("a.yaml", text), "--pool", "worker")
			clitest.ExpectError(r, 1, "document 1")
			Expect(r.ErrOut).NotTo(Or(ContainSubstring("Go "), ContainSubstring("struct"), ContainSubstring("json:"), ContainSubstring("v1alpha1.")))
		}
	})
})
