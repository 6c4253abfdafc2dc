package convert

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// labeled gives an object of OpenShift's a label, in YAML.
func addLabel(object, label string) string {
	return strings.Replace(object, "metadata:\n", "metadata:\n  labels: {"+label+"}\n", 1)
}

// newKubeletConfig returns an OpenShift KubeletConfig for the pools with a label, with more of its spec in YAML's flow
// style.
func newKubeletConfig(name, label, spec string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata:\n  name: " + name +
		"\nspec: {machineConfigPoolSelector: {matchLabels: {" + label + "}}, " + spec + "}\nstatus: {conditions: [{type: Accepted}]}\n"
}

var _ = Describe("convert, of KubeletConfigs", func() {
	converting := func(documents ...string) clitest.Result {
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", documents...), "--cluster", "infra-1", "-n", "edge")
	}
	worker, infra := addLabel(clitest.OpenShiftWorker, `size: big, role: worker`), addLabel(clitest.OpenShiftInfra, `size: big, role: infra`)
	newConfig := func(config, metadata string) string {
		return strings.Replace(config, "metadata:\n", "metadata:\n  "+metadata+"\n", 1)
	}

	It("sets the kubelet section of each pool that they select", func() {
		out := clitest.ExpectSuccess(converting(worker, infra, newKubeletConfig("big", "size: big", "kubeletConfig: {maxPods: 500, systemReserved: {cpu: 1500m}, syncFrequency: null}, autoSizingReserved: false")))
		Expect(strings.Count(out, "  kubelet:\n    autoSizingReserved: false\n    configuration:\n      apiVersion: kubelet.config.k8s.io/v1beta1\n      kind: KubeletConfiguration\n      maxPods: 500\n      systemReserved:\n        cpu: 1500m\n")).To(Equal(2))
		Expect(strings.Count(out, "\nkind:")).To(Equal(2), "nothing is left of the KubeletConfig itself")
	})

	It("has hosts compute what they reserve, or not, as the KubeletConfig says", func() {
		out := clitest.ExpectSuccess(converting(worker, infra, newKubeletConfig("w", "role: worker", "autoSizingReserved: true"), newKubeletConfig("i", "role: infra", "autoSizingReserved: false")))
		Expect(out).To(MatchRegexp(`(?s)name: worker\n.*spec:\n  clusterName: infra-1\n  kubelet:\n    autoSizingReserved: true\n.*name: infra\n.*spec:\n  clusterName: infra-1\n  kubelet:\n    autoSizingReserved: false\n`))
		clitest.ExpectError(converting(worker, infra, newKubeletConfig("i", "role: infra", "autoSizingReserved: true, kubeletConfig: {systemReserved: {memory: 1Gi}}")), 1,
			`KubeletConfig "i": spec.kubeletConfig.systemReserved: autoSizingReserved computes it on each host, and OpenShift refuses both: remove one of them`)
	})

	It("refuses a KubeletConfig that computes and sets what is reserved, and keeps its pool", func() {
		r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, newKubeletConfig("w", "role: worker", "kubeletConfig: {autoSizingReserved: true}")), "--cluster", "infra-1", "-n", "edge")
		Expect(r.ErrOut).To(ContainSubstring("spec.kubeletConfig.autoSizingReserved is left out: a KubeletConfiguration has no such field: move it to spec.autoSizingReserved\n"))
		r = runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, newKubeletConfig("w", "role: worker", "autoSizingReserved: true, kubeletConfig: {systemReserved: {memory: 1Gi}}")),
			"--cluster", "infra-1", "-n", "edge", "--skip-refused")
		Expect(r.Code).To(Equal(cli.ExitIncomplete))
		Expect(r.Out).To(ContainSubstring("kind: MachineConfigPool"))
	})

	It("judges the KubeletConfig of a custom pool together with that of worker", func() {
		bad := []string{worker, infra, newKubeletConfig("w", "role: worker", "kubeletConfig: {cpuManagerPolicy: static, reservedSystemCPUs: 0-1}"),
			newKubeletConfig("i", "role: infra", "kubeletConfig: {kubeReservedCgroup: /a}")}
		r := converting(bad...)
		Expect(r.Code).To(Equal(1))
		Expect(r.ErrOut).To(MatchRegexp(`KubeletConfig "i": spec[.]kubeletConfig[.].*\(the pool infra inherits fields of "w" from worker\)`))
		Expect(r.ErrOut).NotTo(ContainSubstring("error: MachineConfigPool"))

		By("accepting fields that are only valid with worker's")
		good := converting(worker, infra, newKubeletConfig("w", "role: worker", "kubeletConfig: {serializeImagePulls: false}"),
			newKubeletConfig("i", "role: infra", "kubeletConfig: {maxParallelImagePulls: 5}"))
		Expect(good.Code).To(BeZero(), good.ErrOut)
	})

	It("names the zero values that it leaves out, as OpenShift does, and keeps decisions", func() {
		r := converting(worker, infra, newKubeletConfig("performance-a", "role: infra", `kubeletConfig: {
			apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, cpuManagerPolicy: static, reservedSystemCPUs: 0-1,
			containerRuntimeEndpoint: "", streamingConnectionIdleTimeout: 0s, syncFrequency: 0s, maxPods: 0, evictionHard: {},
			authentication: {anonymous: {}, webhook: {cacheTTL: 0s}, x509: {}}, authorization: {webhook: {cacheAuthorizedTTL: 0s}},
			logging: {flushFrequency: 0, verbosity: 0, options: {text: {infoBufferSize: "0"}, json: {infoBufferSize: "0"}}}, memorySwap: {},
			serializeImagePulls: false, eventRecordQPS: 0, podsPerCore: 0}`))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal(`note: KubeletConfig "performance-a": zero values in spec.kubeletConfig are left out, as OpenShift does: authentication, authorization, ` +
			"containerRuntimeEndpoint, evictionHard, logging, maxPods, memorySwap, podsPerCore, streamingConnectionIdleTimeout, syncFrequency\n"))
		Expect(r.Out).To(ContainSubstring("  kubelet:\n    configuration:\n      apiVersion: kubelet.config.k8s.io/v1beta1\n      cpuManagerPolicy: static\n      eventRecordQPS: 0\n" +
			"      kind: KubeletConfiguration\n      reservedSystemCPUs: 0-1\n      serializeImagePulls: false\n  machineConfigSelector"))
	})

	It("does not change other pools, and renders their fields", func() {
		out := clitest.ExpectSuccess(converting(worker, infra, newKubeletConfig("big", "role: infra", "kubeletConfig: {maxPods: 500}, logLevel: 5")))
		Expect(strings.Count(out, "  kubelet:\n    configuration:\n      apiVersion: kubelet.config.k8s.io/v1beta1\n      kind: KubeletConfiguration\n      logging:\n        verbosity: 5\n      maxPods: 500\n")).To(Equal(1))
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("ours.yaml", out), "--pool", "infra", "-o", "ignition"))).To(ContainSubstring("98-poolboot-pool.conf"))
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("ours.yaml", out), "--pool", "worker", "-o", "ignition"))).NotTo(ContainSubstring("kubelet.conf.d"))
	})

	DescribeTable("warns of each field that it leaves out, with the reason",
		func(spec, remark string) {
			r := converting(worker, infra, newKubeletConfig("big", "role: infra", "kubeletConfig: {maxPods: 500}, "+spec))
			if strings.HasPrefix(spec, "kubeletConfig:") {
				r = converting(worker, infra, newKubeletConfig("big", "role: infra", spec))
			}
			Expect(r.Code).To(BeZero())
			Expect(r.Out).To(ContainSubstring("  kubelet:\n    configuration:\n      apiVersion: kubelet.config.k8s.io/v1beta1\n      kind: KubeletConfiguration\n      maxPods: 500\n"))
			Expect(r.ErrOut).To(HavePrefix(`warning: KubeletConfig "big": spec.` + remark))
			Expect(strings.Count(r.ErrOut, "\n")).To(Equal(1))
		},
		Entry("a field that identifies the Node", "kubeletConfig: {maxPods: 500, registerWithTaints: [{key: a, effect: NoSchedule}]}", "kubeletConfig.registerWithTaints is left out: set spec.node.taints"),
		Entry("static pods", "kubeletConfig: {maxPods: 500, staticPodPath: /a}", "kubeletConfig.staticPodPath is left out"),
		Entry("a field that OpenShift refuses", "kubeletConfig: {maxPods: 500, clusterDNS: [10.0.0.10]}", "kubeletConfig.clusterDNS is left out: OpenShift refuses it"),
		Entry("an unknown field", "kubeletConfig: {maxPods: 500, maxPod: 5}", "kubeletConfig.maxPod is left out: a KubeletConfiguration has no such field"),
	)

	DescribeTable("warns of a KubeletConfig that selects no pool of the files",
		func(label, remark string) {
			r := converting(addLabel(strings.ReplaceAll(clitest.OpenShiftWorker, "worker", "arbiter"), "role: arbiter"), worker, newKubeletConfig("big", label, "kubeletConfig: {maxPods: 500}"))
			Expect(r.Code).To(BeZero())
			Expect(r.Out).NotTo(ContainSubstring("maxPods"))
			Expect(r.ErrOut).To(ContainSubstring(`warning: KubeletConfig "big" is left out` + remark))
		},
		Entry("of a pool that is not in the files", "role: gpu", ": its machineConfigPoolSelector selects no pool of OpenShift in the files"),
		Entry("of machines that run only etcd", "role: arbiter", " for the pool arbiter"),
		Entry("of no pool, with an empty selector", "", ": its machineConfigPoolSelector selects no pool of OpenShift in the files"),
	)

	It("does not have the control plane inherit from worker", func() {
		master := addLabel(clitest.OpenShiftMaster, "role: master")
		r := converting(worker, master, newKubeletConfig("a", "role: worker", "autoSizingReserved: true"), newKubeletConfig("b", "role: master", `kubeletConfig: {systemReserved: {cpu: "1"}}`))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Out).To(And(ContainSubstring("autoSizingReserved: true"), ContainSubstring("systemReserved:")))
	})

	Describe("of two for one pool", func() {
		a, b := newKubeletConfig("a", "role: infra", "kubeletConfig: {maxPods: 1}"), newKubeletConfig("b", "role: infra", "kubeletConfig: {maxPods: 2}")

		DescribeTable("uses the one that OpenShift uses, and warns of the other",
			func(a, b string, maxPods string) {
				r := converting(worker, infra, a, b)
				Expect(r.Code).To(BeZero())
				Expect(r.Out).To(ContainSubstring("maxPods: " + maxPods + "\n"))
				Expect(r.ErrOut).To(MatchRegexp(`^warning: KubeletConfig "[ab]" is left out for the pool infra: "[ab]" is newer and replaces it, as in OpenShift\n$`))
			},
			Entry("by number", newConfig(a, `annotations: {machineconfiguration.openshift.io/mc-name-suffix: "1"}`), newConfig(b, `annotations: {machineconfiguration.openshift.io/mc-name-suffix: ""}`), "1"),
			Entry("by age", newConfig(a, `creationTimestamp: "2026-02-01T00:00:00Z"`), newConfig(b, `creationTimestamp: "2026-01-01T00:00:00Z"`), "1"),
			Entry("by age, in the other order", newConfig(a, `creationTimestamp: "2026-01-01T00:00:00Z"`), newConfig(b, `creationTimestamp: "2026-02-01T00:00:00Z"`), "2"),
		)

		It("refuses and lists each one that can be the newest, and leaves out older ones with a warning", func() {
			c := newConfig(newKubeletConfig("c", "role: infra", "kubeletConfig: {maxPods: 3}"), `annotations: {machineconfiguration.openshift.io/mc-name-suffix: "1"}`)
			d := newConfig(newKubeletConfig("d", "role: infra", "kubeletConfig: {maxPods: 4}"), `annotations: {machineconfiguration.openshift.io/mc-name-suffix: "1"}`)
			e := newConfig(newKubeletConfig("e", "role: infra", "kubeletConfig: {maxPods: 5}"), `annotations: {machineconfiguration.openshift.io/mc-name-suffix: "1"}`)
			r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, infra, a, c, d, e), "--cluster", "infra-1", "-n", "edge", "--skip-refused")
			Expect(r.Code).To(Equal(cli.ExitIncomplete))
			Expect(r.Out).NotTo(ContainSubstring("maxPods"))
			Expect(r.ErrOut).To(And(ContainSubstring(`KubeletConfig "c": spec.machineConfigPoolSelector: it selects the pool infra, as KubeletConfig "d" does (`),
				ContainSubstring(`KubeletConfig "d": spec.machineConfigPoolSelector: it selects the pool infra, as KubeletConfig "c" does (`),
				ContainSubstring(`KubeletConfig "e": spec.machineConfigPoolSelector: it selects the pool infra, as KubeletConfig "c" does (`),
				ContainSubstring(`warning: KubeletConfig "a" is left out for the pool infra: "c" is newer`),
				HaveSuffix("error: 3 refused and left out: correct what is listed above, and convert again\n")))
		})

		It("uses the newest one if only the order of older ones is unknown", func() {
			c := newConfig(newKubeletConfig("c", "role: infra", "kubeletConfig: {maxPods: 3}"), `annotations: {machineconfiguration.openshift.io/mc-name-suffix: "1"}`)
			Expect(converting(worker, infra, a, b, c)).To(And(HaveField("Code", 0), HaveField("Out", ContainSubstring("maxPods: 3\n"))))
		})

		It("refuses two of the same age", func() {
			clitest.ExpectError(converting(worker, infra, a, b), 1, `KubeletConfig "b": spec.machineConfigPoolSelector: it selects the pool infra, as KubeletConfig "a" does (`, "document 3")
		})
	})

	It("warns of the fields that a custom pool inherits only in Poolboot", func() {
		r := converting(worker, infra, newKubeletConfig("w", "role: worker", "kubeletConfig: {maxPods: 1, podsPerCore: 5, systemReserved: {cpu: 1, memory: 1Gi}}"),
			newKubeletConfig("i", "role: infra", "kubeletConfig: {maxPods: 2, systemReserved: {cpu: 2}}"))
		clitest.ExpectError(r, 1, `systemReserved.cpu: must be a string, not 1: quote it`)
		r = converting(worker, infra, newKubeletConfig("w", "role: worker", `kubeletConfig: {maxPods: 1, podsPerCore: 5, systemReserved: {cpu: "1", memory: 1Gi}}`),
			newKubeletConfig("i", "role: infra", `kubeletConfig: {maxPods: 2, systemReserved: {cpu: "2"}}`))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(HavePrefix(`warning: MachineConfigPool "infra": it inherits podsPerCore, systemReserved.memory from worker: in OpenShift`))
	})

	It("warns of them also if the KubeletConfig of the pool has only zero values, and of computed reservations", func() {
		w := newKubeletConfig("w", "role: worker", "autoSizingReserved: true, kubeletConfig: {maxPods: 500}")
		const inherits = `warning: MachineConfigPool "infra": it inherits `
		r := converting(worker, infra, w, newKubeletConfig("i", "role: infra", "kubeletConfig: {maxPods: 0}"))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(HavePrefix(inherits + "maxPods, autoSizingReserved from worker: in OpenShift its own KubeletConfig replaces worker's. " +
			"Set these fields in its spec.kubelet.configuration. Set its spec.kubelet.autoSizingReserved to false\n"))

		r = converting(worker, infra, w, newKubeletConfig("i", "role: infra", "autoSizingReserved: false, kubeletConfig: {maxPods: 5}"))
		Expect(r.ErrOut).To(BeEmpty())

		By("not warning of a pool without its own, which has worker's in OpenShift too")
		Expect(converting(worker, infra, w).ErrOut).To(BeEmpty())
	})

	It("refuses values that Poolboot would refuse", func() {
		clitest.ExpectError(converting(worker, infra, newKubeletConfig("big", "role: infra", "kubeletConfig: {maxPods: -1}")), 1, `KubeletConfig "big": spec.kubeletConfig.maxPods: Invalid value: -1`)
	})

	DescribeTable("leaves out only the KubeletConfig with a refused value, and names its place",
		func(spec, problem string, pools ...string) {
			label := `pools.operator.machineconfiguration.openshift.io/worker: ""`
			file := clitest.WriteFile("objects.yaml", append([]string{newKubeletConfig("bad", label, "\n  kubeletConfig: {\n    "+spec+"}")}, pools...)...)
			r := runPoolboot("convert", "-f", file, "--cluster", "infra-1", "-n", "edge", "--skip-refused")
			Expect(r.Code).To(Equal(cli.ExitIncomplete))
			Expect(r.ErrOut).To(ContainSubstring("refused: " + file + `: document 1: line 7: KubeletConfig "bad": spec.kubeletConfig.` + problem))
			Expect(r.ErrOut).To(HaveSuffix("error: 1 refused and left out: correct what is listed above, and convert again\n"))
			Expect(r.Out).To(And(ContainSubstring("kind: MachineConfigPool"), ContainSubstring("name: worker"), Not(ContainSubstring("kubelet:"))))
		},
		Entry("for a pool of the files", "memorySwap: {swapBehavior: UnlimitedSwap}", `memorySwap.swapBehavior: Unsupported value: "UnlimitedSwap"`,
			addLabel(clitest.OpenShiftWorker, `pools.operator.machineconfiguration.openshift.io/worker: ""`)),
		Entry("without pools", "containerLogMaxFiles: 1", "containerLogMaxFiles: Invalid value: 1"),
	)

	It("leaves out the MachineConfigs that OpenShift generates from them", func() {
		generated := strings.Replace(clitest.OpenShiftInfra51, "metadata:\n", "metadata:\n  ownerReferences: [{apiVersion: machineconfiguration.openshift.io/v1, kind: KubeletConfig, name: big, uid: b}]\n", 1)
		r := converting(worker, generated)
		Expect(r.Code).To(BeZero())
		Expect(r.Out).NotTo(ContainSubstring("51-infra"))
		Expect(r.ErrOut).To(ContainSubstring(`note: MachineConfig "51-infra" is left out: OpenShift generated it from a KubeletConfig`))
	})
})
