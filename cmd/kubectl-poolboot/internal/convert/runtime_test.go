package convert

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// filesOf returns the files of each MachineConfig in a manifest, by the name of the MachineConfig and the path. Each
// file must be TOML.
func filesOf(manifest string) map[string]map[string]string {
	GinkgoHelper()
	all := map[string]map[string]string{}
	for document := range strings.SplitSeq(manifest, "\n---\n") {
		var config poolv1.MachineConfig
		Expect(yaml.Unmarshal([]byte(document), &config)).To(Succeed())
		if config.Kind != "MachineConfig" {
			continue
		}
		parsed, err := butane.Parse(config.Spec.Butane)
		Expect(err).NotTo(HaveOccurred())
		files := map[string]string{}
		for _, file := range parsed.Storage.Files {
			content, err := ignition.Contents(file.Contents, 1<<20)
			Expect(err).NotTo(HaveOccurred())
			Expect(*file.Mode).To(Equal(0o644))
			Expect(toml.Unmarshal(content, &map[string]any{})).To(Succeed())
			files[file.Path] = string(content)
		}
		all[config.Name] = files
	}
	return all
}

// newRuntimeConfig returns an OpenShift ContainerRuntimeConfig for the pools with a label, with settings in YAML's flow
// style.
func newRuntimeConfig(name, label, settings string) string {
	return "apiVersion: machineconfiguration.openshift.io/v1\nkind: ContainerRuntimeConfig\nmetadata:\n  name: " + name +
		"\nspec: {machineConfigPoolSelector: {matchLabels: {" + label + "}}, containerRuntimeConfig: {" + settings + "}}\nstatus: {conditions: [{type: Success}]}\n"
}

