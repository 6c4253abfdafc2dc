package update_test

import (
	"maps"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Parts of rendered configs.
func file(path, rest string) string {
	return withIgnition("storage: {files: [{path: " + path + ", " + rest + "}]}")
}

func unit(rest string) string {
	return withIgnition("systemd: {units: [{name: a.service, " + rest + "}]}")
}
func user(rest string) string { return withIgnition("passwd: {users: [{name: core, " + rest + "}]}") }

const nothing = "{}"

var _ = Describe("The actions after a change", func() {
	a := func(data string) string { return file("/etc/a", `contents: {source: "data:,`+data+`"}`) }

	DescribeTable("are those of the policy, or Reboot",
		func(before, after, policyText string, want ...string) {
			plan := planOf(before, after, policy(policyText))
			Expect(plan.Obstacles).To(BeEmpty())
			Expect(describe(plan.Actions)).To(Equal(want))
		},
		Entry("nothing changes", a("1"), a("1"), "{}", "None"),
		Entry("a file without a policy", a("1"), a("2"), "{}", "Reboot"),
		Entry("a file with a policy", a("1"), a("2"), "{files: [{path: /etc/a, actions: [{type: Restart, unit: a.service}]}]}", "Restart a.service"),
		Entry("a new file", nothing, a("2"), "{files: [{path: /etc/a, actions: [{type: None}]}]}", "None"),
		Entry("a removed file", a("1"), nothing, "{files: [{path: /etc/a, actions: [{type: None}]}]}", "None"),
		Entry("a mode", file("/etc/a", "mode: 0644"), file("/etc/a", "mode: 0600"), "{}", "Reboot"),
		Entry("another encoding of the same contents, as in OpenShift", a("a"), file("/etc/a", `contents: {source: "data:;base64,YQ=="}`), "{}", "Reboot"),
		Entry("false instead of nothing, as in OpenShift", unit("contents: x"), unit("contents: x, mask: false"), "{}", "Reboot"),
		Entry("an empty list instead of none", unit("contents: x"), unit("contents: x, dropins: []"), "{}", "None"),
		Entry("another order of files",
			withIgnition(`storage: {files: [{path: /a, mode: 1}, {path: /b, mode: 2}]}`), withIgnition(`storage: {files: [{path: /b, mode: 2}, {path: /a, mode: 1}]}`), "{}", "None"),
		Entry("overwrite, which matters only when a host is installed", file("/etc/a", `contents: {source: "data:,1"}`), file("/etc/a", `contents: {source: "data:,1"}, overwrite: true`), "{}", "None"),
		Entry("overwrite of a link", withIgnition("storage: {links: [{path: /l, target: /a, overwrite: false}]}"), withIgnition("storage: {links: [{path: /l, target: /a}]}"), "{}", "None"),
		Entry("the policy of a directory", a("1"), a("2"), "{files: [{path: /etc, actions: [{type: None}]}]}", "None"),
		Entry("the policy of everything", a("1"), a("2"), "{files: [{path: /, actions: [{type: Drain}]}]}", "Drain"),
		Entry("the longest path", a("1"), a("2"), "{files: [{path: /etc/a, actions: [{type: None}]}, {path: /etc, actions: [{type: Reboot}]}]}", "None"),
		Entry("no path that is only a part of a name", file("/etc/ab", "mode: 1"), nothing, "{files: [{path: /etc/a, actions: [{type: None}]}]}", "Reboot"),
		Entry("a longer default over a shorter directory", nothing, file("/etc/containers/registries.d/a", "mode: 1"),
			"{files: [{path: /etc/containers, actions: [{type: None}]}]}", "Reload crio.service"),
		Entry("a policy over the default for the same path", nothing, file("/etc/containers/policy.json", "mode: 1"),
			"{files: [{path: /etc/containers/policy.json, actions: [{type: None}]}]}", "None"),
		Entry("a unit", unit("contents: x"), unit("contents: z"), "{}", "Reboot"),
		Entry("a unit with a policy", unit("contents: x"), unit("contents: z"),
			"{units: [{name: a.service, actions: [{type: DaemonReload}, {type: Restart, unit: a.service}]}]}", "DaemonReload", "Restart a.service"),
		Entry("a drop-in", unit("contents: x"), unit("contents: x, dropins: [{name: a.conf, contents: z}]"), "{units: [{name: a.service, actions: [{type: None}]}]}", "None"),
		Entry("no unit by the path of its file", unit("contents: x"), unit("contents: z"), "{files: [{path: /etc/systemd, actions: [{type: None}]}]}", "Reboot"),
		Entry("SSH keys", user("sshAuthorizedKeys: [a]"), user("sshAuthorizedKeys: [b]"), "{}", "None"),
		Entry("SSH keys with a policy", user("sshAuthorizedKeys: [a]"), nothing, "{sshKeys: {actions: [{type: Restart, unit: sshd.service}]}}", "Restart sshd.service"),
		Entry("a password hash", user("passwordHash: a"), user("passwordHash: b"), "{}", "None"),
		Entry("other attributes of a user", user("shell: /bin/sh"), user("shell: /bin/bash"), "{}", "Reboot"),
		Entry("a user with attributes", nothing, user("uid: 5, sshAuthorizedKeys: [a]"), "{}", "Reboot"),
		Entry("a group", nothing, withIgnition("passwd: {groups: [{name: g}]}"), "{}", "Reboot"),
		Entry("a directory", nothing, withIgnition("storage: {directories: [{path: /etc/d}]}"), "{}", "Reboot"),
		Entry("a directory and a link with a policy", nothing, withIgnition("storage: {directories: [{path: /etc/d}], links: [{path: /etc/l, target: /x}]}"),
			"{files: [{path: /etc/d, actions: [{type: None}]}, {path: /etc/l, actions: [{type: DaemonReload}]}]}", "DaemonReload"),
		Entry("kernel arguments", "{kernelArguments: [a, b]}", "{kernelArguments: [b, a]}", "{}", "Reboot"),
		Entry("extensions in another order", "{extensions: [a, b]}", "{extensions: [b, a]}", "{}", "Reboot"),
		Entry("the kernel", nothing, "{kernelType: realtime}", "{}", "Reboot"),
		Entry("the default kernel, named", nothing, "{kernelType: default}", "{}", "None"),
		Entry("the operating system", "{osImageURL: a}", "{osImageURL: b}", "{}", "Reboot"),
		Entry("only the extensions image", "{baseOSExtensionsContainerImage: a}", "{baseOSExtensionsContainerImage: b}", "{}", "None"),
		Entry("the kubelet section of a pool", nothing, file("/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf", "mode: 0644"), "{}", "Restart kubelet.service"),
		Entry("the kubelet section of worker", nothing, file("/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf", "mode: 0644"), "{}", "Restart kubelet.service"),
		Entry("a drop-in of the kubelet", nothing, withIgnition("systemd: {units: [{name: kubelet.service, dropins: [{name: 20-a.conf, contents: x}]}]}"),
			"{}", "DaemonReload", "Restart kubelet.service"),
		Entry("a drop-in of the kubelet with a policy", nothing, withIgnition("systemd: {units: [{name: kubelet.service, dropins: [{name: 20-a.conf, contents: x}]}]}"),
			"{units: [{name: kubelet.service, actions: [{type: Reboot}]}]}", "Reboot"),
		Entry("what the kubelet reserves by the size of the host", nothing, withIgnition("systemd: {units: [{name: kubelet.service, dropins: [{name: 15-poolboot-reserved.conf, contents: x}]}]}, "+
			"storage: {files: [{path: /etc/poolboot/system-reserved.sh}], links: [{path: /etc/kubernetes/kubelet.conf.d/98-poolboot-pool-reserved.conf, target: /run/a}]}"), "{}", "Restart kubelet.service", "Restart kubelet.service", "DaemonReload", "Restart kubelet.service"),
		Entry("a drop-in of registries", nothing, file("/etc/containers/registries.conf.d/01-image-registries.conf", "mode: 0644"), "{}", "Drain", "Reload crio.service"),
		Entry("mirrors of containerd", nothing, file("/etc/containerd/certs.d/quay.io/hosts.toml", "mode: 0644"), "{}", "None"),
		Entry("registries", nothing, file("/etc/containers/registries.conf", "mode: 0644"), "{}", "Drain", "Reload crio.service"),
	)

	both := withIgnition(`storage: {files: [{path: /etc/a, mode: 1}, {path: /etc/b, mode: 1}]}`)
	DescribeTable("of several changes",
		func(ofA, ofB string, drains, reboots bool, want ...string) {
			plan := planOf(nothing, both, policy("{files: [{path: /etc/a, actions: ["+ofA+"]}, {path: /etc/b, actions: ["+ofB+"]}]}"))
			Expect(describe(plan.Actions)).To(Equal(want))
			Expect(plan.Drains()).To(Equal(drains))
			Expect(plan.Reboots()).To(Equal(reboots))
		},
		Entry("are all, in order", "{type: DaemonReload}", "{type: Reload, unit: a.service}", false, false, "DaemonReload", "Reload a.service"),
		Entry("are without None beside others", "{type: None}", "{type: DaemonReload}", false, false, "DaemonReload"),
		Entry("are one None", "{type: None}", "{type: None}", false, false, "None"),
		Entry("have the same action twice, as in OpenShift", "{type: DaemonReload}", "{type: DaemonReload}", false, false, "DaemonReload", "DaemonReload"),
		Entry("are only Reboot if one is, which drains", "{type: Reboot}", "{type: DaemonReload}", true, true, "Reboot"),
		Entry("drain without a reboot", "{type: Drain}", "{type: None}", true, false, "Drain"),
	)

	It("says where the actions come from", func() {
		plan := planOf(nothing, withIgnition(`storage: {files: [{path: /etc/a, mode: 1}, {path: /etc/crio/policies/x, mode: 1}, {path: /var/b, mode: 1}]}`),
			policy("{files: [{path: /etc, actions: [{type: None}]}]}"))
		var reasons []string
		for _, change := range plan.Changes {
			reasons = append(reasons, change.String()+": "+change.Reason)
		}
		Expect(reasons).To(Equal([]string{
			"file /etc/a: disruptionPolicy for /etc", "file /etc/crio/policies/x: the default for /etc/crio/policies", "file /var/b: no policy covers it"}))
	})
})

var _ = Describe("The defaults", func() {
	It("reload and restart units only if the host has them", func() {
		of := update.DefaultPolicy()
		for _, rule := range append(slices.Collect(maps.Values(of.Paths)), of.SSHKeys) {
			for _, action := range rule.Actions {
				Expect(action.IfExists).To(Equal(action.Unit != ""), "%s: %s", rule.Reason, action)
			}
		}
		plan := planOf(nothing, file("/etc/crio/policies/a", "mode: 1"))
		Expect(plan.Actions).To(Equal([]update.Action{{Type: update.Reload, Unit: "crio.service", IfExists: true}}))
	})

	It("are not the policies of users, whose units must exist", func() {
		plan := planOf(nothing, file("/etc/crio/policies/a", "mode: 1"), policy("{files: [{path: /etc/crio/policies, actions: [{type: Reload, unit: crio.service}]}]}"))
		Expect(plan.Actions).To(Equal([]update.Action{{Type: update.Reload, Unit: "crio.service"}}))
	})
})

var _ = Describe("An update is impossible", func() {
	storage := func(entries string) string { return withIgnition("storage: {" + entries + "}") }

	DescribeTable("if it changes",
		func(before, after, obstacle string) {
			plan := planOf(before, after)
			Expect(plan.IsPossible()).To(BeFalse())
			Expect(plan.Obstacles[0].String()).To(MatchRegexp("^" + obstacle + "(:| changes)"))
			Expect(plan.Obstacles[0].Remedy).NotTo(BeEmpty())
			Expect(plan.Operations).To(BeEmpty())
			Expect(plan.Actions).To(BeEmpty())
			Expect(plan.Drains() || plan.Reboots()).To(BeFalse())
		},
		Entry("FIPS mode", nothing, "{fips: true}", "fips"),
		Entry("disks", nothing, storage("disks: [{device: /dev/sda}]"), "disk /dev/sda"),
		Entry("the order of disks", storage("disks: [{device: /dev/sda}, {device: /dev/sdb}]"), storage("disks: [{device: /dev/sdb}, {device: /dev/sda}]"), "disk"),
		Entry("RAID", nothing, storage("raid: [{name: a, level: raid1, devices: [/dev/a]}]"), "RAID a"),
		Entry("LUKS volumes", storage("luks: [{name: a, device: /dev/a}]"), nothing, "LUKS volume a"),
		Entry("file systems", nothing, storage("filesystems: [{device: /dev/a, format: ext4}]"), "filesystem /dev/a"),
		Entry("kernel arguments of Ignition", nothing, withIgnition("kernelArguments: {shouldExist: [a]}"), "config.kernelArguments"),
		Entry("the operating system to an unknown one", "{osImageURL: a}", nothing, "osImageURL"),
		Entry("the operating system to no image", nothing, "{osImageURL: --help}", "osImageURL"),
		Entry("the extensions to no package", nothing, "{extensions: [vim, --reboot]}", "extensions"),
		Entry("the extensions to those of no image", nothing, `{extensions: [vim], baseOSExtensionsContainerImage: "-v /:/host"}`, "baseOSExtensionsContainerImage"),
		Entry("the kernel to an unknown one", nothing, "{kernelType: fast}", "kernelType"),
		Entry("a file that is appended to", nothing, file("/etc/a", `append: [{source: "data:,a"}]`), "file /etc/a"),
		Entry("a file that was appended to", file("/etc/a", `append: [{source: "data:,a"}]`), nothing, "file /etc/a"),
		Entry("contents from a URL without a hash", nothing, file("/etc/a", `contents: {source: "https://example.com/a"}`), "file /etc/a"),
		Entry("contents that can't be decompressed", nothing, file("/etc/a", `contents: {compression: gzip, source: "data:,a"}`), "file /etc/a"),
		Entry("a directory that replaces another", nothing, storage("directories: [{path: /d, overwrite: true}]"), "directory /d"),
		Entry("whether a directory replaced another", storage("directories: [{path: /d, overwrite: true}]"), storage("directories: [{path: /d}]"), "directory /d"),
		Entry("a directory that replaced another", storage("directories: [{path: /d, overwrite: true}]"), nothing, "directory /d"),
		Entry("the ID of a user", user("uid: 1"), user("uid: 2"), "user core: uid"),
		Entry("the home of a user", user("homeDir: /a, noCreateHome: true"), user("homeDir: /b"), "user core: homeDir, noCreateHome"),
		Entry("that a user must not exist", nothing, user("shouldExist: false"), "user core"),
		Entry("that a group must not exist", withIgnition("passwd: {groups: [{name: g, shouldExist: false}]}"), nothing, "group g"),
		Entry("the ID of a group", withIgnition("passwd: {groups: [{name: g, gid: 1}]}"), withIgnition("passwd: {groups: [{name: g, gid: 2}]}"), "group g: gid"),
	)

	DescribeTable("not if it changes", func(before, after string) { Expect(planOf(before, after).Obstacles).To(BeEmpty()) },
		Entry("nothing of what is impossible", "{fips: true, config: {ignition: {version: 3.5.0}, storage: {disks: [{device: /dev/sda}], files: [{path: /a, append: [{source: 'data:,a'}]}]}}}",
			"{fips: true, kernelArguments: [a], config: {ignition: {version: 3.5.0}, storage: {disks: [{device: /dev/sda}], files: [{path: /a, append: [{source: 'data:,a'}]}]}}}"),
		Entry("nothing of an operating system that is not possible", "{kernelType: fast}", "{kernelType: fast}"),
		Entry("an empty list of disks", nothing, storage("disks: []")),
		Entry("fips to false", nothing, "{fips: false}"),
		Entry("an older Ignition version", withIgnition("storage: {files: [{path: /a}]}"), "{config: {ignition: {version: 3.1.0}, storage: {files: [{path: /a}]}}}"),
		Entry("special mode bits, which Ignition ignores", file("/a", "mode: 0755"), file("/a", "mode: 2541")),
		Entry("directories", storage("directories: [{path: /d, mode: 0755}]"), storage("directories: [{path: /d, mode: 0700}]")),
		Entry("links", storage("links: [{path: /l, target: /a}]"), storage("links: [{path: /l, target: /b}]")),
		Entry("another user", nothing, withIgnition("passwd: {users: [{name: ops, uid: 5, homeDir: /h, sshAuthorizedKeys: [a]}]}")),
		Entry("groups and shell of a user", user("groups: [a], shell: /a"), user("groups: [b], gecos: x")),
		Entry("a removed user", user("uid: 5"), nothing),
		Entry("contents from a URL with a hash", nothing, file("/etc/a", `contents: {source: "https://example.com/a", verification: {hash: sha512-`+hash+`}}`)),
	)

	DescribeTable("without a program that can change",
		func(after, tool, obstacle string) {
			of := func(programs ...string) []update.Obstacle {
				return update.New(parse(spec(nothing)), parse(spec(after)), pool.NewUpdatePolicy(), update.CapabilitiesOf(programs...)).Obstacles
			}
			Expect(of("systemctl")).To(HaveLen(1))
			Expect(of()[0].String()).To(And(HavePrefix(obstacle+": the host has no program"), ContainSubstring(tool)))
			Expect(of("systemctl", tool)).To(BeEmpty())
		},
		Entry("kernel arguments", "{kernelArguments: [a]}", "grubby", "kernelArguments"),
		Entry("kernel arguments with Ignition's contract", "{kernelArguments: [a]}", "ignition-kargs-helper", "kernelArguments"),
		Entry("the operating system", "{osImageURL: a}", "bootc", "osImageURL"),
		Entry("extensions", "{extensions: [a]}", "rpm-ostree", "extensions"),
		Entry("the kernel", "{kernelType: realtime}", "rpm-ostree", "kernelType"),
	)
})

const hash = "5ae625665f3e0bd0a065ed07a41989e4025b79d13930a2a8c57d6b4325226707d956a082d1e91b4d96a793562df98fd03c9dcf743c9c7b4e3055d4f9f09ba015"

var _ = DescribeTable("What a host has no program for is", func(programs []string, want ...string) {
	can := update.CapabilitiesOf(programs...)
	Expect(can.Unsupported()).To(HaveExactElements(want))
	Expect(update.CapabilitiesWithout(can.Unsupported()...)).To(Equal(can), "a report of an agent has all of it")
},
	Entry("nothing with rpm-ostree", []string{"rpm-ostree"}),
	Entry("extensions with bootc", []string{"bootc"}, "Extensions"),
	Entry("the operating system with grubby", []string{"grubby"}, "OSImage", "Extensions"),
	Entry("everything without a program", nil, "KernelArguments", "OSImage", "Extensions"),
)
