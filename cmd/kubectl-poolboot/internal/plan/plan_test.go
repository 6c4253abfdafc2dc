package plan

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

const (
	ours    = "poolboot.io/v1alpha1"
	theirs  = "machineconfiguration.openshift.io/v1"
	oldName = "rendered-infra-1761d9954d2dd6428aec3e630c5a704b"
	newName = "rendered-infra-1429fb5c569880ba6d12b53a5dc4d3c9"
)

// newConfig returns a rendered config in YAML, with its spec in YAML's flow style.
func newConfig(version, name, spec string) string {
	return "apiVersion: " + version + "\nkind: MachineConfig\nmetadata: {name: " + name + "}\nspec: " + spec + "\n"
}

// newFile returns the spec of a rendered config with one file.
func newFile(rest string) string {
	return "{config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/a, " + rest + "}]}}}"
}

// newPool returns a pool with a disruption policy, in YAML's flow style.
func newPool(role, policy string) string {
	return strings.Replace(clitest.Pool("edge", role), "spec:\n", "spec:\n  updates: {disruptionPolicy: "+policy+"}\n", 1)
}

// newMachineConfiguration returns OpenShift's MachineConfiguration with node disruption policies.
func newMachineConfiguration(policy string) string {
	return "apiVersion: operator.openshift.io/v1\nkind: MachineConfiguration\nmetadata: {name: cluster}\nspec: {managementState: Managed, nodeDisruptionPolicy: " + policy + "}\n"
}

