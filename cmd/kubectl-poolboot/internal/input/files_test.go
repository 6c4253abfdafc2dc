package input_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// convertToJSON is a YAML document as JSON.
func jsonOf(document string) string {
	GinkgoHelper()
	out, err := yaml.YAMLToJSON([]byte(document))
	Expect(err).NotTo(HaveOccurred())
	return string(out)
}

var _ = Describe("Files", func() {
	worker, infra := clitest.Pool("edge", "worker"), clitest.Pool("edge", "infra")
	// role is the pool that a Node labeled infra would be in by pools in files.
	role := func(files ...string) clitest.Result {
		return poolboot(append([]string{"which", "--labels", clitest.RoleLabels("infra"), "--pools"}, files...)...)
	}

	DescribeTable("can contain objects in every form that kubectl reads",
		func(name string, contents func() string) {
			Expect(clitest.ExpectSuccess(role(clitest.WriteFile(name, contents())))).To(Equal("infra\n"))
		},
		Entry("one document", "a.yaml", func() string { return infra }),
		Entry("several, with comments and empty documents", "a.yaml", func() string { return "# pools\n---\n" + worker + "---\n---\n# none\n---\n" + infra }),
		Entry("YAML with merge keys, and keys over them", "a.yaml", func() string {
			return strings.Replace(infra, "metadata:\n", "metadata: &metadata\n", 1) + "---\n" + strings.Replace(worker, "metadata:\n", "metadata:\n  <<: [&m {labels: {a: b}, name: other}, {name: third, labels: {}}]\n", 1)
		}),
		Entry("JSON", "a.json", func() string { return jsonOf(infra) }),
		Entry("JSON after JSON", "a.json", func() string { return jsonOf(worker) + "\n" + jsonOf(infra) }),
		Entry("JSON between separators", "a.yaml", func() string { return jsonOf(worker) + "\n---\n" + jsonOf(infra) }),
		Entry("YAML that begins with a brace", "a.yaml", func() string { return strings.ReplaceAll(strings.ReplaceAll(jsonOf(infra), ":", ": "), `"`, "") }),
		Entry("a list", "a.json", func() string {
			return `{"apiVersion":"v1","kind":"List","items":[` + jsonOf(worker) + "," + jsonOf(infra) + "]}"
		}),
		Entry("a list in a list", "a.json", func() string {
			return `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"List","items":[` + jsonOf(infra) + "]}]}"
		}),
		Entry("a list of one kind", "a.yaml", func() string {
			return "apiVersion: poolboot.io/v1alpha1\nkind: MachineConfigPoolList\nitems:\n- metadata: {name: infra}\n  spec: {clusterName: edge, poolRole: infra}\n"
		}),
	)

	It("can be named by several flags, with commas, and as arguments", func() {
		a, b := clitest.WriteFile("a.yaml", worker), clitest.WriteFile("b.yaml", infra)
		Expect(clitest.ExpectSuccess(role(a, b))).To(Equal("infra\n"))
		Expect(clitest.ExpectSuccess(role(a + "," + b))).To(Equal("infra\n"))
		Expect(clitest.ExpectSuccess(role(a, "--pools", b))).To(Equal("infra\n"))
	})

	It("can be standard input", func() {
		Expect(clitest.ExpectSuccess(poolbootReading(infra, "which", "--pools", "-", "--labels", clitest.RoleLabels("infra")))).To(Equal("infra\n"))
	})

	Describe("of a directory", func() {
		It("are its YAML and JSON files, without those in subdirectories", func() {
			directory := GinkgoT().TempDir()
			clitest.WriteFileIn(directory, "a.yml", worker)
			clitest.WriteFileIn(directory, "b.json", jsonOf(infra))
			clitest.WriteFileIn(directory, "notes.md", "{not: [yaml")
			clitest.WriteFileIn(directory, "below/c.yaml", "{not: [yaml")
			Expect(clitest.ExpectSuccess(role(directory))).To(Equal("infra\n"))
		})

		It("include those in subdirectories with -R", func() {
			directory := GinkgoT().TempDir()
			clitest.WriteFileIn(directory, "a.yaml", worker)
			clitest.WriteFileIn(directory, "below/b.yaml", infra)
			Expect(role(directory).ErrOut).To(Equal("note: the Node is in no pool: no pool selects its labels\n"))
			Expect(clitest.ExpectSuccess(role(directory, "-R"))).To(Equal("infra\n"))
		})

		It("are found through a link", func() {
			link := filepath.Join(GinkgoT().TempDir(), "link")
			Expect(os.Symlink(filepath.Dir(clitest.WriteFile("a.yaml", infra)), link)).To(Succeed())
			Expect(clitest.ExpectSuccess(role(link))).To(Equal("infra\n"))
		})

		It("leave out what is no file, without opening it, and hidden directories", func() {
			directory := GinkgoT().TempDir()
			clitest.WriteFileIn(directory, "a.yaml", infra)
			clitest.WriteFileIn(directory, ".git/b.yaml", "{not: [yaml")
			clitest.WriteFileIn(directory, "below/.cache/c.yaml", "{not: [yaml")
			Expect(os.Symlink("gone", filepath.Join(directory, "link.yaml"))).To(Succeed())
			Expect(os.Symlink("below", filepath.Join(directory, "more.yaml"))).To(Succeed())
			Expect(os.Symlink("/dev/full", filepath.Join(directory, "device.json"))).To(Succeed())
			Expect(syscall.Mkfifo(filepath.Join(directory, "pipe.yaml"), 0o600)).To(Succeed()) // nobody writes to it
			r := role(directory, "-R")
			Expect(r.Out).To(Equal("infra\n"))
			Expect(r.Code).To(BeZero())
			directory += string(filepath.Separator)
			Expect(r.ErrOut).To(Equal("note: " + directory + "device.json is left out: it is no regular file, and no link to one\n" +
				"note: " + directory + "link.yaml is left out: it is no regular file, and no link to one\n" +
				"note: " + directory + "more.yaml is left out: it is no regular file, and no link to one\n" +
				"note: " + directory + "pipe.yaml is left out: it is no regular file, and no link to one\n"))
		})

		It("are read once, also when a link leads to them or they are named again", func() {
			directory := GinkgoT().TempDir()
			file := clitest.WriteFileIn(directory, "a.yaml", infra)
			Expect(os.Symlink("a.yaml", filepath.Join(directory, "b.yaml"))).To(Succeed())
			r := role(directory, file)
			Expect(r.Out).To(Equal("infra\n"))
			Expect(r.ErrOut).To(Equal("note: " + filepath.Join(directory, "b.yaml") + " is left out: it is the same file as " + file + "\n" +
				"note: " + file + " is left out: it is the same file as " + file + "\n"))
		})

		It("are those of a hidden directory that is named itself", func() {
			directory := filepath.Join(GinkgoT().TempDir(), ".pools")
			clitest.WriteFileIn(directory, "a.yaml", infra)
			Expect(clitest.ExpectSuccess(role(directory))).To(Equal("infra\n"))
		})

		It("must exist", func() {
			clitest.ExpectError(role(GinkgoT().TempDir()), 1, "contains no *.yaml, *.yml or *.json", "-R")
		})
	})

	DescribeTable("are refused with what is wrong with a whole file",
		func(name, contents, why string) {
			if contents != "" {
				name = clitest.WriteFile(name, contents)
			}
			clitest.ExpectError(role(name), 1, why)
		},
		Entry("that is not in UTF-8", "a.yaml", worker+"---\n# f\xfcr\nkind: a\n", "a.yaml: document 2: line 12: is not a text in UTF-8: save it in UTF-8, or decompress it"),
		Entry("that is a text", "a.yaml", "<html>\n", "a.yaml: document 1: line 1: is no Kubernetes object: must be an object, not the string \"<html>\""),
		Entry("that is a list", "a.json", "[{}]\n", "a.json: document 1: line 1: is no Kubernetes object: must be an object, not a list"),
		Entry("that does not exist", "nowhere.yaml", "", "error: nowhere.yaml: no such file or directory: correct the name"),
		Entry("that is a URL", "https://example.com/a.yaml", "", "error: https://example.com/a.yaml: URLs are not read: download the file, and name it"),
	)

	It("can contain other kinds, which are noted", func() {
		r := role(clitest.WriteFile("a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: cm}\n", infra))
		Expect(r.Out).To(Equal("infra\n"))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(MatchRegexp(`^note: .*a.yaml: document 1: line \d+: ConfigMap "cm" of v1 is ignored\n$`))
	})

	It("can contain fields of OpenShift's kinds that Poolboot does not have", func() {
		Expect(clitest.ExpectSuccess(role(clitest.WriteFile("a.yaml", clitest.OpenShiftInfra+"  maxUnavailable: 1\n  aFieldOfTomorrow: {}\n")))).To(Equal("infra\n"))
	})

	DescribeTable("are refused with their name and the document's number",
		func(contents, why string) {
			clitest.ExpectError(role(clitest.WriteFile("a.yaml", worker, contents)), 1, "a.yaml: document 2: ", why)
		},
		Entry("malformed YAML", "kind: [a\nb: c\n", "line 13: malformed YAML: did not find expected"),
		Entry("malformed JSON", `{"kind": "a",, }`, "malformed YAML: did not find"),
		Entry("a duplicate key", infra+"kind: MachineConfigPool\n", `"kind" is given twice: remove one`),
		Entry("a template", "metadata:\n  name: {{ .Values.name }}\n", "a.yaml: document 2: line 14: it is a template: render it, and convert the result\n"),
		Entry("a template of a name", strings.Replace(clitest.OpenShiftInfra, "name: infra", `name: "{{ .Values.name }}"`, 1), `MachineConfigPool "{{ .Values.name }}": it is a template: render it, and convert the result`),
		Entry("a template with actions", "metadata:\n{{- if .Values.name }}\n  name: a\n", ": if it is a template, render it, and convert the result\n"),
		Entry("a separator with a document on the same line", "--- kind\n", "separator"),
		Entry("a text", "just words\n", "is no Kubernetes object"),
		Entry("no kind", "metadata: {name: a}\n", "set apiVersion and kind"),
		Entry("Butane", "variant: fcos\nversion: 1.5.0\n", "it is Butane: convert it with kubectl poolboot convert --butane"),
		Entry("Ignition", `{"ignition":{"version":"3.4.0"}}`, "it is Ignition: convert it with kubectl poolboot convert --ignition"),
		Entry("no name", strings.Replace(clitest.OpenShiftInfra, "name: infra", "", 1), "MachineConfigPool: metadata.name: is missing"),
		Entry("an unknown field of Poolboot's kinds", infra+"  nodeSelektor: {}\n", `MachineConfigPool "infra": spec.nodeSelektor: there is no such field: correct its name to nodeSelector, or remove it`),
		Entry("an unknown field in an item", "{apiVersion: v1, kind: List, items: ["+`{apiVersion: poolboot.io/v1alpha1, kind: MachineConfig, metadata: {name: a}, spec: {fip: true}}]}`,
			`item 1: line 13: MachineConfig "a": spec.fip: there is no such field: correct its name to fips, or remove it`),
		Entry("a value of the wrong type in OpenShift's kinds", strings.Replace(clitest.OpenShiftInfra, `infra: ""`, "infra: [1]", 1), `MachineConfigPool "infra": `),
		Entry("a pool without a role", strings.Replace(infra, "  poolRole: infra\n", "", 1), "spec.poolRole: is missing"),
		Entry("a pool without a cluster", strings.Replace(infra, "  clusterName: edge\n", "", 1), "spec.clusterName: is missing"),
		Entry("a pool with OpenShift's role of the control plane", clitest.Pool("edge", "master"), "spec.poolRole: the role of the control plane's pool is control-plane"),
	)

	Describe("with pools of several clusters", func() {
		inNamespace := func(namespace, document string) string {
			return strings.Replace(document, "metadata:\n", "metadata:\n  namespace: "+namespace+"\n", 1)
		}
		It("need --cluster", func() {
			path := clitest.WriteFile("a.yaml", worker, infra, clitest.Pool("core", "worker"))
			clitest.ExpectError(role(path), 1, "the files contain pools of the clusters core and edge: choose one with --cluster")
			clitest.ExpectError(role(path, "--cluster", "far"), 1, `no pool of the cluster "far", but of core and edge`)
			Expect(clitest.ExpectSuccess(role(path, "--cluster", "edge"))).To(Equal("infra\n"))
			Expect(role(path, "--cluster", "core").ErrOut).To(Equal("note: the Node is in no pool: no pool selects its labels\n"))
		})

		It("need --cluster with the namespace when names are the same", func() {
			path := clitest.WriteFile("a.yaml", inNamespace("east", infra), inNamespace("west", worker))
			clitest.ExpectError(role(path, "--cluster", "edge"), 1, "east/edge and west/edge")
			Expect(clitest.ExpectSuccess(role(path, "--cluster", "east/edge"))).To(Equal("infra\n"))
		})

		It("need no flag when one object of the same cluster has no namespace", func() {
			Expect(clitest.ExpectSuccess(role(clitest.WriteFile("a.yaml", inNamespace("east", worker), infra)))).To(Equal("infra\n"))
		})

		It("provide MachineConfigs of the cluster's namespace, and those without a namespace", func() {
			path := clitest.WriteFile("a.yaml", inNamespace("east", worker), infra, inNamespace("west", clitest.Pool("edge", "worker")),
				inNamespace("west", clitest.Config("10-west", "worker", "{kernelArguments: [west]}")),
				inNamespace("east", clitest.Config("10-east", "worker", "{kernelArguments: [east]}")), clitest.Config("10-any", "infra", "{kernelArguments: [any]}"))
			out := clitest.ExpectSuccess(poolboot("render", "-f", path, "--pool", "infra", "--cluster", "east/edge", "-o", "yaml"))
			Expect(out).To(ContainSubstring("kernelArguments:\n- east\n- any\n"))
		})

		It("refuse --cluster when there are only OpenShift's pools", func() {
			clitest.ExpectError(role(clitest.WriteFile("a.yaml", clitest.OpenShiftInfra), "--cluster", "edge"), 1, "no pool that names a cluster: leave out --cluster edge")
		})
	})
})
