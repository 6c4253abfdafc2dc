package render

import (
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("render", func() {
	ours := []string{clitest.Pool("edge", "worker"), clitest.Pool("edge", "infra")}

	// rendering is what a pool renders from documents in one file.
	rendering := func(role string, documents ...string) rendered {
		GinkgoHelper()
		var config rendered
		Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", documents...), "--pool", role))), &config)).To(Succeed())
		return config
	}
	// source is where the rendered Ignition has the contents of a file from.
	source := func(config rendered, path string) string {
		GinkgoHelper()
		parsed, err := ignition.Parse(config.Ignition)
		Expect(err).NotTo(HaveOccurred())
		for _, file := range parsed.Storage.Files {
			if file.Path == path {
				return *file.Contents.Source
			}
		}
		return ""
	}

	It("renders the documentation's custom pool", func() {
		out := clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", clitest.OpenShiftMaster, clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51), "--pool", "infra"))
		var config map[string]any
		Expect(json.Unmarshal([]byte(out), &config)).To(Succeed())
		Expect(config["name"]).To(MatchRegexp(`^rendered-infra-[0-9a-f]{32}$`))
		delete(config, "name")
		again, err := json.Marshal(config)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(MatchJSON(`{
			"ignition": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
				{"path": "/etc/infratest", "mode": 420, "overwrite": true, "contents": {"source": "data:,infra"}}]}},
			"kernelArguments": [], "extensions": [], "fips": false, "kernelType": "default"}`))
	})

	It("adds OpenShift's built-in pool worker, which repositories with custom pools leave out, but none to pools of Poolboot", func() {
		r := runPoolboot("render", "-f", clitest.WriteFile("all.yaml", clitest.OpenShiftInfra, clitest.OpenShiftInfra51, clitest.Config("99-y", "worker", clitest.Motd("worker"))), "--pool", "infra")
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"worker\" is added as OpenShift's built-in pool, which the files do not contain: MachineConfigPool \"infra\" inherits from it\n"))
		Expect(r.Out).To(And(ContainSubstring("/etc/motd"), ContainSubstring("/etc/infratest")))
		config := strings.Replace(clitest.OpenShiftInfra51, "role: infra", "role: worker", 1)
		r = runPoolboot("render", "-f", clitest.WriteFile("all.yaml", config), "--pool", "worker")
		Expect(r.ErrOut).To(Equal("note: MachineConfigPool \"worker\" is added as OpenShift's built-in pool, which the files do not contain: it selects MachineConfig \"51-infra\"\n"))
		Expect(r.Out).To(ContainSubstring("/etc/infratest"))
		clitest.ExpectError(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", clitest.Pool("edge", "infra"), config), "--pool", "worker"), 1, `the files contain no MachineConfigPool of role "worker"`)
		clitest.ExpectError(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", clitest.Pool("edge", "infra")), "--pool", "infra"), 1, `the files contain no MachineConfigPool of role "worker"`)
	})

	It("warns of a mode that was probably meant otherwise, also in Butane", func() {
		for _, spec := range []string{"{config: {ignition: {version: 3.4.0}, storage: {files: [{path: /a, mode: 0420}]}}}", `{butane: "variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /a, mode: 0420}]}"}`} {
			r := runPoolboot("render", "-f", clitest.WriteFile("all.yaml", append(ours, clitest.Config("50-a", "infra", spec))...), "--pool", "infra")
			Expect(r.Code).To(BeZero())
			Expect(r.ErrOut).To(And(HavePrefix("warning: "), ContainSubstring(`MachineConfig "50-a": spec.`), ContainSubstring(".storage.files[0].mode: 272 is 0420")))
		}
	})

	It("says where keys belong that are one level too high", func() {
		r := runPoolboot("render", "-f", clitest.WriteFile("all.yaml", append(ours, clitest.Config("50-a", "infra", "{storage: {files: [{path: /a}]}}"), clitest.Config("51-a", "infra", "{config: {ignition: {version: 3.4.0}, files: [{path: /a}]}}"))...), "--pool", "infra")
		Expect(r.ErrOut).To(And(MatchRegexp(`line \d+: MachineConfig "50-a": spec.storage: there is no such field: move it to spec.config.storage\n`)))
		clitest.ExpectError(r, 1, "MachineConfig \"51-a\": spec.config.files: Ignition 3.4.0 does not have this key, and would ignore it with its content: move it to storage.files\n")
	})

	It("merges worker's MachineConfigs into a custom pool, whose 51-x overrides worker's 99-y", func() {
		config := rendering("infra", append(ours, clitest.Config("99-y", "worker", clitest.Motd("worker")), clitest.Config("51-x", "infra", clitest.Motd("infra")),
			clitest.Config("00-issue", "worker", strings.ReplaceAll(clitest.Motd("inherited"), "motd", "issue")))...)
		Expect(source(config, "/etc/motd")).To(Equal("data:,infra"))
		Expect(source(config, "/etc/issue")).To(Equal("data:,inherited"))
	})

	It("merges no MachineConfig of a custom pool into worker", func() {
		config := rendering("worker", append(ours, clitest.Config("51-x", "infra", clitest.Motd("infra")))...)
		Expect(source(config, "/etc/motd")).To(BeEmpty())
	})

	It("merges kernel arguments, extensions, FIPS, kernel and image of both", func() {
		theirs := strings.ReplaceAll(clitest.Config("10-a", "worker", "{kernelArguments: [nosmt], extensions: [usbguard], fips: true, kernelType: default, baseOSExtensionsContainerImage: registry.example/extensions:2}"),
			"poolboot.io/v1alpha1", "machineconfiguration.openshift.io/v1")
		config := rendering("infra", append(ours, theirs, clitest.Config("05-b", "infra", "{kernelArguments: [quiet], kernelType: realtime, osImageURL: registry.example/os:2}"))...)
		config.Name, config.Ignition = "", nil
		Expect(config).To(Equal(rendered{KernelArguments: []string{"nosmt", "quiet"}, Extensions: []string{"usbguard"}, FIPS: true,
			KernelType: "realtime", OSImageURL: "registry.example/os:2", BaseOSExtensionsContainerImage: "registry.example/extensions:2"}))
	})

	It("reads Butane in Poolboot's MachineConfig only", func() {
		butane := clitest.Config("60-b", "infra", `{butane: "variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /etc/motd, contents: {inline: hi}}]}\n"}`)
		Expect(source(rendering("infra", append(ours, butane)...), "/etc/motd")).To(Equal("data:,hi"))
		butane = strings.ReplaceAll(butane, "poolboot.io/v1alpha1", "machineconfiguration.openshift.io/v1")
		Expect(source(rendering("infra", append(ours, butane)...), "/etc/motd")).To(BeEmpty())
	})

	It("renders a pool without MachineConfigs", func() {
		config := rendering("infra", ours...)
		Expect(config.Ignition).To(MatchJSON(`{"ignition":{"version":"3.5.0"}}`))
		Expect(config.KernelArguments).To(Equal([]string{}))
		Expect(config.Extensions).To(Equal([]string{}))
	})

	It("gives the same content the same name, in all kinds and files", func() {
		documents := []string{clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51, clitest.Config("99-y", "worker", clitest.Motd("worker"))}
		want := rendering("infra", documents...)
		Expect(rendering("infra", documents[3], documents[2], documents[1], documents[0])).To(Equal(want))
		Expect(rendering("infra", ours[0], ours[1], clitest.OpenShiftInfra51, documents[3])).To(Equal(want))
		Expect(rendering("infra", documents[:3]...).Name).NotTo(Equal(want.Name))
	})

	It("prints the same as YAML, and only the Ignition document with -o ignition", func() {
		path := clitest.WriteFile("all.yaml", clitest.OpenShiftWorker, clitest.OpenShiftInfra, clitest.OpenShiftInfra51)
		asJSON := clitest.ExpectSuccess(runPoolboot("render", "-f", path, "--pool", "infra", "-o", "json"))
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", path, "--pool", "infra"))).To(Equal(asJSON))
		asYAML := clitest.ExpectSuccess(runPoolboot("render", "-f", path, "--pool", "infra", "-o", "yaml"))
		Expect(asYAML).To(ContainSubstring("\nkernelType: default\n"))
		Expect(yaml.YAMLToJSON([]byte(asYAML))).To(MatchJSON(asJSON))

		only := clitest.ExpectSuccess(runPoolboot("render", "-f", path, "--pool", "infra", "-o", "ignition"))
		var config rendered
		Expect(json.Unmarshal([]byte(asJSON), &config)).To(Succeed())
		Expect(only).To(MatchJSON(config.Ignition))
		_, err := ignition.Parse([]byte(only))
		Expect(err).NotTo(HaveOccurred())
	})

	It("renders the MachineConfigs of the control plane's pool only, which inherits nothing", func() {
		for _, pool := range []string{clitest.OpenShiftMaster, strings.Replace(clitest.Pool("edge", "control-plane"), "role: control-plane", "role: master", 1)} {
			config := rendering("control-plane", pool, clitest.OpenShiftWorker, clitest.Config("50-a", "worker", clitest.Motd("worker")), clitest.Config("51-b", "master", "{kernelArguments: [nosmt]}"))
			Expect(config.KernelArguments).To(Equal([]string{"nosmt"}))
			Expect(string(config.Ignition)).NotTo(ContainSubstring("motd"))
		}
	})

	It("ignores configs that the Machine Config Operator rendered", func() {
		theirs := strings.ReplaceAll(clitest.OpenShiftInfra51, "51-infra", "rendered-infra-dfdfdf7e006f18cd5d29cae03f77948b")
		Expect(rendering("infra", append(ours, theirs)...)).To(Equal(rendering("infra", ours...)))
	})

	DescribeTable("reports pools that can't be rendered",
		func(role string, documents []string, why ...string) {
			clitest.ExpectError(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", documents...), "--pool", role), 1, why...)
		},
		Entry("nothing", "infra", nil, `no MachineConfigPool of role "infra"`),
		Entry("an unknown role", "gpu", ours, `no MachineConfigPool of role "gpu"`),
		Entry("no worker pool", "infra", ours[1:], `no MachineConfigPool of role "worker"`),
		Entry("two pools of one role", "infra", append(ours, clitest.OpenShiftInfra), `document 3: line 29: MachineConfigPool "infra": spec.poolRole: MachineConfigPool "infra" has the role "infra" too`),
		Entry("OpenShift's role of the control plane", "master", []string{clitest.OpenShiftMaster}, "--pool master: the role of the control plane's pool is control-plane: set it\n"),
		Entry("what a control plane can't have", "control-plane", []string{clitest.Pool("edge", "control-plane"),
			clitest.Config("50-a", "control-plane", strings.ReplaceAll(clitest.Motd("a"), "/etc/motd", "/etc/kubernetes/manifests/a.yaml"))},
			`MachineConfig "50-a": spec.config.storage.files[0].path: /etc/kubernetes/manifests/a.yaml is reserved for the control plane`),
		Entry("a wrong place in Ignition", "infra", append(ours, clitest.Config("52-b", "infra", strings.ReplaceAll(clitest.Motd("a"), "0644", `"0644"`))),
			`MachineConfig "52-b": spec.config.storage.files[0].mode`),
		Entry("an unknown version of Ignition", "infra", append(ours, strings.Replace(clitest.OpenShiftInfra51, "2.2.0", "4.0.0", 1)),
			`MachineConfig "51-infra": spec.config.ignition.version`),
		Entry("a reserved path", "infra", append(ours, strings.Replace(clitest.OpenShiftInfra51, "/etc/infratest", "/etc/hostname", 1)),
			`MachineConfig "51-infra": spec.config.storage.files[0].path: /etc/hostname`),
		Entry("a key that Ignition would ignore", "infra", append(ours, strings.Replace(clitest.OpenShiftInfra51, "source: data:,infra", "inline: infra", 1)),
			`MachineConfig "51-infra": spec.config.storage.files[0].contents.inline: Ignition 2.2.0 does not have this key`),
		Entry("a MachineConfig that is there twice", "infra", append(ours, clitest.OpenShiftInfra51, clitest.OpenShiftInfra51), `MachineConfig "51-infra" is given twice`),
	)

	It("reports that the files do not contain the pool, and how to print it from the cluster", func() {
		clitest.ExpectError(runPoolboot("render", "-f", clitest.WriteFile("all.yaml", ours...), "--pool", "gpu"), 1,
			`the files contain no MachineConfigPool of role "gpu"`, "kubectl get pbpool,pbmconf -o yaml")
	})

	It("warns of keys that Ignition ignores without a loss", func() {
		r := runPoolboot("render", "-f", clitest.WriteFile("all.yaml", append(ours[:len(ours):len(ours)], clitest.Config("60-a", "infra", "{config: {ignition: {version: 3.2.0}, networkd: {}}}"))...), "--pool", "infra")
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(MatchRegexp(`^warning: \S+all.yaml: document 3: line 30: MachineConfig "60-a": spec.config.networkd: Ignition 3.2.0 ignores this key`))
	})

	Describe("with --live", func() {
		live := func(args ...string) clitest.Result {
			GinkgoHelper()
			worker, infra := clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra")
			to := clitest.NewFakeConnection([]string{worker, infra, clitest.Config("51-infra", "infra", "{kernelArguments: [quiet]}"), strings.Replace(clitest.Pool("infra-2", "worker"), "name: worker\n", "name: worker-2\n", 1)})
			return clitest.RunOn(to, New, append([]string{"render", "--live"}, args...)...)
		}

		It("renders the objects of a namespace of the management cluster", func() {
			var config rendered
			Expect(json.Unmarshal([]byte(clitest.ExpectSuccess(live("--pool", "infra", "--cluster", "infra-1"))), &config)).To(Succeed())
			Expect(config.KernelArguments).To(Equal([]string{"quiet"}))
			Expect(clitest.ExpectSuccess(live("--pool", "infra", "--cluster", "infra-1", "--explain"))).To(ContainSubstring("51-infra"))
		})
		It("speaks of the cluster and the namespace, not of files", func() {
			clitest.ExpectError(live("--pool", "gpu", "--cluster", "infra-1"), 1, `the Cluster has no MachineConfigPool of role "gpu"`)
			clitest.ExpectError(live("--pool", "infra"), 1, "namespace edge contains pools of the clusters edge/infra-1 and edge/infra-2: choose one with --cluster")
			clitest.ExpectError(live("--pool", "infra", "--cluster", "nowhere"), 1, "namespace edge contains no pool of the cluster \"nowhere\"")
		})
		It("takes no files beside", func() {
			clitest.ExpectError(live("--pool", "infra", "-f", "-"), 1, "filename", "live")
			clitest.ExpectError(live("--pool", "infra", "a.yaml"), 1, "files and --live exclude each other")
		})
	})

	It("refuses an invalid command line", func() {
		path := clitest.WriteFile("all.yaml", ours...)
		clitest.ExpectError(runPoolboot("render", "-f", path), 1, "set --pool\n")
		clitest.ExpectError(runPoolboot("render", "--pool", "infra"), 1, "set --filename: name the files, or set --live")
		clitest.ExpectError(runPoolboot("render", "-f", path, "--pool", "infra", "-o", "wide"), 1, "--output wide is for the table of --explain: set both, or use json, yaml or ignition")
	})
})
