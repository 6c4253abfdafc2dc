package main

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("render --explain", func() {
	documents := []string{ownPool("edge", "worker"), ownPool("edge", "infra"), infra51,
		ownConfig("99-y", "worker", motd("worker")), ownConfig("51-x", "infra", motd("infra")),
		ownConfig("60-args", "infra", "{kernelArguments: [nosmt, quiet]}")}

	// explaining is what --explain prints of the documents.
	explaining := func(args ...string) string {
		GinkgoHelper()
		return answered(poolboot(append([]string{"render", "-f", file("all.yaml", documents...), "--pool", "infra", "--explain"}, args...)...))
	}

	It("prints where everything came from as a table", func() {
		var lines [][]string
		for line := range strings.Lines(explaining()) {
			lines = append(lines, strings.Fields(line))
		}
		Expect(lines).To(Equal([][]string{
			{"KIND", "NAME", "MACHINECONFIG", "OVER"},
			{"file", "/etc/motd", "51-x", "99-y"},
			{"file", "/etc/infratest", "51-infra", "<none>"},
			{"kernelArgument", "nosmt", "60-args", "<none>"},
			{"kernelArgument", "quiet", "60-args", "<none>"},
		}))
	})

	It("prints it as an object, in JSON and YAML", func() {
		var answer explained
		Expect(json.Unmarshal([]byte(explaining("-o", "json")), &answer)).To(Succeed())
		Expect(answer.Name).To(MatchRegexp(`^rendered-infra-[0-9a-f]{32}$`))
		Expect(answer.Source).To(Equal([]string{"99-y", "51-infra", "51-x", "60-args"}))
		Expect(answer.Entries).To(ContainElement(pool.Origin{Kind: pool.KindFile, Name: "/etc/motd", MachineConfig: "51-x", Over: []string{"99-y"}}))
		Expect(yaml.YAMLToJSON([]byte(explaining("-o", "yaml")))).To(MatchJSON(explaining("-o", "json")))
	})

	It("names the pools whose kubelet section it is", func() {
		with := func(pool string) string {
			return pool + "  kubeletConfiguration: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 500}\n"
		}
		files := file("all.yaml", with(ownPool("edge", "worker")), with(ownPool("edge", "infra")))
		Expect(answered(poolboot("render", "-f", files, "--pool", "infra", "--explain"))).To(And(
			MatchRegexp(`file +/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf +spec.kubeletConfiguration of pool worker +<none>`),
			MatchRegexp(`file +/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf +spec.kubeletConfiguration of pool infra +<none>`)))
		var answer explained
		Expect(json.Unmarshal([]byte(answered(poolboot("render", "-f", files, "--pool", "infra", "--explain", "-o", "json"))), &answer)).To(Succeed())
		Expect(answer.Entries[1]).To(Equal(pool.Origin{Kind: pool.KindFile, Name: "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf", Pool: "infra"}))
		refused(poolboot("render", "-f", file("wrong.yaml", ownPool("edge", "worker")+"  kubeletConfiguration: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPod: 5}\n"), "--pool", "worker"), 1,
			`MachineConfigPool "worker": spec.kubeletConfiguration.maxPod`)
	})

	It("prints empty lists of a pool without MachineConfigs", func() {
		out := answered(poolboot("render", "-f", file("all.yaml", documents[:2]...), "--pool", "infra", "--explain", "-o", "json"))
		Expect(out).To(And(ContainSubstring(`"source": []`), ContainSubstring(`"entries": []`)))
	})

	It("quotes what would do something to a terminal", func() {
		odd := ownConfig("70-odd", "infra", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: "/etc/\u001b[2J\n"}]}}}`)
		Expect(answered(poolboot("render", "-f", file("all.yaml", append(documents, odd)...), "--pool", "infra", "--explain"))).To(
			ContainSubstring(`"/etc/\x1b[2J\n"`))
	})

	It("does not go with the Ignition document", func() {
		refused(poolboot("render", "-f", file("all.yaml", documents...), "--pool", "infra", "--explain", "-o", "ignition"), 1,
			"--output ignition does not go with --explain")
	})
})