var _ = Describe("plan", func() {
	// planning prints the plan from a spec to another.
	planning := func(before, after string, args ...string) clitest.Result {
		GinkgoHelper()
		return runPlan("", append([]string{"--from", clitest.WriteFile("old.yaml", newConfig(ours, oldName, before)), "--to", clitest.WriteFile("new.yaml", newConfig(ours, newName, after))}, args...)...)
	}
	withPolicy := func(documents ...string) string {
		GinkgoHelper()
		return clitest.ExpectSuccess(planning(newFile(`contents: {source: "data:,1"}`), newFile(`contents: {source: "data:,2"}`), "-o", "json", "--policy", clitest.WriteFile("policy.yaml", documents...)))
	}
	const reload = `{"possible":true,"reasons":[],"actions":[{"type":"Reload","unit":"crio.service"}],"drain":false,"reboot":false}`

	It("prints JSON whose lists are never null", func() {
		Expect(clitest.ExpectSuccess(planning("{}", newFile("mode: 0644"), "-o", "json"))).To(MatchJSON(`{"possible":true,"reasons":[],
			"changes":[{"entry":"file /etc/a","actions":[{"type":"Reboot"}],"reason":"no policy covers it"}],"actions":[{"type":"Reboot"}],"drain":true,"reboot":true}`))
		Expect(clitest.ExpectSuccess(planning("{kernelArguments: [a]}", "{kernelArguments: [a]}", "-o", "json"))).To(MatchJSON(`{"possible":true,"reasons":[],"changes":[],"actions":[{"type":"None"}],"drain":false,"reboot":false}`))
		Expect(clitest.ExpectSuccess(planning("{}", "{fips: true}", "-o", "json"))).To(beWithoutChanges(`{"possible":false,"actions":[],"drain":false,"reboot":false,
			"reasons":["fips: a host applies it only when it is installed: replace the Machine, or undo the change"]}`))
	})

	It("prints by which method the host reboots, and why not by that of the pool", func() {
		policy := clitest.WriteFile("policy.yaml", strings.Replace(clitest.Pool("edge", "infra"), "spec:\n", "spec:\n  updates: {rebootMethod: SoftReboot}\n", 1), clitest.Pool("edge", "worker"))
		Expect(clitest.ExpectSuccess(planning("{}", newFile("mode: 0644"), "--policy", policy))).To(ContainSubstring("Reboot:   yes, by SoftReboot\n"))
		Expect(clitest.ExpectSuccess(planning("{}", "{kernelArguments: [a]}", "--policy", policy))).To(ContainSubstring("Reboot:   yes, by Full instead of SoftReboot: kernel arguments change\n"))
		Expect(clitest.ExpectSuccess(planning("{}", newFile("mode: 0644"), "--policy", policy, "-o", "json"))).To(ContainSubstring(`"rebootBy": "by SoftReboot"`))
		Expect(clitest.ExpectSuccess(planning("{}", "{}", "--policy", policy))).To(ContainSubstring("Reboot:   no\n"))
	})

	It("reads what kubectl poolboot render prints", func() {
		printed := func(arguments, source string) string {
			return `{"name":"` + oldName + `","ignition":{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"` + source + `"}}]}},"kernelArguments":[` + arguments +
				`],"extensions":[],"fips":false,"kernelType":"default"}`
		}
		out := clitest.ExpectSuccess(runPlan("", "--from", clitest.WriteFile("old.json", printed("", "data:,1")), "--to", clitest.WriteFile("new.json", printed(`"quiet"`, "data:,2"))))
		Expect(out).To(And(ContainSubstring("file /etc/a "), ContainSubstring("kernelArguments "), ContainSubstring("Reboot:   yes")))
	})

	It("prints a table of the changes", func() {
		Expect(clitest.ExpectSuccess(planning("{}", "{kernelArguments: [a], config: {ignition: {version: 3.5.0}, storage: {files: [{path: /etc/crio/policies/a, mode: 0644}]}}}"))).To(Equal(`CHANGE                      ACTIONS               REASON
kernelArguments             Reboot                it always requires a reboot
file /etc/crio/policies/a   Reload crio.service   the default for /etc/crio/policies

Possible: yes
Actions:  Reboot
Drain:    yes
Reboot:   yes
`))
		Expect(clitest.ExpectSuccess(planning("{}", "{}"))).To(Equal("Possible: yes\nActions:  None\nDrain:    no\nReboot:   no\n"))
		Expect(clitest.ExpectSuccess(planning("{}", "{fips: true}"))).To(Equal("Possible: no\n  fips: a host applies it only when it is installed: replace the Machine, or undo the change\n"))
	})

	It("prints the units that stop and start, and restarts none that stops", func() {
		unit := func(name string) string {
			return "{config: {ignition: {version: 3.5.0}, systemd: {units: [{name: " + name + ", enabled: true, contents: '[Timer]'}]}}}"
		}
		policy := clitest.WriteFile("policy.yaml", newPool("worker", "{units: [{name: nightly.timer, actions: [{type: DaemonReload}, {type: Restart, unit: nightly.timer}]}, {name: weekly.timer, actions: [{type: DaemonReload}]}]}"))
		Expect(clitest.ExpectSuccess(planning(unit("nightly.timer"), unit("weekly.timer"), "--policy", policy))).To(HaveSuffix(`
Possible: yes
Stop:     nightly.timer
Start:    weekly.timer
Actions:  DaemonReload
Drain:    no
Reboot:   no
`))
		Expect(clitest.ExpectSuccess(planning(unit("nightly.timer"), "{}", "--policy", policy, "-o", "json"))).To(beWithoutChanges(
			`{"possible":true,"reasons":[],"stop":["nightly.timer"],"actions":[{"type":"DaemonReload"}],"drain":false,"reboot":false}`))
	})

	It("says that a change of what the kubelet pins drains the Node, and what the host does", func() {
		section := strings.Replace(newFile(`contents: {source: "data:,cpuManagerPolicy:%20static"}`), "/etc/a", "/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf", 1)
		Expect(clitest.ExpectSuccess(planning("{}", section))).To(And(HaveSuffix(`
Possible: yes
Actions:  Drain, Stop poolboot-checkpoints.service, Restart kubelet.service
Drain:    yes
Reboot:   no
`), ContainSubstring("it changes cpuManagerPolicy")))
	})

	It("names what a running host does not get if the pool has other disks for new hosts only, and pools inherit that from worker", func() {
		disks := `{config: {ignition: {version: 3.5.0}, storage: {disks: [{device: /dev/sdb, wipeTable: true}], luks: [{name: data, device: /dev/sdb, keyFile: {source: "data:,swordfish"}}],
			filesystems: [{device: /dev/mapper/data, format: xfs, path: /srv}], files: [{path: /etc/crio/policies/a, mode: 0644}]},
			systemd: {units: [{name: srv.mount, enabled: true, contents: "[Mount]\nWhat=/dev/mapper/data"}]}}}`
		with := func(role, updates string) string {
			return strings.Replace(clitest.Pool("edge", role), "spec:\n", "spec:\n  updates: {"+updates+"}\n", 1)
		}
		worker := clitest.WriteFile("worker.yaml", with("worker", "diskPolicy: NewHostsOnly"), clitest.Pool("edge", "infra"))
		out := clitest.ExpectSuccess(planning("{}", disks, "--policy", worker))
		Expect(out).To(HaveSuffix(`
Possible: yes
Actions:  Reload crio.service
Drain:    no
Reboot:   no
Disks:    the host keeps these as installed (spec.updates.diskPolicy is NewHostsOnly): disk /dev/sdb, LUKS volume data,
          filesystem /dev/mapper/data, unit srv.mount
`))
		Expect(out).NotTo(ContainSubstring("swordfish"))
		Expect(clitest.ExpectSuccess(planning("{}", disks, "--policy", worker, "-o", "json"))).To(MatchJSON(`{"possible":true,"reasons":[],
			"changes":[{"entry":"file /etc/crio/policies/a","actions":[{"type":"Reload","unit":"crio.service"}],"reason":"the default for /etc/crio/policies"}],
			"actions":[{"type":"Reload","unit":"crio.service"}],"drain":false,"reboot":false,
			"outdatedDisks":["disk /dev/sdb","LUKS volume data","filesystem /dev/mapper/data","unit srv.mount"]}`))
		own := clitest.WriteFile("own.yaml", with("worker", "diskPolicy: NewHostsOnly"), with("infra", "diskPolicy: Refuse"))
		Expect(clitest.ExpectSuccess(planning("{}", disks, "--policy", own))).To(And(ContainSubstring("Possible: no\n"),
			ContainSubstring("disk /dev/sdb: a host applies it only when it is installed: replace the Machine, undo the change, or"),
			ContainSubstring("spec.updates.diskPolicy to NewHostsOnly\n")))
	})

	It("prints no contents and no password", func() {
		secret := newFile(`mode: 0600, contents: {source: "data:,swordfish"}}]}, passwd: {users: [{name: core, passwordHash: swordfish`)
		for _, args := range [][]string{nil, {"-o", "json"}, {"-o", "yaml"}} {
			Expect(clitest.ExpectSuccess(planning("{}", secret, args...))).NotTo(ContainSubstring("swordfish"))
		}
	})

	It("reads Poolboot's and OpenShift's rendered configs, as YAML, JSON and lists, in any Ignition version and encoding", func() {
		same := `{"possible":true,"reasons":[],"actions":[{"type":"None"}],"drain":false,"reboot":false}`
		from := clitest.WriteFile("old.yaml", newConfig(theirs, oldName, "{config: {ignition: {version: 2.2.0}, storage: {files: [{filesystem: root, path: /etc/crio/policies/a, mode: 420, contents: {source: 'data:,a'}}]}}}"))
		to := clitest.WriteFile("new.json", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"`+ours+`","kind":"MachineConfig","metadata":{"name":"`+newName+`"},
			"spec":{"config":{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/crio/policies/a","mode":420,"contents":{"compression":"gzip","source":"data:;base64,H4sIAAAAAAAAA0sEAEO+t+gBAAAA"}}]}}}}]}`)
		Expect(clitest.ExpectSuccess(runPlan("", "--from", from, "--to", to, "-o", "json"))).To(beWithoutChanges(reload))
		Expect(clitest.ExpectSuccess(runPlan("", "--from", from, "--to", from, "-o", "json"))).To(beWithoutChanges(same))
		Expect(clitest.ExpectSuccess(runPlan(newConfig(ours, oldName, "{}"), "--from", "-", "--to", clitest.WriteFile("new.yaml", newConfig(ours, newName, "{}")), "-o", "json"))).To(beWithoutChanges(same))
	})

	DescribeTable("uses the policy of",
		func(documents ...string) { Expect(withPolicy(documents...)).To(beWithoutChanges(reload)) },
		Entry("the pool worker", newPool("worker", "{files: [{path: /etc/a, actions: [{type: Reload, unit: crio.service}]}]}")),
		Entry("the pool that the config is rendered for", newPool("worker", "{files: [{path: /etc/a, actions: [{type: None}]}]}"), newPool("storage", "{files: [{path: /etc/a, actions: [{type: None}]}]}"),
			newPool("infra", "{files: [{path: /etc, actions: [{type: Reboot}]}, {path: /etc/a, actions: [{type: Reload, unit: crio.service}]}]}")),
		Entry("the pool with the role in the name of the config", newPool("worker", "{files: [{path: /etc/a, actions: [{type: None}]}]}"),
			strings.Replace(newPool("infra", "{files: [{path: /etc/a, actions: [{type: Reload, unit: crio.service}]}]}"), "name: infra", "name: edge-infra", 1)),
		Entry("worker, which a custom pool inherits", newPool("worker", "{files: [{path: /etc/a, actions: [{type: Reload, unit: crio.service}]}]}"), clitest.Pool("edge", "infra")),
		Entry("OpenShift", newMachineConfiguration("{files: [{path: /etc/a/, actions: [{type: Reload, reload: {serviceName: crio.service}}]}]}")),
	)

	DescribeTable("converts OpenShift's policies",
		func(policy, before, after, actions string) {
			out := clitest.ExpectSuccess(planning(before, after, "-o", "json", "--policy", clitest.WriteFile("policy.yaml", newMachineConfiguration(policy))))
			Expect(out).To(ContainSubstring(actions))
		},
		Entry("an empty list for a file: no action", "{files: [{path: /etc/a, actions: []}]}", "{}", newFile("mode: 0644"), `"type": "None"`),
		Entry("an empty list for SSH keys: the default", "{sshkey: {actions: []}}", "{}", "{config: {ignition: {version: 3.5.0}, passwd: {users: [{name: core, sshAuthorizedKeys: [a]}]}}}", `"type": "None"`),
		Entry("SSH keys", "{sshkey: {actions: [{type: Drain}]}}", "{}", "{config: {ignition: {version: 3.5.0}, passwd: {users: [{name: core, sshAuthorizedKeys: [a]}]}}}", `"type": "Drain"`),
		Entry("units", "{units: [{name: a.service, actions: [{type: DaemonReload}, {type: Restart, restart: {serviceName: a.service}}]}]}", "{}",
			"{config: {ignition: {version: 3.5.0}, systemd: {units: [{name: a.service, enabled: true}]}}}", `"unit": "a.service"`),
	)

	It("reports what it does not know of the policies", func() {
		r := planning("{}", newFile("mode: 0644"), "--policy", clitest.WriteFile("policy.yaml", newPool("infra", "{sshKeys: {actions: [{type: None}]}}")))
		Expect(r.Code).To(BeZero())
		Expect(r.ErrOut).To(MatchRegexp("^note: --policy .*/policy.yaml: it does not contain the pool worker, from which the pool infra inherits policies\n$"))
		r = planning("{}", newFile("mode: 0644"), "--policy", clitest.WriteFile("policy.yaml", newMachineConfiguration("{files: [{path: /, actions: [{type: None}]}]}")))
		Expect(r.ErrOut).To(ContainSubstring(`note: MachineConfiguration "cluster": spec.nodeDisruptionPolicy.files[0].path is left out: OpenShift compares it with the paths of files, and "/" matches none`))
		Expect(r.Out).To(ContainSubstring("no policy covers it"))
	})

	It("misses no pool worker for pools that inherit nothing", func() {
		for _, role := range []string{"worker", "control-plane"} {
			Expect(planning("{}", "{}", "--policy", clitest.WriteFile("policy.yaml", clitest.Pool("edge", role))).ErrOut).To(BeEmpty())
		}
	})

	It("refuses what the host has no program for", func() {
		Expect(clitest.ExpectSuccess(planning("{}", "{kernelArguments: [a]}", "--programs", "grubby"))).To(ContainSubstring("Possible: yes"))
		Expect(clitest.ExpectSuccess(planning("{}", "{kernelArguments: [a]}", "--programs", "none"))).To(ContainSubstring("Possible: no\n  kernelArguments: the host has no program"))
		Expect(clitest.ExpectSuccess(planning("{}", "{kernelArguments: [a], osImageURL: b}", "--programs", "grubby"))).To(ContainSubstring("  osImageURL: the host has no program that can change it: install the host again with an image that has"))
	})

	DescribeTable("refuses files, and names the file, the field and the remedy",
		func(flag string, document, why string) {
			args := map[string]string{"--from": newConfig(ours, oldName, "{}"), "--to": newConfig(ours, newName, "{}"), "--policy": newPool("worker", "{files: [{path: /a, actions: [{type: None}]}]}")}
			args[flag] = document
			var line []string
			for flag, document := range args {
				line = append(line, flag, clitest.WriteFile(flag[2:]+".yaml", document))
			}
			clitest.ExpectError(runPlan("", line...), 1, flag, "/"+flag[2:]+".yaml: ", why)
		},
		Entry("without a MachineConfig", "--from", newPool("worker", "{files: [{path: /a, actions: [{type: None}]}]}"), "it contains 0 MachineConfigs: name a file with one, the rendered config"),
		Entry("with two MachineConfigs", "--to", newConfig(ours, "a", "{}")+"---\n"+newConfig(ours, "b", "{}"), "it contains 2 MachineConfigs"),
		Entry("with Ignition that can't be read", "--to", newConfig(ours, newName, newFile("mode: x")), `MachineConfig "`+newName+`": spec.config: storage.files[0].mode`),
		Entry("with Butane", "--from", newConfig(ours, oldName, "{butane: x}"), "spec.butane: a rendered config has Ignition only"),
		Entry("that are no objects", "--to", "{a: b}", "document 1: line 1: is no Kubernetes object"),
		Entry("without a policy", "--policy", clitest.OpenShiftInfra, "it contains no policy: name a file with a MachineConfigPool of Poolboot"),
		Entry("with two policies", "--policy", newPool("worker", "{files: [{path: /a, actions: [{type: None}]}]}")+"---\n"+newMachineConfiguration("{}"), "a MachineConfiguration and 1 MachineConfigPools"),
		Entry("with pools of which none is that of the config", "--policy", clitest.Pool("edge", "worker")+"---\n"+clitest.Pool("edge", "gpu"), "it contains the pools worker, gpu, and 0 of them can be that of the config "+newName),
		Entry("with two pools worker", "--policy", clitest.Pool("edge", "infra")+"---\n"+clitest.Pool("edge", "worker")+"---\n"+strings.Replace(clitest.Pool("edge", "worker"), "name: worker", "name: worker-2", 1),
			`the MachineConfigPools worker and worker-2 all have the role "worker": delete all but one`),
		Entry("with an invalid policy", "--policy", newPool("worker", "{files: [{path: a, actions: [{type: None}]}]}"), `MachineConfigPool "worker": spec.updates.disruptionPolicy.files[0].path: Invalid value: "a": it must be an absolute path`),
		Entry("with an invalid policy of OpenShift", "--policy", newMachineConfiguration("{units: [{name: a, actions: [{type: None}]}]}"), `MachineConfiguration "cluster": spec.nodeDisruptionPolicy.units[0].name`),
		Entry("with an action of OpenShift that is not for users", "--policy", newMachineConfiguration("{files: [{path: /a, actions: [{type: Special}]}]}"), `spec.nodeDisruptionPolicy.files[0].actions[0].type: Unsupported value: "Special"`),
		Entry("with Reload of nothing", "--policy", newMachineConfiguration("{files: [{path: /a, actions: [{type: Reload}]}]}"), `spec.nodeDisruptionPolicy.files[0].actions[0].reload.serviceName`),
	)

	It("refuses a command line without the files, and a file that does not exist", func() {
		clitest.ExpectError(runPlan("", "--from", "a"), 1, "set --to\n")
		clitest.ExpectError(runPlan("", "--from", "nowhere.yaml", "--to", "nowhere.yaml"), 1, "--from", "nowhere.yaml: no such file")
		clitest.ExpectError(planning("{}", "{}", "-o", "xml"), 1, "--output xml is not known: use json, yaml or wide, or leave the flag out")
		clitest.ExpectError(planning("{}", "{}", "more.yaml"), 1, "more.yaml")
		clitest.ExpectError(planning("{}", "{}", "--programs", "grub"), 1, "--programs grub is not known: use rpm-ostree, bootc, grubby, ignition-kargs-helper or none")
	})
})
