package convert

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert", func() {
	// converting runs convert for the Cluster infra-1 of the namespace edge.
	converting := func(documents ...string) clitest.Result {
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", documents...), "--cluster", "infra-1", "-n", "edge")
	}
	// theirs is an OpenShift MachineConfig, labeled for a role, with a spec in YAML's flow style.
	theirs := func(name, role, spec string) string {
		return strings.Replace(clitest.Config(name, role, spec), "poolboot.io/v1alpha1", "machineconfiguration.openshift.io/v1", 1)
	}
	withSpec := func(pool, field string) string { return strings.Replace(pool, "spec:\n", "spec:\n  "+field+"\n", 1) }

	It("converts a pool and its MachineConfig, and keeps the text where it can", func() {
		Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51))).To(Equal(`apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata:
  labels:
    machineconfiguration.openshift.io/role: infra
  name: 51-infra
  namespace: edge
spec:
  config:
    ignition:
      version: 2.2.0
    storage:
      files:
      - contents:
          source: data:,infra
        filesystem: root
        mode: 420
        path: /etc/infratest
---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata:
  name: worker
  namespace: edge
spec:
  clusterName: infra-1
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: worker
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/worker: ""
  poolRole: worker
---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata:
  name: infra
  namespace: edge
spec:
  clusterName: infra-1
  machineConfigSelector:
    matchExpressions:
    - key: machineconfiguration.openshift.io/role
      operator: In
      values:
      - worker
      - infra
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/infra: ""
  poolRole: infra
`))
	})

	It("returns objects that render the same config as OpenShift's", func() {
		documents := []string{clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51,
			theirs("99-worker", "worker", `{kernelArguments: [nosmt], extensions: [usbguard], fips: true, kernelType: realtime, osImageURL: quay.io/os, baseOSExtensionsContainerImage: quay.io/ext}`),
			theirs("50-motd", "worker", clitest.Motd("worker"))}
		theirFiles := clitest.WriteFile("theirs.yaml", documents...)
		ourFiles := clitest.WriteFile("ours.yaml", clitest.ExpectSuccess(converting(documents...)))
		for _, role := range []string{"worker", "infra"} {
			Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", ourFiles, "--pool", role))).
				To(Equal(clitest.ExpectSuccess(runPoolboot("render", "-f", theirFiles, "--pool", role))))
		}
	})

	It("prints the same for every order of the files", func() {
		Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftInfra51, clitest.OpenShiftInfra, clitest.OpenShiftWorker))).To(Equal(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51))))
		Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftInfra, clitest.OpenShiftWorker))).To(MatchRegexp(`(?s)name: worker.*name: infra`), "custom pools need worker")
	})

	It("keeps maxUnavailable, and refuses a value that Poolboot would not store", func() {
		for _, value := range []string{"2", "10%", "100%"} {
			Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, withSpec(clitest.OpenShiftInfra, "maxUnavailable: "+value)))).To(ContainSubstring("maxUnavailable: " + value))
		}
		for _, value := range []string{"0", "-1", `"2"`, "101%"} {
			clitest.ExpectError(converting(clitest.OpenShiftWorker, withSpec(clitest.OpenShiftInfra, "maxUnavailable: "+value)), 1, `MachineConfigPool "infra": spec.maxUnavailable: `, "it must be a number of at least 1, or a percentage")
		}
	})

	It("keeps labels, annotations and spec.paused, and no field of the other cluster", func() {
		live := strings.Replace(withSpec(clitest.OpenShiftInfra, "paused: true"), "  name: infra\n", `  name: infra
  uid: 8a4f
  resourceVersion: "7"
  creationTimestamp: "2026-01-01T00:00:00Z"
  labels: {pools.operator.machineconfiguration.openshift.io/infra: ""}
  annotations: {example.com/why: stays, kubectl.kubernetes.io/last-applied-configuration: "{}"}
`, 1)
		Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, live))).To(And(
			ContainSubstring(`pools.operator.machineconfiguration.openshift.io/infra: ""`), ContainSubstring("example.com/why: stays"),
			ContainSubstring("paused: true"), Not(ContainSubstring("last-applied")), Not(ContainSubstring("8a4f")), Not(ContainSubstring("2026"))))
	})

	It("leaves out an empty machineConfigSelector, which selects nothing in OpenShift", func() {
		empty := "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: storage}\n" +
			"spec: {machineConfigSelector: {}, nodeSelector: {matchLabels: {node-role.kubernetes.io/storage: \"\"}}}\n"
		_, storage, _ := strings.Cut(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, empty)), "---\n")
		Expect(storage).To(And(ContainSubstring("poolRole: storage"), Not(ContainSubstring("machineConfigSelector"))))
	})

	DescribeTable("warns of everything that it leaves out",
		func(document, remark string) {
			r := converting(clitest.OpenShiftWorker, document)
			Expect(r.Code).To(BeZero())
			Expect(r.Out).To(ContainSubstring("name: worker"))
			Expect(r.ErrOut).To(Equal(remark + "\n"))
		},
		Entry("a pool's field", withSpec(clitest.OpenShiftInfra, "configuration: {name: rendered-infra-0, source: [{name: a}]}"),
			`warning: MachineConfigPool "infra": spec.configuration is left out: Poolboot does not have this field`),
		Entry("images of a pool", withSpec(clitest.OpenShiftInfra, "pinnedImageSets: [{name: a}]"),
			`warning: MachineConfigPool "infra": spec.pinnedImageSets is left out: Poolboot does not have this field`),
		Entry("a stream of a pool", withSpec(clitest.OpenShiftInfra, "osImageStream: {name: rhel-10}"),
			`warning: MachineConfigPool "infra": spec.osImageStream is left out: Poolboot does not have this field`),
		Entry("a MachineConfig's field", theirs("50-a", "worker", "{fieldOfALaterRelease: quay.io/ext}"),
			`warning: MachineConfig "50-a": spec.fieldOfALaterRelease is left out: Poolboot does not have this field`),
		Entry("Butane, which OpenShift's MachineConfig does not have", theirs("50-a", "worker", "{butane: x}"),
			`warning: MachineConfig "50-a": spec.butane is left out: OpenShift does not have this field, and ignores it: to use it, set the apiVersion poolboot.io/v1alpha1`),
		Entry("an owner", strings.Replace(clitest.OpenShiftInfra51, "metadata:\n", "metadata:\n  ownerReferences: [{apiVersion: v1, kind: A, name: a, uid: b}]\n", 1),
			`note: MachineConfig "51-infra": metadata.ownerReferences is left out: the owner is in the OpenShift cluster, and the garbage collector would delete an object whose owner does not exist`),
		Entry("a finalizer", strings.Replace(clitest.OpenShiftInfra51, "metadata:\n", "metadata:\n  finalizers: [example.com/a]\n", 1),
			`note: MachineConfig "51-infra": metadata.finalizers is left out: controllers of the OpenShift cluster remove finalizers, and without them the object could never be deleted`),
		Entry("a misspelled field of a pool, with the correct name", withSpec(clitest.OpenShiftInfra, "maxUnavailabel: 1"),
			`warning: MachineConfigPool "infra": spec.maxUnavailabel is left out: Poolboot does not have this field: if it is misspelled, correct its name to maxUnavailable`),
		Entry("a misspelled field of a MachineConfig, with the correct name", theirs("50-a", "worker", "{kernelArgument: [nosmt]}"),
			`warning: MachineConfig "50-a": spec.kernelArgument is left out: Poolboot does not have this field: if it is misspelled, correct its name to kernelArguments`),
		Entry("a misplaced field, with its place", newKubeletConfig("k", "infra: infra}, kubeletConfig: {maxPods: 5", "logLevel: 2"),
			`warning: KubeletConfig "k" is left out: its machineConfigPoolSelector selects no pool of OpenShift in the files: name the file with the pool too, or give the pool the label`+
				"\n"+`warning: KubeletConfig "k": spec.machineConfigPoolSelector.kubeletConfig is left out: Poolboot does not have this field here: move it to spec.kubeletConfig`),
		Entry("a key of Ignition in the spec of a MachineConfig, with its place", theirs("50-a", "worker", "{files: [{path: /a}]}"),
			`warning: MachineConfig "50-a": spec.files is left out: Poolboot does not have this field here: move it to spec.config.storage.files`),
		Entry("how many hosts of the control plane are updated at a time", withSpec(clitest.OpenShiftMaster, "maxUnavailable: 2"),
			`warning: MachineConfigPool "master": spec.maxUnavailable is left out: hosts of the control plane are updated one at a time`),
		Entry("which Nodes are those of the control plane", strings.Replace(clitest.OpenShiftMaster, "kubernetes.io/master:", "kubernetes.io/big:", 1),
			`warning: MachineConfigPool "master": spec.nodeSelector is left out: the Nodes of this pool are those with the label node-role.kubernetes.io/control-plane`),
		Entry("a rendered MachineConfig", theirs("rendered-worker-0", "worker", "{fieldOfALaterRelease: quay.io/ext}"),
			`note: MachineConfig "rendered-worker-0" is left out: it is rendered, and Poolboot renders its own`),
		Entry("an object of another project", "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n",
			`note: Node "a" is ignored: it is no object of OpenShift`),
	)

	It("ignores empty fields", func() {
		Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, withSpec(clitest.OpenShiftInfra, "maxUnavailable: null"), theirs("50-a", "worker", `{fieldOfALaterRelease: ""}`)))).NotTo(BeEmpty())
	})

	It("warns of what MachineConfigs can't have together, once, and converts them", func() {
		r := converting(clitest.OpenShiftWorker, clitest.OpenShiftInfra, theirs("50-a", "worker", "{kernelType: realtime}"), theirs("50-b", "worker", "{extensions: [kernel-devel]}"))
		Expect(r.Code).To(BeZero())
		Expect(r.Out).To(And(ContainSubstring("name: 50-a"), ContainSubstring("name: 50-b")))
		Expect(r.ErrOut).To(Equal(`warning: MachineConfig "50-b": spec.extensions[0]: kernel-devel is for kernelType default only, and the pool has kernelType realtime: remove one of them.` +
			" Until then, the pool worker can't be rendered\n"))
	})

	It("warns of a file of one MachineConfig below that of another", func() {
		r := converting(clitest.OpenShiftWorker, theirs("50-a", "worker", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/x}]}}}`),
			theirs("50-b", "worker", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/x/y}]}}}`))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(And(HavePrefix(`warning: MachineConfig "50-b": spec.config.storage.files[0].path: together with spec.config.storage.files[0] of MachineConfig "50-a" (`),
			ContainSubstring(`: /etc/x/y is below /etc/x, which is a file: remove one of them, or change its path`)))
	})

	It("names objects of kinds that it does not convert", func() {
		r := converting(clitest.OpenShiftWorker, "apiVersion: machineconfiguration.openshift.io/v1\nkind: PinnedImageSet\nmetadata: {name: big}\n")
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(Equal("warning: PinnedImageSet \"big\" of machineconfiguration.openshift.io/v1 is ignored: hosts pull these images when they need them: " +
			"write a unit that pulls them with crictl\n"))
	})

	It("warns that signatures of images are not verified any more", func() {
		r := converting(clitest.OpenShiftWorker, "apiVersion: config.openshift.io/v1\nkind: ClusterImagePolicy\nmetadata: {name: signed}\n",
			"apiVersion: config.openshift.io/v1\nkind: ImagePolicy\nmetadata: {name: signed}\n")
		Expect(r.Code).To(BeZero())
		Expect(strings.Split(r.ErrOut, "\n")).To(HaveExactElements(
			And(HavePrefix("warning: ClusterImagePolicy"), ContainSubstring("without a verified signature: for CRI-O, write /etc/containers/policy.json")),
			HavePrefix("warning: ImagePolicy"), BeEmpty()))
	})

	It("gives the control plane's pool its role, and keeps what it selects", func() {
		documents := []string{withSpec(clitest.OpenShiftMaster, "maxUnavailable: 1"), clitest.OpenShiftInfra, clitest.OpenShiftWorker, theirs("50-master", "master", "{fips: true}")}
		out := clitest.ExpectSuccess(converting(documents...))
		Expect(out).To(ContainSubstring("name: 50-master\n"))
		Expect(out).To(ContainSubstring("  name: master\n  namespace: edge\nspec:\n  clusterName: infra-1\n  machineConfigSelector:\n    matchLabels:\n" +
			"      machineconfiguration.openshift.io/role: master\n  poolRole: control-plane\n---\n"))
		Expect(regexp.MustCompile("poolRole: (.*)").FindAllString(out, -1)).To(Equal([]string{"poolRole: worker", "poolRole: control-plane", "poolRole: infra"}))
	})

	It("refuses what Poolboot refuses in the pool of the control plane only", func() {
		const etcd = `{config: {ignition: {version: 3.2.0}, systemd: {units: [{name: var-lib-etcd.mount, enabled: true, contents: "[Mount]\n[Install]\nWantedBy=a.target"}]}}}`
		clitest.ExpectError(converting(clitest.OpenShiftMaster, theirs("98-var-lib-etcd", "master", etcd)), 1,
			`MachineConfig "98-var-lib-etcd": spec.config.systemd.units[0].name: a mount at /var/lib/etcd would hide what is reserved for the control plane`)
		Expect(converting(clitest.OpenShiftWorker, theirs("98-var-lib-etcd", "worker", etcd)).Code).To(BeZero())
	})

	It("says that only OpenShift's operators use a directory of static Pods", func() {
		r := converting(clitest.OpenShiftMaster, theirs("50-a", "master", "{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/kubernetes/static-pod-resources/a}]}}}"))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(Equal(`warning: MachineConfig "50-a": spec.config.storage.files[0]: /etc/kubernetes/static-pod-resources/a has no effect: ` +
			"only OpenShift's operators of the control plane use this directory: leave it out\n"))
	})

	DescribeTable("refuses objects that Poolboot would refuse, and prints nothing",
		func(why string, documents ...string) {
			if !slices.Contains(documents, clitest.OpenShiftWorker) {
				documents = append(documents, clitest.OpenShiftWorker)
			}
			clitest.ExpectError(converting(documents...), 1, why)
		},
		Entry("a file of Poolboot on a host", `MachineConfig "50-a": spec.config.storage.files[0].path: /etc/hostname is reserved for Poolboot`,
			clitest.OpenShiftWorker, theirs("50-a", "worker", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/hostname}]}}}`)),
		Entry("a key that Ignition would ignore", `MachineConfig "50-a": spec.config.storage.files[0].contents.inline: Ignition 3.2.0 does not have this key`,
			theirs("50-a", "worker", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /a, contents: {inline: a}}]}}}`)),
		Entry("a file below a file", `MachineConfig "50-a": spec.config.storage.files[1].path: /etc/x/y is below /etc/x, which is a file`,
			theirs("50-a", "worker", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/x}, {path: /etc/x/y}]}}}`)),
		Entry("a section Install with which no unit is enabled", `MachineConfig "50-a": spec.config.systemd.units[0].contents: a.service line 2: Also=other is not the name of a unit`,
			theirs("50-a", "worker", `{config: {ignition: {version: 3.2.0}, systemd: {units: [{name: a.service, contents: "[Install]\nAlso=other\n"}]}}}`)),
		Entry("invalid Ignition", `MachineConfig "50-a": spec.config.ignition.version`, theirs("50-a", "worker", `{config: {ignition: {version: 9.9.9}}}`)),
		Entry("a pool without a node selector", `MachineConfigPool "infra": spec.nodeSelector: OpenShift selects no Node with an empty selector`,
			strings.Split(clitest.OpenShiftInfra, "  nodeSelector:")[0]),
		Entry("a node selector that requires no labels", `MachineConfigPool "infra": spec.nodeSelector.matchExpressions[0]`,
			strings.Replace(clitest.OpenShiftInfra, "matchLabels:\n      node-role.kubernetes.io/infra: \"\"", "matchExpressions: [{key: a, operator: NotIn, values: [b]}]", 1)),
		Entry("pools that select the same Nodes", `MachineConfigPool "infra": spec.nodeSelector: Nodes with these labels are in the pools gpu and infra, and a Node can be in one custom pool only`,
			clitest.OpenShiftInfra, strings.Replace(clitest.OpenShiftInfra, "name: infra", "name: gpu", 1)),
		Entry("a custom pool that takes worker's Nodes", `MachineConfigPool "worker": spec.nodeSelector: Nodes with these labels are in the pool "infra"`,
			clitest.OpenShiftWorker, strings.Replace(clitest.OpenShiftInfra, "node-role.kubernetes.io/infra", "node-role.kubernetes.io/worker", 1)),
		Entry("a name that is not a valid role", `MachineConfigPool "in.fra": metadata.name: it becomes the role`, strings.Replace(clitest.OpenShiftInfra, "name: infra", "name: in.fra", 1)),
		Entry("a duplicate name", `MachineConfig "51-infra" is given twice`, clitest.OpenShiftInfra51, strings.Replace(clitest.OpenShiftInfra51, "data:,", "data:,other", 1)),
	)

	DescribeTable("refuses what the schemas and their rules refuse, and names the line of each violation",
		func(spec string, line int, words ...string) {
			file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-a\n"+
				"  labels: {machineconfiguration.openshift.io/role: worker}\n"+spec)
			r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--skip-refused")
			Expect(r.Code).To(Equal(cli.ExitIncomplete))
			Expect(r.ErrOut).To(ContainSubstring(fmt.Sprintf(`refused: %s: document 2: line %d: MachineConfig "50-a": `, file, line)))
			Expect(r.ErrOut).To(HaveSuffix("error: 1 refused and left out: correct what is listed above, and convert again\n"))
			for _, word := range words {
				Expect(r.ErrOut).To(ContainSubstring(word))
			}
		},
		Entry("a value that is not in an enumeration", "spec:\n  fips: true\n  kernelType: fast\n", 25, "spec.kernelType: Unsupported value: \"fast\""),
		Entry("two values", "spec:\n  kernelArguments:\n  - a\n  - \"\"\n  kernelType: fast\n", 26, "spec.kernelArguments[1]: must not be empty: set it, or remove it", "line 27", "spec.kernelType"),
		Entry("a label", "  annotations: {b c: d}\nspec: {fips: true}\n", 23, "metadata.annotations"),
	)

	It("names the place of what it warns of", func() {
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata:\n  name: 50-a\n"+
			"  labels: {machineconfiguration.openshift.io/role: worker}\nspec:\n  future: true\n  config:\n    ignition: {version: 3.2.0}\n    networkd: {}\n    systemd:\n      units:\n      - {name: kubens.service}\n")
		r := runWithInput("", "convert", "-f", file, "--cluster", "infra-1", "-n", "edge")
		Expect(r.Code).To(BeZero())
		for line, problem := range map[int]string{24: "spec.future is left out", 27: "spec.config.networkd: Ignition 3.2.0 ignores this key", 30: "spec.config.systemd.units[0]: kubens.service has no effect"} {
			Expect(r.ErrOut).To(ContainSubstring(fmt.Sprintf(`warning: %s: document 2: line %d: MachineConfig "50-a": %s`, file, line, problem)))
		}
	})

	It("names only the line of the file in JSON with line feeds", func() {
		r := converting("{\n\"apiVersion\": \"machineconfiguration.openshift.io/v1\", \"kind\": \"MachineConfig\",\n\"metadata\": {\"name\": \"50-a\"},\n\"spec\": {\"config\": {\n" +
			"\"ignition\": {\"version\": \"3.2.0\"},\n\"storage\": {\"files\": [\n{\"path\": \"/a\", \"mode\": \"0644\"}]}}}}\n")
		clitest.ExpectError(r, 1, `document 1: line 7: MachineConfig "50-a": spec.config.storage.files[0].mode: must be a whole number`)
	})

	It("refuses a name of a Cluster that no pool can have", func() {
		r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker), "--cluster", "Infra_1", "-n", "edge")
		clitest.ExpectError(r, 1, "--cluster Infra_1: ", "lowercase RFC 1123")
		r = runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker), "--cluster", "infra-1", "-n", "in.fra")
		clitest.ExpectError(r, 1, "--namespace in.fra: must not contain dots")
	})

	It("reports all errors together", func() {
		r := converting(clitest.OpenShiftWorker, theirs("50-a", "worker", `{config: {ignition: {version: 9.9.9}}}`), theirs("50-b", "worker", `{config: {ignition: {version: 9.9.9}}}`))
		clitest.ExpectError(r, 1, "50-a", "50-b")
	})

	Describe("of one document", func() {
		const spec35 = `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"contents":{"source":"data:,infra"},"mode":420,"overwrite":true,"path":"/etc/infratest"}]}}` + "\n"

		DescribeTable("converts every spec version of Ignition to 3.5",
			func(version, filesystem string) {
				document := `{"ignition":{"version":"` + version + `"},"storage":{"files":[{` + filesystem +
					`"overwrite":true,"path":"/etc/infratest","mode":420,"contents":{"source":"data:,infra"}}]}}`
				Expect(clitest.ExpectSuccess(runPoolboot("convert", "--ignition", clitest.WriteFile("a.ign", document)))).To(Equal(spec35))
				Expect(clitest.ExpectSuccess(runWithInput(document, "convert", "--ignition", "-"))).To(Equal(spec35))
			},
			Entry("2.2", "2.2.0", `"filesystem":"root",`), Entry("2.3", "2.3.0", `"filesystem":"root",`), Entry("2.4", "2.4.0", `"filesystem":"root",`),
			Entry("3.0", "3.0.0", ""), Entry("3.1", "3.1.0", ""), Entry("3.2", "3.2.0", ""), Entry("3.3", "3.3.0", ""),
			Entry("3.4", "3.4.0", ""), Entry("3.5", "3.5.0", ""),
		)

		It("converts Butane to 3.5", func() {
			butane := "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/infratest\n    mode: 0644\n    overwrite: true\n    contents: {inline: infra}\n"
			Expect(runPoolboot("convert", "--butane", clitest.WriteFile("a.bu", butane)).Out).
				To(Equal(strings.Replace(spec35, `{"source"`, `{"compression":"","source"`, 1)))
		})

		DescribeTable("warns of keys that Ignition ignores",
			func(version string) {
				r := runWithInput(`{"ignition":{"version":"`+version+`"},"storage":{"fils":[]}}`, "convert", "--ignition", "-")
				Expect(r.Code).To(BeZero())
				Expect(r.ErrOut).To(Equal("warning: standard input: line 1: storage.fils: Ignition " + version + " ignores this key, and it has no content that a host would need: remove it\n"))
				lost := runWithInput(`{"ignition":{"version":"`+version+`"},"storage":{"fils":[{"path":"/a"}]}}`, "convert", "--ignition", "-")
				clitest.ExpectError(lost, 1, "standard input: line 1: storage.fils: Ignition "+version+" does not have this key, and would ignore it with its content")
			},
			Entry("in spec 2", "2.2.0"), Entry("in spec 3", "3.2.0"),
		)

		DescribeTable("reports the position of an error",
			func(flag, document, place string) {
				clitest.ExpectError(runWithInput(document, "convert", flag, "-"), 1, "standard input: ", place)
			},
			Entry("Ignition 2", "--ignition", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"filesystem":"other","path":"/a"}]}}`, "storage.files[0].filesystem"),
			Entry("Ignition 3", "--ignition", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","mode":"0644"}]}}`, "storage.files[0].mode"),
			Entry("Butane", "--butane", "variant: fcos\nversion: 1.5.0\nstorage:\n  fils: []\n", "storage.fils"),
		)
	})

	It("prints one List with -o json", func() {
		file := clitest.WriteFile("pools.yaml", clitest.OpenShiftWorker, clitest.OpenShiftInfra)
		r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "-o", "json")
		var list struct {
			Kind  string
			Items []struct {
				APIVersion, Kind string
				Metadata         struct{ Name, Namespace string }
			}
		}
		Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(r)), &list)).To(Succeed())
		Expect(list.Kind).To(Equal("List"))
		Expect(list.Items).To(HaveLen(2))
		Expect(list.Items[0]).To(And(HaveField("APIVersion", "poolboot.io/v1alpha1"), HaveField("Kind", "MachineConfigPool"),
			HaveField("Metadata.Name", "worker"), HaveField("Metadata.Namespace", "edge")))
	})

	It("names the file, the document and the line of what it refuses, and no type of a program", func() {
		file := clitest.WriteFile("objects.yaml", clitest.OpenShiftWorker, `# A comment.
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: a, labels: {x: 5}}
---
apiVersion: v1
kind: List
items:
- apiVersion: machineconfiguration.openshift.io/v1
  kind: MachineConfig
  metadata: {name: b}
  spec:
    config:
      ignition: {version: 3.2.0}
      storage:
        files:
        - path: /etc/x
        - path: etc/y
`)
		r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--skip-refused")
		Expect(r.Code).To(Equal(3))
		first := strings.Count(clitest.OpenShiftWorker, "\n") + 3
		Expect(r.ErrOut).To(ContainSubstring(fmt.Sprintf(`refused: %s: document 2: line %d: MachineConfig "a": metadata.labels.x: must be a string, not 5: quote it`, file, first+3)))
		Expect(r.ErrOut).To(ContainSubstring(fmt.Sprintf(`refused: %s: document 3: item 1: line %d: MachineConfig "b": spec.config.storage.files[1].path: path not absolute`, file, first+17)))
		Expect(r.ErrOut).NotTo(Or(ContainSubstring("Go struct"), ContainSubstring("(line 1)")))
	})

	DescribeTable("refuses an invalid command line",
		func(why string, args ...string) {
			clitest.ExpectError(runPoolboot(append([]string{"convert"}, args...)...), 1, why)
		},
		Entry("nothing to convert", "set --filename, --ignition or --butane\n"),
		Entry("no Cluster", "set --cluster and --namespace: --filename, --cluster and --namespace belong together", "-f", "-"),
		Entry("objects and a document", "--filename and --ignition exclude each other", "-f", "-", "--cluster", "a", "-n", "b", "--ignition", "b.ign"),
		Entry("two documents", "b.ign is one file too many", "--ignition", "a.ign", "b.ign"),
		Entry("a file that does not exist", "nowhere.ign: no such file", "--ignition", "nowhere.ign"),
	)
})
