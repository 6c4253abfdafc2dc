package render

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("render --explain", func() {
	documents := []string{clitest.Pool("edge", "worker"), clitest.Pool("edge", "infra"), clitest.OpenShiftInfra51,
		clitest.Config("99-y", "worker", clitest.Motd("worker")), clitest.Config("51-x", "infra", clitest.Motd("infra")),
		clitest.Config("60-args", "infra", "{kernelArguments: [nosmt, quiet]}")}

	// explaining is what --explain prints of the documents.
	explaining := func(args ...string) string {
		GinkgoHelper()
		return clitest.ExpectSuccess(runPoolboot(append([]string{"render", "-f", clitest.WriteFile("all.yaml", documents...), "--pool", "infra", "--explain"}, args...)...))
	}

	It("prints the MachineConfig of every entry as a table", func() {
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

	It("prints the same in JSON and YAML", func() {
		var answer origins
		Expect(json.Unmarshal([]byte(explaining("-o", "json")), &answer)).To(Succeed())
		Expect(answer.Name).To(MatchRegexp(`^rendered-infra-[0-9a-f]{32}$`))
		Expect(answer.Source).To(Equal([]string{"99-y", "51-infra", "51-x", "60-args"}))
		Expect(answer.Entries).To(ContainElement(pool.Origin{Kind: pool.KindFile, Name: "/etc/motd", MachineConfig: "51-x", Overrides: []string{"99-y"}}))
		Expect(yaml.YAMLToJSON([]byte(explaining("-o", "yaml")))).To(MatchJSON(explaining("-o", "json")))
	})

	It("prints the pool of an entry of the kubelet section", func() {
		with := func(pool string) string {
			return pool + "  kubelet: {configuration: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 500}}\n"
		}
		files := clitest.WriteFile("all.yaml", with(clitest.Pool("edge", "worker")), with(clitest.Pool("edge", "infra")))
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", files, "--pool", "infra", "--explain"))).To(And(
			MatchRegexp(`file +/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf +spec.kubelet.configuration of pool worker +<none>`),
			MatchRegexp(`file +/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf +spec.kubelet.configuration of pool infra +<none>`)))
		computed := clitest.WriteFile("all.yaml", clitest.Pool("edge", "worker")+"  kubelet: {autoSizingReserved: true, wrapper: [/usr/bin/env]}\n")
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", computed, "--pool", "worker", "--explain"))).To(And(
			MatchRegexp(`system-reserved.sh +spec.kubelet.autoSizingReserved`), MatchRegexp(`20-poolboot-wrapper.conf +spec.kubelet.wrapper`)))
		var answer origins
		Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(runPoolboot("render", "-f", files, "--pool", "infra", "--explain", "-o", "json"))), &answer)).To(Succeed())
		Expect(answer.Entries[1]).To(Equal(pool.Origin{Kind: pool.KindFile, Name: "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf", Pool: "infra", Field: "spec.kubelet.configuration"}))
		clitest.ExpectError(runPoolboot("render", "-f", clitest.WriteFile("wrong.yaml", clitest.Pool("edge", "worker")+"  kubelet: {configuration: {apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPod: 5}}\n"), "--pool", "worker"), 1,
			`MachineConfigPool "worker": spec.kubelet.configuration.maxPod`)
	})

	It("notes which reservation for the system applies", func() {
		files := clitest.WriteFile("all.yaml", clitest.Pool("edge", "worker")+"  kubelet: {autoSizingReserved: true}\n", clitest.Pool("edge", "infra")+
			"  kubelet:\n    configuration:\n      apiVersion: kubelet.config.k8s.io/v1beta1\n      kind: KubeletConfiguration\n      systemReserved:\n        cpu: 500m\n")
		r := runPoolboot("render", "-f", files, "--pool", "infra", "--explain")
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(MatchRegexp(`note: \S+: document 2: line 28: MachineConfigPool "infra": spec.kubelet.configuration.systemReserved: it overrides what `))
	})

	It("notes which entries only new hosts get", func() {
		disks := clitest.Config("52-disks", "infra", "{config: {ignition: {version: 3.5.0}, storage: {disks: [{device: /dev/sdb, wipeTable: true}], filesystems: [{device: /dev/sdb1, format: xfs}]}}}")
		with := func(updates, status string) clitest.Result {
			return runPoolboot("render", "-f", clitest.WriteFile("all.yaml", strings.Replace(clitest.Pool("edge", "worker"), "spec:\n", "spec:\n  updates: {"+updates+"}\n", 1), clitest.Pool("edge", "infra")+status, disks), "--pool", "infra", "--explain")
		}
		Expect(with("diskPolicy: NewHostsOnly", "status: {outdatedDisksHostCount: 3}\n").ErrOut).To(MatchRegexp(`note: .*MachineConfigPool "infra": spec.updates.diskPolicy is NewHostsOnly: a host has the disks ` +
			`with which it was installed, and these entries apply only to new hosts \(2\): disk /dev/sdb, filesystem /dev/sdb1; running hosts with other disks: 3\n`))
		Expect(with("diskPolicy: Refuse", "").ErrOut).To(BeEmpty())
	})

	It("prints empty lists for a pool without MachineConfigs", func() {
		out := clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", documents[:2]...), "--pool", "infra", "--explain", "-o", "json"))
		Expect(out).To(And(ContainSubstring(`"source": []`), ContainSubstring(`"entries": []`)))
	})

	It("quotes control characters", func() {
		odd := clitest.Config("70-odd", "infra", `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: "/etc/\u001b[2J\n"}]}}}`)
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", append(documents, odd)...), "--pool", "infra", "--explain"))).To(
			ContainSubstring(`"/etc/\x1b[2J\n"`))
	})

	It("refuses the output format ignition", func() {
		clitest.ExpectError(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", documents...), "--pool", "infra", "--explain", "-o", "ignition"), 1,
			"--output ignition can't be used with --explain")
	})
})