var _ = Describe("convert, of ContainerRuntimeConfigs", func() {
	converting := func(with string, documents ...string) clitest.Result {
		return runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", documents...), "--cluster", "infra-1", "-n", "edge", "--container-runtime", with)
	}
	worker, infra := addLabel(clitest.OpenShiftWorker, `role: worker`), addLabel(clitest.OpenShiftInfra, `role: infra`)
	const all = "pidsLimit: 4096, logLevel: debug, logSizeMax: 50Mi, overlaySize: 8Gi, defaultRuntime: crun"

	It("writes a drop-in of CRI-O for each field, as OpenShift does", func() {
		r := converting("crio", worker, infra, newRuntimeConfig("big", "role: infra", all))
		Expect(r.Code).To(BeZero())
		Expect(filesOf(r.Out)).To(Equal(map[string]map[string]string{"99-infra-containerruntime": {
			"/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit":      "[crio]\n[crio.runtime]\npids_limit = 4096\n",
			"/etc/crio/crio.conf.d/01-ctrcfg-logLevel":       "[crio]\n[crio.runtime]\nlog_level = 'debug'\n",
			"/etc/crio/crio.conf.d/01-ctrcfg-logSizeMax":     "[crio]\n[crio.runtime]\nlog_size_max = 52428800\n",
			"/etc/crio/crio.conf.d/01-ctrcfg-defaultRuntime": "[crio]\n[crio.runtime]\ndefault_runtime = 'crun'\n",
			"/etc/containers/storage.conf": "[storage]\ndriver = 'overlay'\ngraphroot = '/var/lib/containers/storage'\nrunroot = '/run/containers/storage'\n\n" +
				"[storage.options]\n[storage.options.overlay]\nsize = '8589934592'\n",
		}}))
		Expect(r.Out).To(ContainSubstring("  labels:\n    machineconfiguration.openshift.io/role: infra\n  name: 99-infra-containerruntime\n"))
		Expect(r.ErrOut).To(And(HavePrefix(`warning: ContainerRuntimeConfig "big": spec.containerRuntimeConfig.overlaySize becomes /etc/containers/storage.conf`), ContainSubstring("pquota")))
		Expect(clitest.ExpectSuccess(runPoolboot("render", "-f", clitest.WriteFile("ours.yaml", r.Out), "--pool", "infra", "-o", "ignition"))).To(ContainSubstring("01-ctrcfg-pidsLimit"))
	})

	It("writes what containerd has, and names what it does not have", func() {
		r := converting("containerd", worker, infra, newKubeletConfig("k", "role: infra", "kubeletConfig: {maxPods: 500}"), newRuntimeConfig("big", "role: infra", all))
		Expect(r.Code).To(BeZero())
		Expect(filesOf(r.Out)).To(Equal(map[string]map[string]string{"99-infra-containerruntime": {
			"/etc/containerd/conf.d/01-ctrcfg-logLevel.toml": "version = 3\n\n[debug]\nlevel = 'debug'\n",
			"/etc/containerd/conf.d/01-ctrcfg-defaultRuntime.toml": "version = 3\n\n[plugins]\n[plugins.'io.containerd.cri.v1.runtime']\n" +
				"[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'crun'\n\n" +
				"[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]\n" +
				"runtime_type = 'io.containerd.runc.v2'\n\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]\nBinaryName = 'crun'\nSystemdCgroup = true\n",
		}}))
		Expect(r.Out).To(ContainSubstring("      apiVersion: kubelet.config.k8s.io/v1beta1\n      containerLogMaxSize: 50Mi\n      kind: KubeletConfiguration\n      maxPods: 500\n"))
		for _, why := range []string{"pidsLimit is left out: containerd has no limit for containers: set podPidsLimit", "overlaySize is left out: containerd has no limit", "defaultRuntime: hosts with containerd need crun"} {
			Expect(r.ErrOut).To(ContainSubstring(`warning: ContainerRuntimeConfig "big": spec.containerRuntimeConfig.` + why))
		}
		Expect(strings.Count(r.ErrOut, "\n")).To(Equal(3))
	})

	It("keeps the size of logs of a KubeletConfig with containerd", func() {
		out := clitest.ExpectSuccess(converting("containerd", worker, newKubeletConfig("k", "role: worker", "kubeletConfig: {containerLogMaxSize: 1Mi}"), newRuntimeConfig("big", "role: worker", "logSizeMax: 50Mi")))
		Expect(out).To(And(ContainSubstring("containerLogMaxSize: 1Mi"), Not(ContainSubstring("50Mi"))))
	})

	It("converts for CRI-O without --container-runtime, and says so", func() {
		r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, newRuntimeConfig("big", "role: worker", "pidsLimit: 4096")), "--cluster", "infra-1", "-n", "edge")
		Expect(r.Code).To(BeZero())
		Expect(filesOf(r.Out)).To(HaveKeyWithValue("99-worker-containerruntime", HaveKey("/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit")))
		Expect(r.ErrOut).To(Equal("note: the settings of container runtimes and registries are converted for CRI-O: if the hosts have containerd, add --container-runtime containerd\n"))
		clitest.ExpectError(converting("docker", worker), 1, "--container-runtime docker: set crio or containerd")
	})

	It("ignores zero values, as OpenShift does", func() {
		out := clitest.ExpectSuccess(converting("crio", worker, newRuntimeConfig("big", "role: worker", `pidsLimit: 0, logLevel: "", logSizeMax: "0", overlaySize: 0`)))
		Expect(out).NotTo(ContainSubstring("containerruntime"))
	})

	Describe("of several for one pool", func() {
		a, b := newRuntimeConfig("a", "role: worker", "pidsLimit: 100, logLevel: warn"), newRuntimeConfig("b", "role: worker", "pidsLimit: 200, defaultRuntime: runc")
		with := func(config, metadata string) string {
			return strings.Replace(config, "metadata:\n", "metadata:\n  "+metadata+"\n", 1)
		}

		DescribeTable("takes each field from the last one that sets it",
			func(a, b string, pids string) {
				files := filesOf(clitest.ExpectSuccess(converting("crio", worker, a, b)))["99-worker-containerruntime"]
				Expect(files["/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"]).To(HaveSuffix("pids_limit = " + pids + "\n"))
				Expect(files).To(And(HaveLen(3), HaveKey("/etc/crio/crio.conf.d/01-ctrcfg-logLevel"), HaveKey("/etc/crio/crio.conf.d/01-ctrcfg-defaultRuntime")))
			},
			Entry("by OpenShift's number", with(a, `annotations: {machineconfiguration.openshift.io/mc-name-suffix: "1"}`), b, "100"),
			Entry("by age", with(a, "creationTimestamp: 2026-02-01T00:00:00Z"), with(b, "creationTimestamp: 2026-01-01T00:00:00Z"), "100"),
			Entry("by age, the other way", with(a, "creationTimestamp: 2026-01-01T00:00:00Z"), with(b, "creationTimestamp: 2026-02-01T00:00:00Z"), "200"),
		)

		It("refuses a field that differs if the files don't tell which one is later", func() {
			clitest.ExpectError(converting("crio", worker, a, b), 1, `ContainerRuntimeConfig "b": spec.containerRuntimeConfig.pidsLimit: "a" sets it too for the pool worker`)
			Expect(clitest.ExpectSuccess(converting("crio", worker, a, newRuntimeConfig("b", "role: worker", "pidsLimit: 100, logSizeMax: 1Mi")))).To(ContainSubstring("99-worker-containerruntime"))
		})

		It("lists each one that it refuses, and converts the others", func() {
			c := with(newRuntimeConfig("c", "role: worker", "pidsLimit: 300, logSizeMax: 1Mi"), "creationTimestamp: 2026-01-01T00:00:00Z")
			r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, a, b, c, newRuntimeConfig("d", "role: worker", "logLevel: warn")), "--cluster", "infra-1", "-n", "edge", "--skip-refused")
			Expect(r.Code).To(Equal(cli.ExitIncomplete))
			Expect(filesOf(r.Out)["99-worker-containerruntime"]).To(And(HaveLen(1), HaveKeyWithValue("/etc/crio/crio.conf.d/01-ctrcfg-logLevel", HaveSuffix("log_level = 'warn'\n"))))
			for name, other := range map[string]string{"a": "b", "b": "a", "c": "a"} {
				Expect(r.ErrOut).To(ContainSubstring(`ContainerRuntimeConfig "` + name + `": spec.containerRuntimeConfig.pidsLimit: "` + other + `" sets it too for the pool worker`))
			}
			Expect(r.ErrOut).To(HaveSuffix("error: 3 refused and left out: correct what is listed above, and convert again\n"))
		})
	})

	DescribeTable("refuses what OpenShift refuses",
		func(settings, why string) {
			clitest.ExpectError(converting("crio", worker, newRuntimeConfig("big", "role: worker", settings)), 1, "document 2: line 23: ", `ContainerRuntimeConfig "big": `+why)
		},
		Entry(nil, "pidsLimit: 5", "spec.containerRuntimeConfig.pidsLimit: is 5, and OpenShift refuses less than 20"),
		Entry(nil, "logSizeMax: 8Ki", "spec.containerRuntimeConfig.logSizeMax: is 8Ki, and OpenShift refuses 8192 bytes or less"),
		Entry(nil, "overlaySize: -1", "spec.containerRuntimeConfig.overlaySize: is -1, and must not be negative"),
		Entry(nil, `logLevel: "debug\n[crio.api]"`, `spec.containerRuntimeConfig.logLevel: is "debug\n[crio.api]": set one of trace, debug`),
		Entry(nil, `defaultRuntime: "runc\"\nx = \""`, `spec.containerRuntimeConfig.defaultRuntime: is "runc\"\nx = \"": set one of crun, runc`),
	)

	It("names what selects no pool, what is for the pool arbiter, and what Poolboot does not have", func() {
		r := converting("crio", worker, newRuntimeConfig("a", "role: gpu", "pidsLimit: 100"), newRuntimeConfig("b", `pools.operator.machineconfiguration.openshift.io/arbiter: ""`, "pidsLimit: 100"),
			newRuntimeConfig("c", "role: worker", "additionalLayerStores: [{path: /a}]"))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(And(ContainSubstring(`warning: ContainerRuntimeConfig "a" is left out: its machineConfigPoolSelector selects no pool of OpenShift in the files`),
			ContainSubstring(`warning: ContainerRuntimeConfig "b" is left out for the pool arbiter`),
			ContainSubstring(`ContainerRuntimeConfig "c": spec.containerRuntimeConfig.additionalLayerStores is left out`)))
		Expect(r.Out).NotTo(ContainSubstring("containerruntime"))
	})

	It("converts one for the control plane", func() {
		r := converting("crio", worker, newRuntimeConfig("a", `pools.operator.machineconfiguration.openshift.io/master: ""`, "pidsLimit: 100"))
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.Out).To(ContainSubstring("    machineconfiguration.openshift.io/role: master\n  name: 99-master-containerruntime\n"))
	})

	It("refuses a pool that would not select the MachineConfig", func() {
		gpu := strings.NewReplacer("[worker,infra]", "[worker,other]", "infra", "gpu").Replace(infra)
		clitest.ExpectError(converting("crio", worker, gpu, newRuntimeConfig("a", "role: gpu", "pidsLimit: 100")), 1,
			`MachineConfigPool "gpu": spec.machineConfigSelector: must select MachineConfigs with the label machineconfiguration.openshift.io/role: gpu`)
	})

	It("adds the pool worker for one", func() {
		r := converting("crio", newRuntimeConfig("a", `pools.operator.machineconfiguration.openshift.io/worker: ""`, "pidsLimit: 100"))
		Expect(r.ErrOut).To(ContainSubstring(`ContainerRuntimeConfig "a" selects it`))
		Expect(r.Out).To(ContainSubstring("99-worker-containerruntime"))
	})

	It("writes drop-ins that containerd itself reads", func() {
		program, err := filepath.Abs("../../../../bin/containerd/containerd")
		Expect(err).NotTo(HaveOccurred())
		if _, err := os.Stat(program); err != nil {
			Skip("make binaries builds containerd")
		}
		r := converting("containerd", worker, infra, newRuntimeConfig("big", "role: worker", all),
			newMirrorSet("ImageDigestMirrorSet", "d", "imageDigestMirrors: [{source: quay.io, mirrors: [mirror.local]}]"))
		folder := GinkgoT().TempDir()
		for _, files := range filesOf(r.Out) {
			for path, content := range files {
				if filepath.Dir(path) == "/etc/containerd/conf.d" {
					clitest.WriteFileIn(folder, filepath.Base(path), content)
				}
			}
		}
		config := clitest.WriteFileIn(folder, "config", "version = 3\nimports = ['"+folder+"/*.toml']\n")
		dump, err := exec.Command(program, "--config", config, "config", "dump").Output()
		Expect(err).NotTo(HaveOccurred())
		for _, line := range []string{`level = 'debug'`, `default_runtime_name = 'crun'`, `BinaryName = 'crun'`, `config_path = '/etc/containerd/certs.d'`} {
			Expect(string(dump)).To(MatchRegexp(`(?m)^ *` + regexp.QuoteMeta(line) + `$`))
		}
	})
})
