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

// Detours are other ways to change what the guard protects, which people take by mistake.
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
		Entry("Poolboot's drop-in", unit(`{"name":"kubelet.service","dropins":[{"name":"10-poolboot.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "use another name"),
		Entry("Poolboot's drop-in with precedence over /etc", fileWith("/etc/systemd/system.control/kubelet.service.d/10-poolboot.conf", "[Unit]"), "storage.files[0].contents", "use another name"),
		Entry("a drop-in of all of Poolboot's units", fileWith("/etc/systemd/system/poolboot-.service.d/a.conf", "[Unit]"), "storage.files[0].contents", "reserved for Poolboot"),
		Entry("a drop-in with precedence over /etc", fileWith("/etc/systemd/system.control/kubelet.service.d/1.conf", "[Service]\nExecStart=/a"), "storage.files[0].contents", "ExecStart"),

		Entry("a drop-in in place of kubeadm's", unit(`{"name":"kubelet.service","dropins":[{"name":"10-kubeadm.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "use another name"),
		Entry("a file in place of kubeadm's drop-in", fileWith("/etc/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Unit]"), "storage.files[0].contents", "use another name"),
		Entry("ExecStart after a comment that ends with a backslash", dropin("kubelet.service", "[Service]\n# a \\\nExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "ExecStart"),
		Entry("ExecStart after a carriage return", dropin("kubelet.service", "[Service]\nNice=1\rExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "ExecStart"),
		Entry("kubeadm's variable", fileWith("/etc/sysconfig/kubelet", "KUBELET_KUBEADM_ARGS=--v=2"), "storage.files[0].contents", "KUBELET_KUBEADM_ARGS"),
		Entry("OpenShift's variable with labels", fileWith("/etc/kubernetes/kubelet-env", "CUSTOM_KUBELET_LABELS=a=b"), "storage.files[0].contents", "CUSTOM_KUBELET_LABELS"),
		Entry("kubeadm's file with flags", fileWith("/var/lib/kubelet/kubeadm-flags.env", ""), "storage.files[0].path", "leave it out"),

		Entry("a flag before a zero byte", fileWith("/etc/default/kubelet", "A=--node-labels=a=b\n\x00"), "storage.files[0].contents", "--node-labels"),
		Entry("a flag in two parts", storage("files", `{"path":"/opt/a.env","contents":{"source":"data:,A=--node-"},"append":[{"source":"data:,labels=a=b"}]}`), "storage.files[0]", "--node-labels"),
		Entry("--register-node", fileWith("/opt/a.env", "A=--register-node=false"), "storage.files[0].contents", "--register-node"),
		Entry("a command that renames the host", unit(`{"name":"a.service","contents":"[Service]\nExecStart=/usr/bin/hostnamectl --static set-hostname a"}`), "systemd.units[0].contents", "change the host's name"),
		Entry("a setting that renames the host", fileWith("/etc/sysctl.d/a.conf", "kernel.hostname = a"), "storage.files[0].contents", "change the host's name"),

		Entry("taints with other capitalization, which the kubelet reads too", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "registerwithtaints: []"), "storage.files[0].contents", "registerwithtaints is reserved for Poolboot"),
		Entry("taints in a kubelet configuration anywhere", fileWith("/opt/kubelet.yaml", "kind: KubeletConfiguration\nregisterWithTaints: []"), "storage.files[0].contents", "registerWithTaints is reserved for Poolboot"),
		Entry("registerNode in a kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", `{"registerNode":false}`), "storage.files[0].contents", "registerNode is reserved for Poolboot"),

		Entry("a preset that disables the kubelet", fileWith("/etc/systemd/system-preset/10-a.preset", "disable kube*"), "storage.files[0].contents", "never joins"),

		Entry("a kernel argument for systemd that sets the host name", argument("systemd.hostname=a"), "kernelArguments.shouldExist[0]", "systemd.hostname=a"),
		Entry("a kernel argument for the kernel that sets the host name", argument("hostname=a"), "kernelArguments.shouldExist[0]", "hostname=a"),
		Entry("a kernel argument among others, in quotes", argument(`quiet "ignition.config.url=https://a"`), "kernelArguments.shouldExist[0]", "ignition.config.url"),
		Entry("a kernel argument that masks the kubelet", argument("systemd.mask=kubelet"), "kernelArguments.shouldExist[0]", "systemd.mask=kubelet"),
		Entry("a kernel argument that mounts", argument("systemd.mount-extra=/opt/a:/etc/poolboot:none:bind"), "kernelArguments.shouldExist[0]", "systemd.mount-extra"),
		Entry("a kernel argument that discards /etc", argument("systemd.volatile=yes"), "kernelArguments.shouldExist[0]", "systemd.volatile"),
		Entry("a kernel argument with a second line, which could be one of the boot loader", argument("a\ninitrd /b"), "kernelArguments.shouldExist[0]", `"a\ninitrd /b" has the end of a line`),
		Entry("a kernel argument with a flag", argument("systemd.setenv=KUBELET_EXTRA_ARGS=--node-labels=a=b"), "kernelArguments.shouldExist[0]", "--node-labels"),
		Entry("a kernel argument that is removed", `{"ignition":{"version":"3.5.0"},"kernelArguments":{"shouldNotExist":["ignition.platform.id=metal"]}}`, "kernelArguments.shouldNotExist[0]", "leave it out"),
	)

	DescribeTable("accepts",
		func(document string) { Expect(ignition.Guard(parse(document))).To(Succeed()) },
		Entry("a masked unit of the image", link("/etc/systemd/system/a.service", "/dev/null")),
		Entry("an environment file of the kubelet that is checked", dropin("kubelet.service", "[Service]\nEnvironmentFile=-/etc/sysconfig/mine\nEnvironmentFile=/opt/mine.env\nUnsetEnvironment=HTTP_PROXY")),
		Entry("the use of a variable", fileWith("/opt/a", `echo "$KUBELET_NODE_NAME"; hostnamectl hostname | cat; hostnamectl status`)),
		Entry("a provider ID that is not the kubelet's", fileWith("/etc/mine.yaml", "kind: Machine\nproviderID: a")),
		Entry("a file system for /var, and its mount", `{"ignition":{"version":"3.5.0"},"storage":{"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var"}]},
			"systemd":{"units":[{"name":"var.mount","contents":"[Mount]\nWhere=/var\nWhat=/dev/a"}]}}`),
		Entry("a directory of drop-ins", storage("directories", `{"path":"/etc/systemd/system/kubelet.service.d","mode":493}`)),
		Entry("a preset that is read after Ignition's", fileWith("/etc/systemd/system-preset/99-a.preset", "disable *")),
		Entry("kernel arguments", argument("quiet hugepages=4 systemd.mask=mine.service systemd.unified_cgroup_hierarchy=1 ip=dhcp console=ttyS0")),
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
		Entry("on mounts", "would mount a file system over files that the host joins with", "systemd.mount-extra=/a:/b", "systemd.swap_extra=/a", "systemd.volatile=yes"),
	)

	It("finds a boot target among other kernel arguments, but not inside quotes or with a value", func() {
		const refused = "the kernel argument 1 would change what the host boots into"
		for _, arguments := range [][]string{
			{"quiet", "nosmt 1"}, {"quiet\t1"}, {"1"},
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
	It("lists everything that the guard refuses, and nothing else", func() {
		document, err := os.ReadFile("../../docs/pools.md")
		Expect(err).NotTo(HaveOccurred())
		_, section, found := strings.Cut(string(document), "\n## What a MachineConfig can't have\n")
		Expect(found).To(BeTrue())
		section, _, _ = strings.Cut(section, "\n## ")
		var listed []string
		for _, row := range regexp.MustCompile(`(?m)^\| (.*?) \|`).FindAllStringSubmatch(section, -1) {
			for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[1], -1) {
				listed = append(listed, code[1])
			}
		}
		slices.Sort(listed)
		Expect(slices.Compact(listed)).To(Equal(ignition.Reserved()))
	})
})
