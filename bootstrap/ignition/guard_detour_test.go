package ignition_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// link returns a document with one link.
func link(path, target string) string {
	return storage("links", fmt.Sprintf(`{"path":%q,"target":%q}`, path, target))
}

// argument returns a document with one kernel argument.
func argument(text string) string {
	return fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldExist":[%q]}}`, text)
}

// remote returns a document with a file whose contents are at a URL.
func remote(path string) string {
	return storage("files", fmt.Sprintf(`{"path":%q,"contents":{"source":"https://a"}}`, path))
}

// Detours are other ways to change what the guard protects. Each of them works on a host.
var _ = Describe("Guard on detours", func() {
	DescribeTable("refuses",
		func(document, path, why string) {
			err := ignition.Guard(parse(document))
			var refused *ignition.GuardError
			Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
			Expect(refused.Entries).To(HaveLen(1), "%v", err)
			Expect(refused.Entries[0].Path).To(Equal(path))
			Expect(err).To(MatchError(ContainSubstring(why)))
		},
		Entry("a path through a link of the image", fileWith("/var/usrlocal/lib/systemd/system/kubelet.service.d/1.conf", "[Service]\nExecStart=/a"), "storage.files[0].contents", "ExecStart"),
		Entry("a unit's name that leads to the kubelet's", unit(`{"name":"a/../kubelet.service","contents":"[Unit]"}`), "systemd.units[0].name", "must not contain a slash"),
		Entry("a drop-in's name that leads to the kubelet's configuration", unit(`{"name":"a.service","dropins":[{"name":"../../../kubernetes/kubelet.conf.d/a.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "must not contain a slash"),
		Entry("a directory in place of the kubelet's unit", storage("directories", `{"path":"/etc/systemd/system/kubelet.service"}`), "storage.directories[0].path", "leave it out"),
		Entry("a directory that deletes the units", storage("directories", `{"path":"/etc/systemd/system","overwrite":true}`), "storage.directories[0].overwrite", "leave overwrite out"),
		Entry("a directory that deletes the kubelet's drop-ins", storage("directories", `{"path":"/etc/systemd/system/kubelet.service.d","overwrite":true}`), "storage.directories[0].overwrite", "leave overwrite out"),

		Entry("a link above the units", link("/etc/systemd", "/opt/units"), "storage.links[0].path", "must be a directory"),
		Entry("a link above the units, through a link of the image", link("/lib", "/opt/lib"), "storage.links[0].path", "must be a directory"),
		Entry("a link in place of an environment file", link("/etc/sysconfig/kubelet", "/opt/a"), "storage.links[0].path", "use a file"),
		Entry("a unit that is a link", link("/etc/systemd/system/a.service", "/opt/a.service"), "storage.links[0].path", "under systemd.units"),
		Entry("another name of the kubelet's unit", link("/etc/systemd/system/a.service", "kubelet.service"), "storage.links[0].path", "another name of kubelet.service"),
		Entry("a unit that takes the kubelet's name", unit(`{"name":"a.service","contents":"[Install]\nAlias=b.service kubelet.service"}`), "systemd.units[0].contents", "Alias"),
		Entry("a drop-in that takes the name of Poolboot's unit", dropin("a.service", "[Install]\nAlias=poolboot-join.service"), "systemd.units[0].dropins[0].contents", "Alias"),
		Entry("a drop-in that gives the kubelet another name", dropin("kubelet.service", "[Install]\nAlias=a.service"), "systemd.units[0].dropins[0].contents", "Alias"),
		Entry("a generator", fileWith("/etc/systemd/system-generators/a", "#!/bin/sh"), "storage.files[0].path", "can't be checked"),
		Entry("a generator that is a link", link("/etc/systemd/system-generators/a", "/opt/a"), "storage.links[0].path", "can't be checked"),
		Entry("a drop-in with precedence over /etc", fileWith("/etc/systemd/system.control/kubelet.service.d/1.conf", "[Service]\nExecStart=/a"), "storage.files[0].contents", "ExecStart"),

		Entry("a drop-in in place of kubeadm's", unit(`{"name":"kubelet.service","dropins":[{"name":"10-kubeadm.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "use another name"),
		Entry("a file in place of kubeadm's drop-in", fileWith("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Unit]"), "storage.files[0].contents", "use another name"),
		Entry("ExecStart after a comment that ends with a backslash", dropin("kubelet.service", "[Service]\n# a \\\nExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "ExecStart"),
		Entry("ExecStart after a carriage return", dropin("kubelet.service", "[Service]\nNice=1\rExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "ExecStart"),
		Entry("a bind mount over the kubelet's configuration", dropin("kubelet.service", "[Service]\nBindReadOnlyPaths=/opt/a:/etc/kubernetes/kubelet.conf.d"), "systemd.units[0].dropins[0].contents", "BindReadOnlyPaths"),
		Entry("an environment file that is not checked", dropin("kubelet.service", "[Service]\nEnvironmentFile=-/opt/a"), "systemd.units[0].dropins[0].contents", "ends in .env"),
		Entry("remote contents for an environment file", remote("/opt/a.env"), "storage.files[0].contents", "write them into the document"),
		Entry("remote contents for a file that systemd reads", remote("/etc/tmpfiles.d/a.conf"), "storage.files[0].contents", "write them into the document"),
		Entry("kubeadm's variable", fileWith("/etc/sysconfig/kubelet", "KUBELET_KUBEADM_ARGS=--v=2"), "storage.files[0].contents", "KUBELET_KUBEADM_ARGS"),
		Entry("OpenShift's variable with labels", fileWith("/etc/kubernetes/kubelet-env", "CUSTOM_KUBELET_LABELS=a=b"), "storage.files[0].contents", "CUSTOM_KUBELET_LABELS"),
		Entry("kubeadm's file with flags", fileWith("/var/lib/kubelet/kubeadm-flags.env", ""), "storage.files[0].path", "leave it out"),

		Entry("a flag in quotes", fileWith("/opt/a", `exec kubelet --node"-"labels=a=b`), "storage.files[0].contents", "--node-labels"),
		Entry("a flag over two lines", fileWith("/opt/a", "exec kubelet --node\\\n-labels=a=b"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag with an escape", dropin("a.service", `[Service]`+"\n"+`ExecStart=/usr/bin/kubelet --node\x2dlabels=a=b`), "systemd.units[0].dropins[0].contents", "--node-labels"),
		Entry("a flag with an octal escape", fileWith("/opt/a", `kubelet --node\055labels=a=b`), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in quoted text that looks like a comment", fileWith("/etc/default/kubelet", "A=\"x\n# --node-labels=a=b\""), "storage.files[0].contents", "--node-labels"),
		Entry("a flag after a line with a continuation", fileWith("/opt/a", "true \\\n; kubelet --node-labels=a=b"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag before a zero byte", fileWith("/etc/default/kubelet", "A=--node-labels=a=b\n\x00"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in an environment file that starts like a program", fileWith("/etc/default/kubelet", "\x7fELF\nA=--node-labels=a=b"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in two parts", storage("files", `{"path":"/opt/a.env","contents":{"source":"data:,A=--node-"},"append":[{"source":"data:,labels=a=b"}]}`), "storage.files[0]", "--node-labels"),
		Entry("--register-node", fileWith("/opt/a.env", "A=--register-node=false"), "storage.files[0].contents", "--register-node"),
		Entry("a command that renames the host", unit(`{"name":"a.service","contents":"[Service]\nExecStart=/usr/bin/hostnamectl --static set-hostname a"}`), "systemd.units[0].contents", "change the host's name"),
		Entry("a setting that renames the host", fileWith("/etc/sysctl.d/a.conf", "kernel.hostname = a"), "storage.files[0].contents", "change the host's name"),

		Entry("taints with other capitalization, which the kubelet reads too", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "registerwithtaints: []"), "storage.files[0].contents", "registerwithtaints is reserved for Poolboot"),
		Entry("taints in a kubelet configuration anywhere", fileWith("/opt/kubelet.yaml", "kind: KubeletConfiguration\nregisterWithTaints: []"), "storage.files[0].contents", "registerWithTaints is reserved for Poolboot"),
		Entry("registerNode in a kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", `{"registerNode":false}`), "storage.files[0].contents", "registerNode is reserved for Poolboot"),

		Entry("a file system over Poolboot's files", storage("filesystems", `{"device":"/dev/a","format":"xfs","path":"/etc/kubernetes"}`), "storage.filesystems[0].path", "would hide"),
		Entry("a mount over Poolboot's files", unit(`{"name":"etc-poolboot.mount","contents":"[Mount]\nWhat=tmpfs"}`), "systemd.units[0].name", "would hide"),
		Entry("a mount over Poolboot's files as a file", fileWith("/etc/systemd/system/etc.mount", "[Mount]\nWhat=tmpfs"), "storage.files[0].contents", "would hide"),
		Entry("a mount over Poolboot's files in fstab", fileWith("/etc/fstab", "tmpfs /etc/poolboot/ tmpfs defaults 0 0"), "storage.files[0].contents", "would hide"),
		Entry("a file that systemd creates at every boot", fileWith("/etc/tmpfiles.d/a.conf", "f+ \"/etc/hostname\" 0644 - - - a"), "storage.files[0].contents", "/etc/hostname is reserved for Poolboot"),
		Entry("a drop-in that systemd creates at every boot", fileWith("/etc/tmpfiles.d/a.conf", "L /etc/systemd/system/kubelet.service.d/1.conf - - - - /opt/a"), "storage.files[0].contents", "Poolboot: remove the line"),
		Entry("a preset that disables the kubelet", fileWith("/etc/systemd/system-preset/10-a.preset", "disable kube*"), "storage.files[0].contents", "never joins"),

		Entry("a kernel argument for systemd that sets the host name", argument("systemd.hostname=a"), "kernelArguments.shouldExist[0]", "systemd.hostname=a"),
		Entry("a kernel argument for the kernel that sets the host name", argument("hostname=a"), "kernelArguments.shouldExist[0]", "hostname=a"),
		Entry("a kernel argument among others, in quotes", argument(`quiet "ignition.config.url=https://a"`), "kernelArguments.shouldExist[0]", "ignition.config.url"),
		Entry("a kernel argument that masks the kubelet", argument("systemd.mask=kubelet"), "kernelArguments.shouldExist[0]", "systemd.mask=kubelet"),
		Entry("a kernel argument with a drop-in", argument("systemd.set_credential=systemd.unit-dropin.kubelet.service:a"), "kernelArguments.shouldExist[0]", "systemd.set_credential"),
		Entry("a kernel argument with a flag", argument("systemd.setenv=KUBELET_EXTRA_ARGS=--node-labels=a=b"), "kernelArguments.shouldExist[0]", "--node-labels"),
		Entry("a kernel argument that is removed", `{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldNotExist":["ignition.platform.id=metal"]}}`, "kernelArguments.shouldNotExist[0]", "leave it out"),
	)

	DescribeTable("accepts",
		func(document string) { Expect(ignition.Guard(parse(document))).To(Succeed()) },
		Entry("a disabled generator of the image", link("/etc/systemd/system-generators/a", "/dev/null")),
		Entry("a masked unit of the image", link("/etc/systemd/system/a.service", "/dev/null")),
		Entry("another name for a user's own unit", link("/etc/systemd/system/b.service", "/usr/lib/systemd/system/a.service")),
		Entry("a unit with another name", unit(`{"name":"a.service","contents":"[Install]\nAlias=b.service"}`)),
		Entry("an environment file of the kubelet that is checked", dropin("kubelet.service", "[Service]\nEnvironmentFile=-/etc/sysconfig/mine\nEnvironmentFile=/opt/mine.env\nUnsetEnvironment=HTTP_PROXY")),
		Entry("the use of a variable", fileWith("/opt/a", `echo "$KUBELET_NODE_NAME"; hostnamectl hostname | cat; hostnamectl status`)),
		Entry("a provider ID that is not the kubelet's", fileWith("/etc/mine.yaml", "kind: Machine\nproviderID: a")),
		Entry("a file system for /var, and its mount", `{"ignition":{"version":"3.5.0"},"storage":{"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var"}]},
			"systemd":{"units":[{"name":"var.mount","contents":"[Mount]\nWhere=/var\nWhat=/dev/a"}]}}`),
		Entry("a directory of drop-ins", storage("directories", `{"path":"/etc/systemd/system/kubelet.service.d","mode":493}`)),
		Entry("a user's own tmpfiles", fileWith("/etc/tmpfiles.d/a.conf", "# /etc/hostname\nd /var/lib/mine 0755 - - -")),
		Entry("a preset that is read after Ignition's", fileWith("/etc/systemd/system-preset/99-a.preset", "disable *")),
		Entry("kernel arguments", argument("quiet hugepages=4 systemd.mask=mine.service systemd.unified_cgroup_hierarchy=1 ip=dhcp console=ttyS0")),
	)

	DescribeTable("refuses arguments that the kernel passes to init, even if the kernel splits words differently than systemd",
		func(arguments string) {
			Expect(ignition.GuardArguments([]string{arguments})).To(MatchError(ContainSubstring("kernel argument -- would change what the host boots into")))
		},
		Entry("after spaces", "x=a -- --unit=rescue.target"),
		Entry("in single quotes, which the kernel does not interpret", "x='a -- --unit=rescue.target b'"),
		Entry("after a vertical tab", "quiet\v--\v--unit=rescue.target"),
		Entry("after a form feed", "quiet\f--\f--unit=rescue.target"),
		Entry("after a no-break space", "quiet\u00a0-- --unit=rescue.target"),
		Entry("after a letter whose last byte is a space for the kernel", "quiet\u0120-- --unit=rescue.target"),
	)

	DescribeTable("names the effect of a kernel argument",
		func(does string, arguments ...string) {
			for _, argument := range arguments {
				Expect(ignition.GuardArguments([]string{argument})).To(MatchError("kernelArguments[0]: the kernel argument "+argument+" "+does+": leave it out"), argument)
			}
		},
		Entry("on the host's name", "would change the host's name", "hostname=a", "systemd.hostname=a"),
		Entry("on Ignition", "would give Ignition another configuration", "ignition.config.url=https://a", "flatcar.first_boot=1"),
		Entry("on the boot target", "would change what the host boots into", "systemd.unit=a.target", "rd.systemd.unit=a.target", "init=/bin/sh", "systemd.run=/a",
			"1", "s", "S", "-s", "-b", "single", "emergency", "rescue", "rd.rescue", "rd.emergency", "--"),
		Entry("on the kubelet", "would mask a unit that joins the host", "systemd.mask=kubelet", "systemd.mask=poolboot-check.service"),
		Entry("on mounts", "would mount a file system over files that the host joins with", "systemd.mount-extra=/a:/b"),
		Entry("on systemd's environment", "would be in systemd's environment, which can set other unit directories", "SYSTEMD_UNIT_PATH=/a"),
		Entry("that is unknown", "is a setting of systemd that is not known to leave units and files unchanged", "systemd.foo=1", "rd.systemd.foo", "systemd.volatile=yes"),
	)

	It("finds a boot target among other kernel arguments, but not inside quotes or with a value", func() {
		const refused = "the kernel argument 1 would change what the host boots into"
		for _, arguments := range [][]string{
			{"quiet", "nosmt 1"}, {"quiet\t1"}, {`"1"`}, {`'1'`}, {`a="b c" 1`}, {`a="b`, `" 1`}, {`a="b`, `"c 1 d"`}, {`a='b`, `' 1`}, {`\1`}, {`a="\" 1 "b"`},
		} {
			Expect(ignition.GuardArguments(arguments)).To(MatchError(ContainSubstring(refused)), "%q", arguments)
		}
		for _, argument := range []string{`dyndbg="module a 1 s"`, `dyndbg='module a 1'`, "s=1", "rd.emergency=reboot", "loglevel=1", "2", "3", "5", "a=single", "nosingle"} {
			Expect(ignition.GuardArguments([]string{argument})).To(Succeed(), argument)
		}
	})

	It("checks the kernel arguments of a MachineConfig the same way", func() {
		Expect(ignition.GuardArguments([]string{"quiet", "nosmt"})).To(Succeed())
		Expect(ignition.GuardArguments([]string{"quiet", "nosmt systemd.unit=rescue.target"})).To(
			MatchError(HavePrefix("kernelArguments[1]: the kernel argument systemd.unit=rescue.target")))
	})
})

var _ = Describe("The documentation of pools", func() {
	It("lists everything that the guard protects, and nothing else", func() {
		document, err := os.ReadFile("../../docs/pools.md")
		Expect(err).NotTo(HaveOccurred())
		_, section, found := strings.Cut(string(document), "\n## What a MachineConfig can't have\n")
		Expect(found).To(BeTrue())
		section, _, _ = strings.Cut(section, "\n## ")
		section, allowed, found := strings.Cut(section, "\n| In | Allowed |")
		Expect(found).To(BeTrue())
		rows := regexp.MustCompile(`(?m)^\| .*? \| (.*) \|$`).FindAllStringSubmatch(allowed, -1)
		for i, want := range ignition.Allowed() {
			Expect(rows[i+1][1]).To(Equal("`" + strings.Join(want, "` `") + "`"))
		}
		var listed []string
		for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section, -1) {
			for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				listed = append(listed, code[1])
			}
		}
		slices.Sort(listed)
		Expect(listed).To(Equal(ignition.Reserved()))
	})
})
