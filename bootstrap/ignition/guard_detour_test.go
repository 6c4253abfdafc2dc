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

// link is a document with one link.
func link(path, target string) string {
	return storage("links", fmt.Sprintf(`{"path":%q,"target":%q}`, path, target))
}

// argument is a document with one kernel argument.
func argument(text string) string {
	return fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldExist":[%q]}}`, text)
}

// remote is a document with a file whose contents are somewhere else.
func remote(path string) string {
	return storage("files", fmt.Sprintf(`{"path":%q,"contents":{"source":"https://a"}}`, path))
}

// The detours are ways around what the guard keeps, each of which a host would have gone.
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
		Entry("a path by a link of the image", fileWith("/var/usrlocal/lib/systemd/system/kubelet.service.d/1.conf", "[Service]\nExecStart=/a"), "storage.files[0].contents", "ExecStart"),
		Entry("a unit's name that leads to the kubelet's", unit(`{"name":"a/../kubelet.service","contents":"[Unit]"}`), "systemd.units[0].name", "must not contain a slash"),
		Entry("a drop-in's name that leads to the kubelet's configuration", unit(`{"name":"a.service","dropins":[{"name":"../../../kubernetes/kubelet.conf.d/a.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "must not contain a slash"),
		Entry("a directory in the place of the kubelet's unit", storage("directories", `{"path":"/etc/systemd/system/kubelet.service"}`), "storage.directories[0].path", "leave it out"),
		Entry("a directory that empties the one of the units", storage("directories", `{"path":"/etc/systemd/system","overwrite":true}`), "storage.directories[0].overwrite", "leave overwrite out"),
		Entry("a directory that empties the kubelet's drop-ins", storage("directories", `{"path":"/etc/systemd/system/kubelet.service.d","overwrite":true}`), "storage.directories[0].overwrite", "leave overwrite out"),

		Entry("a link above the units", link("/etc/systemd", "/opt/units"), "storage.links[0].path", "must be a directory"),
		Entry("a link above the units, by a link of the image", link("/lib", "/opt/lib"), "storage.links[0].path", "must be a directory"),
		Entry("a link in the place of an environment file", link("/etc/sysconfig/kubelet", "/opt/a"), "storage.links[0].path", "use a file"),
		Entry("a unit that is somewhere else", link("/etc/systemd/system/a.service", "/opt/a.service"), "storage.links[0].path", "under systemd.units"),
		Entry("another name of the kubelet's unit", link("/etc/systemd/system/a.service", "kubelet.service"), "storage.links[0].path", "another name of kubelet.service"),
		Entry("a unit that takes the kubelet's name", unit(`{"name":"a.service","contents":"[Install]\nAlias=b.service kubelet.service"}`), "systemd.units[0].contents", "Alias"),
		Entry("a drop-in that takes the name of Poolboot's unit", dropin("a.service", "[Install]\nAlias=poolboot-join.service"), "systemd.units[0].dropins[0].contents", "Alias"),
		Entry("a drop-in that gives the kubelet another name", dropin("kubelet.service", "[Install]\nAlias=a.service"), "systemd.units[0].dropins[0].contents", "Alias"),
		Entry("a generator", fileWith("/etc/systemd/system-generators/a", "#!/bin/sh"), "storage.files[0].path", "can't be checked"),
		Entry("a generator that is somewhere else", link("/etc/systemd/system-generators/a", "/opt/a"), "storage.links[0].path", "can't be checked"),
		Entry("a drop-in with precedence over /etc", fileWith("/etc/systemd/system.control/kubelet.service.d/1.conf", "[Service]\nExecStart=/a"), "storage.files[0].contents", "ExecStart"),

		Entry("a drop-in in the place of kubeadm's", unit(`{"name":"kubelet.service","dropins":[{"name":"10-kubeadm.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "use another name"),
		Entry("a file in the place of kubeadm's drop-in", fileWith("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Unit]"), "storage.files[0].contents", "use another name"),
		Entry("ExecStart behind a comment that ends in a backslash", dropin("kubelet.service", "[Service]\n# a \\\nExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "ExecStart"),
		Entry("ExecStart behind a carriage return", dropin("kubelet.service", "[Service]\nNice=1\rExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "ExecStart"),
		Entry("other files in the place of the kubelet's", dropin("kubelet.service", "[Service]\nBindReadOnlyPaths=/opt/a:/etc/kubernetes/kubelet.conf.d"), "systemd.units[0].dropins[0].contents", "BindReadOnlyPaths"),
		Entry("an environment file that nothing looks at", dropin("kubelet.service", "[Service]\nEnvironmentFile=-/opt/a"), "systemd.units[0].dropins[0].contents", "ends in .env"),
		Entry("contents from elsewhere for an environment file", remote("/opt/a.env"), "storage.files[0].contents", "write them into the document"),
		Entry("contents from elsewhere for what systemd obeys", remote("/etc/tmpfiles.d/a.conf"), "storage.files[0].contents", "write them into the document"),
		Entry("kubeadm's variable", fileWith("/etc/sysconfig/kubelet", "KUBELET_KUBEADM_ARGS=--v=2"), "storage.files[0].contents", "KUBELET_KUBEADM_ARGS"),
		Entry("OpenShift's variable of labels", fileWith("/etc/kubernetes/kubelet-env", "CUSTOM_KUBELET_LABELS=a=b"), "storage.files[0].contents", "CUSTOM_KUBELET_LABELS"),
		Entry("kubeadm's file of flags", fileWith("/var/lib/kubelet/kubeadm-flags.env", ""), "storage.files[0].path", "leave it out"),

		Entry("a flag in quotes", fileWith("/opt/a", `exec kubelet --node"-"labels=a=b`), "storage.files[0].contents", "--node-labels"),
		Entry("a flag over two lines", fileWith("/opt/a", "exec kubelet --node\\\n-labels=a=b"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag with an escape", dropin("a.service", `[Service]`+"\n"+`ExecStart=/usr/bin/kubelet --node\x2dlabels=a=b`), "systemd.units[0].dropins[0].contents", "--node-labels"),
		Entry("a flag with an escape in octal", fileWith("/opt/a", `kubelet --node\055labels=a=b`), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in what looks like a comment within quotes", fileWith("/etc/default/kubelet", "A=\"x\n# --node-labels=a=b\""), "storage.files[0].contents", "--node-labels"),
		Entry("a flag behind a line that goes on", fileWith("/opt/a", "true \\\n; kubelet --node-labels=a=b"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag before a zero byte", fileWith("/etc/default/kubelet", "A=--node-labels=a=b\n\x00"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in an environment file that begins as a program", fileWith("/etc/default/kubelet", "\x7fELF\nA=--node-labels=a=b"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in two parts", storage("files", `{"path":"/opt/a.env","contents":{"source":"data:,A=--node-"},"append":[{"source":"data:,labels=a=b"}]}`), "storage.files[0]", "--node-labels"),
		Entry("--register-node", fileWith("/opt/a.env", "A=--register-node=false"), "storage.files[0].contents", "--register-node"),
		Entry("a command that renames the host", unit(`{"name":"a.service","contents":"[Service]\nExecStart=/usr/bin/hostnamectl --static set-hostname a"}`), "systemd.units[0].contents", "change the host's name"),
		Entry("a setting that renames the host", fileWith("/etc/sysctl.d/a.conf", "kernel.hostname = a"), "storage.files[0].contents", "change the host's name"),

		Entry("taints in other capitals, which the kubelet reads too", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "registerwithtaints: []"), "storage.files[0].contents", "registerwithtaints is reserved for Poolboot"),
		Entry("taints in a kubelet configuration anywhere", fileWith("/opt/kubelet.yaml", "kind: KubeletConfiguration\nregisterWithTaints: []"), "storage.files[0].contents", "registerWithTaints is reserved for Poolboot"),
		Entry("registerNode in a kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", `{"registerNode":false}`), "storage.files[0].contents", "registerNode is reserved for Poolboot"),

		Entry("a file system over Poolboot's files", storage("filesystems", `{"device":"/dev/a","format":"xfs","path":"/etc/kubernetes"}`), "storage.filesystems[0].path", "would hide"),
		Entry("a mount over Poolboot's files", unit(`{"name":"etc-poolboot.mount","contents":"[Mount]\nWhat=tmpfs"}`), "systemd.units[0].name", "would hide"),
		Entry("a mount over Poolboot's files as a file", fileWith("/etc/systemd/system/etc.mount", "[Mount]\nWhat=tmpfs"), "storage.files[0].contents", "would hide"),
		Entry("a mount over Poolboot's files in fstab", fileWith("/etc/fstab", "tmpfs /etc/poolboot/ tmpfs defaults 0 0"), "storage.files[0].contents", "would hide"),
		Entry("a file that systemd makes at every boot", fileWith("/etc/tmpfiles.d/a.conf", "f+ \"/etc/hostname\" 0644 - - - a"), "storage.files[0].contents", "/etc/hostname is reserved for Poolboot"),
		Entry("a drop-in that systemd makes at every boot", fileWith("/etc/tmpfiles.d/a.conf", "L /etc/systemd/system/kubelet.service.d/1.conf - - - - /opt/a"), "storage.files[0].contents", "Poolboot: remove the line"),
		Entry("a preset that leaves the kubelet out", fileWith("/etc/systemd/system-preset/10-a.preset", "disable kube*"), "storage.files[0].contents", "never joins"),

		Entry("a kernel argument that names the host", argument("systemd.hostname=a"), "kernelArguments.shouldExist[0]", "systemd.hostname=a"),
		Entry("a kernel argument of the kernel's that does", argument("hostname=a"), "kernelArguments.shouldExist[0]", "hostname=a"),
		Entry("a kernel argument among others, in quotes", argument(`quiet "ignition.config.url=https://a"`), "kernelArguments.shouldExist[0]", "ignition.config.url"),
		Entry("a kernel argument that masks the kubelet", argument("systemd.mask=kubelet"), "kernelArguments.shouldExist[0]", "systemd.mask=kubelet"),
		Entry("a kernel argument with a drop-in", argument("systemd.set_credential=systemd.unit-dropin.kubelet.service:a"), "kernelArguments.shouldExist[0]", "systemd.set_credential"),
		Entry("a kernel argument with a flag", argument("systemd.setenv=KUBELET_EXTRA_ARGS=--node-labels=a=b"), "kernelArguments.shouldExist[0]", "--node-labels"),
		Entry("a kernel argument that is taken away", `{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldNotExist":["ignition.platform.id=metal"]}}`, "kernelArguments.shouldNotExist[0]", "leave it out"),
	)

	DescribeTable("lets pass",
		func(document string) { Expect(ignition.Guard(parse(document))).To(Succeed()) },
		Entry("a generator of the image that is switched off", link("/etc/systemd/system-generators/a", "/dev/null")),
		Entry("a unit of the image that is switched off", link("/etc/systemd/system/a.service", "/dev/null")),
		Entry("another name of one's own unit", link("/etc/systemd/system/b.service", "/usr/lib/systemd/system/a.service")),
		Entry("a unit with another name", unit(`{"name":"a.service","contents":"[Install]\nAlias=b.service"}`)),
		Entry("an environment file of the kubelet that is looked at", dropin("kubelet.service", "[Service]\nEnvironmentFile=-/etc/sysconfig/mine\nEnvironmentFile=/opt/mine.env\nUnsetEnvironment=HTTP_PROXY")),
		Entry("the use of a variable", fileWith("/opt/a", `echo "$KUBELET_NODE_NAME"; hostnamectl hostname | cat; hostnamectl status`)),
		Entry("a provider ID that is no kubelet's", fileWith("/etc/mine.yaml", "kind: Machine\nproviderID: a")),
		Entry("a file system for /var, and its mount", `{"ignition":{"version":"3.5.0"},"storage":{"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var"}]},
			"systemd":{"units":[{"name":"var.mount","contents":"[Mount]\nWhere=/var\nWhat=/dev/a"}]}}`),
		Entry("a directory of drop-ins", storage("directories", `{"path":"/etc/systemd/system/kubelet.service.d","mode":493}`)),
		Entry("tmpfiles of one's own", fileWith("/etc/tmpfiles.d/a.conf", "# /etc/hostname\nd /var/lib/mine 0755 - - -")),
		Entry("a preset behind Ignition's", fileWith("/etc/systemd/system-preset/99-a.preset", "disable *")),
		Entry("kernel arguments", argument("quiet hugepages=4 systemd.mask=mine.service systemd.unified_cgroup_hierarchy=1 ip=dhcp console=ttyS0")),
	)

	DescribeTable("refuses what the kernel hands to init, which splits words in another way than systemd",
		func(arguments string) {
			Expect(ignition.GuardArguments([]string{arguments})).To(MatchError(ContainSubstring("kernel argument -- would change what the host boots into")))
		},
		Entry("after blanks", "x=a -- --unit=rescue.target"),
		Entry("in single quotes, which the kernel does not know", "x='a -- --unit=rescue.target b'"),
		Entry("after a vertical tab", "quiet\v--\v--unit=rescue.target"),
		Entry("after a form feed", "quiet\f--\f--unit=rescue.target"),
		Entry("after a blank that is not broken", "quiet\u00a0-- --unit=rescue.target"),
		Entry("after a letter whose last byte is a blank for the kernel", "quiet\u0120-- --unit=rescue.target"),
	)

	DescribeTable("says what a kernel argument would do",
		func(does string, arguments ...string) {
			for _, argument := range arguments {
				Expect(ignition.GuardArguments([]string{argument})).To(MatchError("kernelArguments[0]: the kernel argument "+argument+" "+does+": leave it out"), argument)
			}
		},
		Entry("to the host's name", "would change the host's name", "hostname=a", "systemd.hostname=a"),
		Entry("to Ignition", "would give Ignition another configuration", "ignition.config.url=https://a", "flatcar.first_boot=1"),
		Entry("to the boot target", "would change what the host boots into", "systemd.unit=a.target", "rd.systemd.unit=a.target", "init=/bin/sh", "systemd.run=/a",
			"1", "s", "S", "-s", "-b", "single", "emergency", "rescue", "rd.rescue", "rd.emergency", "--"),
		Entry("to the kubelet", "would mask a unit that joins the host", "systemd.mask=kubelet", "systemd.mask=poolboot-check.service"),
		Entry("to mounts", "would mount a file system over files that the host joins with", "systemd.mount-extra=/a:/b"),
		Entry("to systemd's environment", "would be in systemd's environment, which can set other unit directories", "SYSTEMD_UNIT_PATH=/a"),
		Entry("that nobody knows", "is a setting of systemd that is not known to leave units and files unchanged", "systemd.foo=1", "rd.systemd.foo", "systemd.volatile=yes"),
	)

	It("finds a boot target among other kernel arguments, and not in quotes or with a value", func() {
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
	It("lists what the guard keeps, and nothing else", func() {
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
