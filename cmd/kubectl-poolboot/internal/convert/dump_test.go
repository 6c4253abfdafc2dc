package convert

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert, of a whole cluster", func() {
	flags := []string{"--cluster", "infra-1", "-n", "edge"}
	converting := func(documents ...string) clitest.Result {
		return runPoolboot(append([]string{"convert", "-f", clitest.WriteFile("objects.yaml", documents...)}, flags...)...)
	}
	// newMachineConfig returns an OpenShift MachineConfig of a role, with metadata and a spec in YAML's flow style.
	newMachineConfig := func(name, role, metadata, spec string) string {
		return "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: " + name +
			", labels: {machineconfiguration.openshift.io/role: " + role + "}, " + metadata + "}\nspec: " + spec + "\n"
	}
	const (
		reserved = "{config: {ignition: {version: 3.5.0}, systemd: {units: [{name: kubelet.service, enabled: true, contents: \"[Service]\"}]}}}"
		own      = "{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/motd, contents: {source: \"data:,hi\"}}]}}}"
		owned    = "ownerReferences: [{apiVersion: machineconfiguration.openshift.io/v1, kind: %, name: a, uid: b}]"
	)

	const byName = "OpenShift generates one of this name from its configuration of the kubelet, the container runtime or registries: if this one is yours, rename it"

	DescribeTable("leaves out what OpenShift's controllers generate",
		func(name, metadata, why string) {
			r := converting(clitest.OpenShiftWorker, newMachineConfig(name, "worker", metadata, reserved), newMachineConfig("50-motd", "worker", "", own))
			Expect(r.ErrOut).To(Equal(`note: MachineConfig "` + name + `" is left out: ` + why + "\n"))
			Expect(r.Out).To(ContainSubstring("name: 50-motd"))
			Expect(r.Code).To(BeZero())
		},
		Entry("from templates", "00-worker", "", "OpenShift generated it for its own hosts"),
		Entry("for the kubelet", "01-worker-kubelet", "", "OpenShift generated it for its own hosts"),
		Entry("for CRI-O", "01-worker-container-runtime", "", "OpenShift generated it for its own hosts"),
		Entry("as the property of its ControllerConfig", "50-a", strings.Replace(owned, "%", "ControllerConfig", 1), "OpenShift generated it for its own hosts"),
		Entry("by the annotation of its controllers", "50-a", `annotations: {machineconfiguration.openshift.io/generated-by-controller-version: 0a}`, "OpenShift generated it for its own hosts"),
		Entry("from features", "98-worker-generated-kubelet", "", byName),
		Entry("from the Node configuration", "97-worker-generated-kubelet", "", byName),
		Entry("from image policies", "99-worker-generated-registries", "", byName),
		Entry("for an upgrade", "99-worker-generated-crio-seccomp-use-default", "", byName),
		Entry("for an upgrade to 4.18", "00-override-worker-generated-crio-default-container-runtime", "", byName),
		Entry("from a second KubeletConfig", "99-worker-generated-kubelet-1", "", byName),
		Entry("from a ContainerRuntimeConfig", "99-worker-a", strings.Replace(owned, "%", "ContainerRuntimeConfig", 1), "OpenShift generated it from a ContainerRuntimeConfig, which is converted"),
	)

	DescribeTable("keeps the MachineConfigs of a user with similar names",
		func(name string) {
			Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftWorker, newMachineConfig(name, "worker", "", own)))).To(ContainSubstring("name: " + name + "\n"))
		},
		Entry(nil, "98-var-partition"), Entry(nil, "97-crio"), Entry(nil, "99-worker-ssh"), Entry(nil, "00-worker-proxy"), Entry(nil, "00-chrony"),
	)

	It("keeps a MachineConfig of a user with a name like those of generated ones, and says so", func() {
		r := converting(clitest.OpenShiftWorker, newMachineConfig("99-worker-generated-foo", "worker", "", own))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).To(ContainSubstring("name: 99-worker-generated-foo\n"))
		Expect(r.ErrOut).To(Equal("note: MachineConfig \"99-worker-generated-foo\" is kept: its name is like those of generated MachineConfigs, but OpenShift generates none of this name\n"))
	})

	It("leaves out the pool of the arbiter, which belongs to the control plane", func() {
		arbiter := strings.ReplaceAll(clitest.OpenShiftWorker, "worker", "arbiter")
		r := converting(clitest.OpenShiftWorker, arbiter, newMachineConfig("50-arbiter", "arbiter", "", own))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).NotTo(ContainSubstring("arbiter"))
		Expect(r.ErrOut).To(And(ContainSubstring(`warning: MachineConfigPool "arbiter" is left out: its machines run only etcd`),
			ContainSubstring(`warning: MachineConfig "50-arbiter" is left out: only the pool arbiter selects it`)))
		Expect(converting(newMachineConfig("50-arbiter", "arbiter", "", own)).Out).NotTo(ContainSubstring("arbiter"))
	})

	DescribeTable("leaves out the image of an OpenShift release in a mirror",
		func(image string) {
			r := converting(clitest.OpenShiftWorker, newMachineConfig("50-a", "worker", "", "{osImageURL: \""+image+"\"}"), `apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: release}
spec: {imageDigestMirrors: [{source: quay.io/openshift-release-dev/ocp-v4.0-art-dev, mirrors: ["registry.example.com:5000/ocp4/openshift4"]}]}
`)
			Expect(r.Code).To(BeZero(), r.ErrOut)
			Expect(r.Out).NotTo(ContainSubstring("osImageURL"))
			Expect(r.ErrOut).To(ContainSubstring(`note: MachineConfig "50-a": spec.osImageURL is left out: it is the image of an OpenShift release`))
		},
		Entry("with the name of the release", "registry.example.com:5000/openshift-release-dev/ocp-v4.0-art-dev@sha256:0a"),
		Entry("below a directory", "registry.example.com/quay.io/openshift-release-dev/ocp-release:4.18.1"),
		Entry("with another name before it", "registry.example.com/mirror/ocp-v4.0-art-dev@sha256:0a"),
		Entry("of oc-mirror", "registry.example.com/openshift/release:4.18.1-x86_64-rhel-coreos"),
		Entry("that the files name", "registry.example.com:5000/ocp4/openshift4@sha256:0a"),
	)

	It("refuses a MachineConfig with a name that it needs for registries, and says why", func() {
		r := converting(clitest.OpenShiftWorker, newMachineConfig("99-worker-registries", "worker", "", own),
			newMirrorSet("ImageTagMirrorSet", "t", "imageTagMirrors: [{source: quay.io, mirrors: [mirror.local]}]"))
		Expect(r.Code).To(Equal(1))
		Expect(r.ErrOut).To(ContainSubstring(`MachineConfig "99-worker-registries": the settings of container runtimes or registries in the files become a MachineConfig of this name: rename this one`))
	})

	It("leaves out the image of an OpenShift release, and keeps an image of the user", func() {
		r := converting(clitest.OpenShiftWorker, newMachineConfig("50-a", "worker", "", "{osImageURL: \"quay.io/openshift-release-dev/ocp-v4.0-art-dev@sha256:0a\"}"),
			newMachineConfig("50-b", "worker", "", "{osImageURL: \"quay.io/example/os@sha256:0a\"}"))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(HavePrefix(`note: MachineConfig "50-a": spec.osImageURL is left out: it is the image of an OpenShift release`))
		Expect(r.Out).To(And(ContainSubstring("osImageURL: quay.io/example/os"), Not(ContainSubstring("art-dev"))))
	})

	DescribeTable("refuses what no host can install",
		func(spec, why string) {
			r := converting(clitest.OpenShiftWorker, newMachineConfig("50-a", "worker", "", spec))
			Expect(r.Code).To(Equal(1))
			Expect(r.ErrOut).To(MatchRegexp(`MachineConfig "50-a": ` + why))
		},
		Entry(nil, `{osImageURL: "x y"}`, `spec.osImageURL: .*it must be the name of an image`),
		Entry(nil, `{baseOSExtensionsContainerImage: "--help"}`, `spec.baseOSExtensionsContainerImage: .*it must be the name of an image`),
		Entry(nil, `{extensions: ["-y"]}`, `spec.extensions\[0\]: must match`),
	)

	It("adds OpenShift's pool of the control plane if something is for it", func() {
		const builtIn = "  name: master\n  namespace: edge\nspec:\n  clusterName: infra-1\n"
		added := "note: MachineConfigPool \"master\" is added as OpenShift's built-in pool, which the files do not contain: "
		r := converting(clitest.OpenShiftWorker, newMachineConfig("99-master-ssh", "master", "", own))
		Expect(r.ErrOut).To(Equal(added + "it selects MachineConfig \"99-master-ssh\"\n"))
		Expect(r.Out).To(And(ContainSubstring("name: 99-master-ssh\n"), ContainSubstring(builtIn), ContainSubstring("poolRole: control-plane\n")))

		r = converting(clitest.OpenShiftWorker, newKubeletConfig("m", `pools.operator.machineconfiguration.openshift.io/master: ""`, "kubeletConfig: {maxPods: 5}"))
		Expect(r.ErrOut).To(Equal(added + "KubeletConfig \"m\" selects it\n"))
		Expect(r.Out).To(And(ContainSubstring(builtIn+"  kubelet:\n"), ContainSubstring("maxPods: 5\n")))
		Expect(strings.Count(r.Out, "maxPods")).To(Equal(1))

		By("completing a partial one")
		r = converting("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: master}\nspec: {paused: true}\n", newMachineConfig("99-master-ssh", "master", "", own))
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"master\": the labels and spec.machineConfigSelector of OpenShift's built-in pool are added, which the files do not contain\n"))
		Expect(r.Out).To(And(ContainSubstring("paused: true"), ContainSubstring("role: master")))

		By("not beside one of Poolboot")
		r = converting(strings.Replace(clitest.Pool("infra-1", "control-plane"), "role: control-plane", "role: master", 1), newMachineConfig("99-master-ssh", "master", "", own))
		Expect(r.Out).NotTo(ContainSubstring("name: master"))
	})

	Describe("without the pool worker", func() {
		builtIn := "  name: worker\n  namespace: edge\nspec:\n  clusterName: infra-1\n  machineConfigSelector:\n    matchLabels:\n      machineconfiguration.openshift.io/role: worker\n" +
			"  nodeSelector:\n    matchLabels:\n      node-role.kubernetes.io/worker: \"\"\n  poolRole: worker\n"

		DescribeTable("adds OpenShift's",
			func(document, why string) {
				r := converting(document)
				Expect(r.Code).To(BeZero())
				Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"worker\" is added as OpenShift's built-in pool, which the files do not contain: " + why + "\n"))
				Expect(r.Out).To(MatchRegexp(`(?m)^  poolRole: worker$`))
			},
			Entry("for a custom pool", clitest.OpenShiftInfra, `MachineConfigPool "infra" inherits from it`),
			Entry("for a MachineConfig", newMachineConfig("50-a", "worker", "", own), `it selects MachineConfig "50-a"`),
			Entry("for a KubeletConfig", newKubeletConfig("big", `pools.operator.machineconfiguration.openshift.io/worker: ""`, "kubeletConfig: {maxPods: 5}"), `KubeletConfig "big" selects it`),
			Entry("for policies", newMachineConfiguration("nodeDisruptionPolicy: {units: [{name: a.service, actions: []}]}"), `it gets the settings of MachineConfiguration "cluster"`),
		)

		It("adds none for another pool's MachineConfig", func() {
			Expect(clitest.ExpectSuccess(converting(clitest.OpenShiftInfra51))).NotTo(ContainSubstring("kind: MachineConfigPool"))
		})

		It("completes a partial one", func() {
			r := converting("apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\nmetadata: {name: worker, labels: {size: big}}\nspec: {paused: true}\n",
				newKubeletConfig("big", `pools.operator.machineconfiguration.openshift.io/worker: ""`, "kubeletConfig: {maxPods: 5}"))
			Expect(r.Code).To(BeZero())
			Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"worker\": the labels and spec.machineConfigSelector and spec.nodeSelector of OpenShift's built-in pool are added, which the files do not contain\n"))
			Expect(r.Out).To(And(ContainSubstring("paused: true"), ContainSubstring("size: big"), ContainSubstring("maxPods: 5")))
			for line := range strings.Lines(strings.TrimPrefix(builtIn, "  name: worker\n")) {
				Expect(r.Out).To(ContainSubstring(line))
			}
		})
	})

	Describe("with --skip-refused", func() {
		skipping := func(args ...string) clitest.Result {
			return runPoolboot(append(append([]string{"convert", "--skip-refused"}, args...), flags...)...)
		}

		It("converts everything else, lists what is refused, and exits with 3", func() {
			r := skipping("-f", clitest.WriteFile("a.yaml", clitest.OpenShiftWorker, newMachineConfig("50-a", "worker", "", reserved), "kind: [", newMachineConfig("50-b", "worker", "", own),
				"{apiVersion: v1, kind: List, items: [{apiVersion: machineconfiguration.openshift.io/v1, kind: MachineConfig, metadata: {}}]}"))
			Expect(r.Out).To(And(ContainSubstring("name: worker"), ContainSubstring("name: 50-b"), Not(ContainSubstring("50-a"))))
			Expect(r.ErrOut).To(And(MatchRegexp(`(?m)^refused: .*a.yaml: document 3: `), MatchRegexp(`(?m)^refused: .*document 5: item 1: line \d+: MachineConfig: metadata.name: is missing: set it$`),
				MatchRegexp(`(?m)^refused: .*MachineConfig "50-a": spec.config.systemd.units\[0\]`), HaveSuffix("error: 3 refused and left out: correct what is listed above, and convert again\n")))
			Expect(r.Code).To(Equal(cli.ExitIncomplete))
		})

		DescribeTable("refuses only the pool with an invalid selector",
			func(selector string) {
				r := skipping("-f", clitest.WriteFile("a.yaml", clitest.OpenShiftWorker, clitest.OpenShiftInfra, strings.NewReplacer("name: infra", "name: bad",
					"matchLabels:\n      node-role.kubernetes.io/infra: \"\"", selector).Replace(clitest.OpenShiftInfra)))
				Expect(r.Out).To(And(ContainSubstring("poolRole: worker"), ContainSubstring("poolRole: infra"), Not(ContainSubstring("poolRole: bad"))))
				Expect(strings.Count(r.ErrOut, "refused: ")).To(Equal(1), r.ErrOut)
				Expect(r.ErrOut).To(MatchRegexp(`refused: .*a.yaml: document 3: line \d+: MachineConfigPool "bad": spec.nodeSelector`))
			},
			Entry("that is malformed", `matchLabels: {"bad key!": ""}`),
			Entry("that selects all Nodes but some", "matchExpressions: [{key: a, operator: NotIn, values: [b]}]"),
		)

		It("keeps the first of objects that are given twice, and names the places of both", func() {
			r := skipping("-f", clitest.WriteFile("a.yaml", clitest.OpenShiftWorker, clitest.OpenShiftInfra, newMachineConfig("50-a", "worker", "", own),
				strings.Replace(clitest.OpenShiftInfra, "infra: \"\"", "infra: second", 1), clitest.OpenShiftInfra, newMachineConfig("50-a", "worker", "", "{fips: true}")))
			Expect(r.Out).To(And(ContainSubstring("poolRole: infra"), Not(ContainSubstring("second")), ContainSubstring("/etc/motd"), Not(ContainSubstring("fips"))))
			Expect(strings.Count(r.ErrOut, "refused: ")).To(Equal(2), r.ErrOut)
			Expect(r.ErrOut).To(MatchRegexp(`note: MachineConfigPool "infra" is left out: it is the same as in .*a.yaml: document 2: line`))
			for copied, of := range map[string]string{`4: line \d+: MachineConfigPool "infra"`: "2", `6: line \d+: MachineConfig "50-a"`: "3"} {
				Expect(r.ErrOut).To(MatchRegexp("refused: .*a.yaml: document %s is given twice: remove it, or the one in .*a.yaml: document %s: line", copied, of))
			}
		})

		It("does not replace a pool worker that is refused by the built-in one", func() {
			r := skipping("-f", clitest.WriteFile("a.yaml", strings.Replace(clitest.OpenShiftWorker, "paused: false", `paused: "true"`, 1), clitest.OpenShiftInfra, newMachineConfig("50-a", "worker", "", own)))
			Expect(r.Out).To(And(ContainSubstring("poolRole: infra"), ContainSubstring("name: 50-a"), Not(ContainSubstring("poolRole: worker"))))
			Expect(r.ErrOut).To(And(HavePrefix(`warning: MachineConfigPool "worker" is left out, because it is refused: KubeletConfigs and policies for it are left out with it`),
				ContainSubstring(`MachineConfigPool "worker": spec.paused: must be true or false, not the string "true"`), HaveSuffix("error: 1 refused and left out: correct what is listed above, and convert again\n")))
			Expect(r.ErrOut).NotTo(ContainSubstring("is added"))
		})

		It("exits with 0 when nothing is refused", func() {
			Expect(clitest.ExpectSuccess(skipping("-f", clitest.WriteFile("a.yaml", clitest.OpenShiftWorker)))).To(ContainSubstring("name: worker"))
		})
	})

	DescribeTable("refuses files without an object",
		func(text string) {
			file := clitest.WriteFile("a.yaml", text)
			clitest.ExpectError(runPoolboot(append([]string{"convert", "-f", file}, flags...)...), 1,
				file+": contains no object: if a command wrote it, it failed or found nothing: write the file again")
		},
		Entry("an empty one", ""),
		Entry("one with only a comment", "# a\n---\n"),
		Entry("an empty list", "{apiVersion: v1, kind: List, items: []}"),
	)

	It("leaves out the templates and values of Helm charts in directories", func() {
		directory := GinkgoT().TempDir()
		clitest.WriteFileIn(directory, "a.yaml", clitest.OpenShiftWorker)
		clitest.WriteFileIn(directory, "values.yaml", "role: worker\nsize: 3\n")
		clitest.WriteFileIn(directory, "template.yaml", "{{- range .Values.roles }}\nkind: MachineConfig\n{{- end }}\n")
		clitest.WriteFileIn(directory, "named.yaml", newMachineConfig(`"50-{{ .Values.name }}"`, "worker", "", own))
		r := runPoolboot(append([]string{"convert", "-f", directory}, flags...)...)
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(And(MatchRegexp(`note: is no Kubernetes object: set apiVersion and kind: it is left out\n`),
			MatchRegexp(`note: malformed YAML: .*: if it is a template, render it, and convert the result: it is left out`), MatchRegexp(`note: MachineConfig .*: it is a template: render it, and convert the result: it is left out`)))
		Expect(r.Out).To(And(ContainSubstring("name: worker"), Not(ContainSubstring("Values"))))
		clitest.ExpectError(converting("role: worker\n"), 1, "set apiVersion and kind")
	})
})
