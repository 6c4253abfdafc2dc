package ignition_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const tmpfiles = "/etc/tmpfiles.d/a.conf"

// linkAnd returns a document with a link and a file that has these contents.
func linkAnd(from, to, path, contents string) string {
	return fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{"links":[{"path":%q,"target":%q}],"files":[{"path":%q,"contents":{"source":%q}}]}}`,
		from, to, path, dataurl.EncodeBytes([]byte(contents)))
}

// linkAndUnit returns a document with a link and a unit.
func linkAndUnit(from, to, name, contents string) string {
	return fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{"links":[{"path":%q,"target":%q}]},"systemd":{"units":[{"name":%q,"contents":%s}]}}`,
		from, to, name, strconv.Quote(contents))
}

// unitWith returns a document with a unit that has these contents.
func unitWith(name, contents string) string {
	return unit(fmt.Sprintf(`{"name":%q,"contents":%s}`, name, strconv.Quote(contents)))
}

// A guard that compares paths and settings as they are written accepts each of these.
var _ = Describe("Guard on other spellings", func() {
	DescribeTable("refuses",
		func(document, path, why string) {
			err := ignition.Guard(parse(document))
			var refused *ignition.GuardError
			Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
			Expect(refused.Entries).To(HaveLen(1), "%v", err)
			Expect(refused.Entries[0].Path).To(Equal(path))
			Expect(err).To(MatchError(ContainSubstring(why)))
		},
		Entry("a setting after an escaped backslash", dropin("kubelet.service", "[Service]\nEnvironment=A=b\\\\\nExecStart=/bin/true\n"), "systemd.units[0].dropins[0].contents", "ExecStart would start the kubelet without the flags"),
		Entry("a setting after a backslash and a blank", dropin("kubelet.service", "[Service]\nEnvironment=A=b\\ \nExecStart=/bin/true\n"), "systemd.units[0].dropins[0].contents", "ExecStart would start the kubelet without the flags"),
		Entry("a setting after a continued line that is empty", dropin("kubelet.service", "[Service]\nEnvironment=A=b\\\n\nExecStart=/bin/true\n"), "systemd.units[0].dropins[0].contents", "ExecStart would start the kubelet without the flags"),
		Entry("tmpfiles with a question mark", fileWith(tmpfiles, "# a\nw /etc/poolboo?/kubelet.env - - - - A=b"), "storage.files[0].contents", "/etc/tmpfiles.d/a.conf line 2: /etc/poolboo?/kubelet.env can match /etc/poolboot"),
		Entry("tmpfiles with a star", fileWith(tmpfiles, "r /etc/*/kubelet.env"), "storage.files[0].contents", "line 1: /etc/*/kubelet.env can match"),
		Entry("tmpfiles with braces that contain slashes", fileWith(tmpfiles, "r /etc/{a,poolboot/kubelet.env}"), "storage.files[0].contents", "can match"),
		Entry("tmpfiles with a bracket", fileWith(tmpfiles, "r /etc/[p]oolboot/kubelet.env"), "storage.files[0].contents", "can match"),
		Entry("tmpfiles with .. in a pattern", fileWith(tmpfiles, "r /var/cache/*/../../../etc/hostname"), "storage.files[0].contents", "a pattern with .."),
		Entry("tmpfiles with ..", fileWith(tmpfiles, "r /opt/../etc/poolboot/kubelet.env"), "storage.files[0].contents", "/etc/poolboot/kubelet.env is reserved for Poolboot"),
		Entry("tmpfiles with an escape", fileWith(tmpfiles, `r /etc/poolb\x6fot/kubelet.env`), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("tmpfiles with an octal escape", fileWith(tmpfiles, `r "/etc/poolb\157ot/kubelet.env"`), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("tmpfiles with quotes inside a word", fileWith(tmpfiles, `r /etc/pool"boot"/kubelet.env`), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("tmpfiles with a quote that is not closed", fileWith(tmpfiles, `r "/etc/poolboot/kubelet.env`), "storage.files[0].contents", "a quote is not closed"),
		Entry("tmpfiles with a specifier", fileWith(tmpfiles, "r %t/cluster-api/bootstrap-success.complete"), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("tmpfiles with an unknown specifier", fileWith(tmpfiles, "r /etc/%m/kubelet.env"), "storage.files[0].contents", "can match"),
		Entry("tmpfiles with a modifier", fileWith(tmpfiles, "r! /etc/poolboot/kubelet.env"), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("tmpfiles with base64", fileWith(tmpfiles, "f~ /etc/default/kubelet - - - - QT0tLW5vZGUtbGFiZWxzPWE9Yg=="), "storage.files[0].contents", "--node-labels"),
		Entry("tmpfiles with a credential", fileWith(tmpfiles, "f^ /etc/default/kubelet - - - - mine"), "storage.files[0].contents", "can't be checked"),
		Entry("tmpfiles that removes the parent directory", fileWith(tmpfiles, "R /etc/poolboot"), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("tmpfiles that removes a directory further above", fileWith(tmpfiles, "R /etc"), "storage.files[0].contents", "a line of type R would change all of its contents"),
		Entry("tmpfiles that cleans up a parent directory", fileWith(tmpfiles, "d /etc/kubernetes 0755 root root 0"), "storage.files[0].contents", "a line of type d would change"),
		Entry("tmpfiles that empties a parent directory", fileWith(tmpfiles, "D /etc/kubernetes"), "storage.files[0].contents", "a line of type D would change"),
		Entry("tmpfiles that copies over a parent directory", fileWith(tmpfiles, "C+ /etc - - - - /opt/etc"), "storage.files[0].contents", "a line of type C would change"),
		Entry("tmpfiles that creates a unit", fileWith(tmpfiles, "f /run/systemd/system/a.service - - - - x"), "storage.files[0].contents", "read by systemd"),
		Entry("tmpfiles that creates a generator", fileWith(tmpfiles, "C /run/systemd/system-generators/a - - - - /opt/a"), "storage.files[0].contents", "read by systemd"),
		Entry("tmpfiles that creates fstab", fileWith(tmpfiles, "f+ /etc/fstab - - - - x"), "storage.files[0].contents", "read by systemd"),
		Entry("tmpfiles through the root of a process", fileWith(tmpfiles, "w /proc/1/root/etc/poolboot/kubelet.env - - - - x"), "storage.files[0].contents", "not a regular path"),
		Entry("tmpfiles through OSTree", fileWith(tmpfiles, "r /sysroot/ostree/deploy/a/etc/poolboot/kubelet.env"), "storage.files[0].contents", "not a regular path"),
		Entry("tmpfiles through a link", linkAnd("/opt/l", "/etc/poolboot", tmpfiles, "w /opt/l/kubelet.env - - - - A=b"), "storage.files[0].contents", "/opt/l/kubelet.env, which leads to /etc/poolboot/kubelet.env, is reserved for Poolboot"),
		Entry("tmpfiles through a relative link", linkAnd("/opt/a/l", "../../etc", tmpfiles, "w /opt/a/l/poolboot/kubelet.env - - - - A=b"), "storage.files[0].contents", "leads to /etc/poolboot/kubelet.env"),
		Entry("tmpfiles through a link, and back", linkAnd("/opt/l", "/etc/kubernetes/pki", tmpfiles, "r /opt/l/../../hostname"), "storage.files[0].contents", "leads to /etc/hostname"),
		Entry("tmpfiles to a link itself", linkAnd("/opt/name", "/etc/hostname", tmpfiles, "w /opt/name - - - - a"), "storage.files[0].contents", "leads to /etc/hostname"),
		Entry("tmpfiles with a pattern over a link", linkAnd("/opt/data/l", "/etc/poolboot", tmpfiles, "w /opt/data/*/kubelet.env - - - - a"), "storage.files[0].contents", "can match /opt/data/l"),
		Entry("tmpfiles through a link to itself", linkAnd("/opt/l", "/opt/l", tmpfiles, "w /opt/l/a - - - - a"), "storage.files[0].contents", "is a loop of links"),
		Entry("tmpfiles through a link that it creates", fileWith(tmpfiles, "L /opt/l - - - - /etc/poolboot\nw /opt/l/kubelet.env - - - - A=b"), "storage.files[0].contents", "line 2: /opt/l/kubelet.env, which leads to /etc/poolboot/kubelet.env"),
		Entry("tmpfiles through a bind mount", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/tmpfiles.d/a.conf","contents":{"source":"data:,r%20/mnt/k/kubelet.env"}}]},
			"systemd":{"units":[{"name":"mnt-k.mount","contents":"[Mount]\nWhat=/etc/poolboot\nWhere=/mnt/k\nType=none\nOptions=bind"}]}}`, "storage.files[0].contents", "leads to /etc/poolboot/kubelet.env"),
		Entry("tmpfiles through a bind mount that a drop-in defines", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/tmpfiles.d/a.conf","contents":{"source":"data:,r%20/mnt/k/kubelet.env"}}]},
			"systemd":{"units":[{"name":"mnt-k.mount","contents":"[Mount]\nWhat=/opt/a\nOptions=bind","dropins":[{"name":"a.conf","contents":"[Mount]\nWhat=/etc/poolboot"}]}]}}`, "storage.files[0].contents", "leads to /etc/poolboot/kubelet.env"),
		Entry("tmpfiles that removes the kubelet from a target", fileWith(tmpfiles, "r /etc/systemd/system/multi-user.target.wants/kubelet.service"), "storage.files[0].contents", "is reserved for Poolboot"),

		Entry("fstab with an escape", fileWith("/etc/fstab", `tmpfs /etc/p\157olboot tmpfs`), "storage.files[0].contents", "/etc/fstab line 1: a mount at /etc/poolboot"),
		Entry("fstab through a link", linkAnd("/opt/l", "/etc", "/etc/fstab", "tmpfs /opt/l/poolboot tmpfs"), "storage.files[0].contents", "/opt/l/poolboot, which leads to /etc/poolboot"),
		Entry("fstab over the kubelet's drop-ins", fileWith("/etc/fstab", "/opt/a /etc/systemd/system/kubelet.service.d none bind"), "storage.files[0].contents", "would hide"),
		Entry("fstab over the image's units", fileWith("/etc/fstab", "/opt/a /usr/lib/systemd none bind"), "storage.files[0].contents", "would hide"),
		Entry("a mount through a link", linkAndUnit("/opt/l", "/etc", "opt-l-poolboot.mount", "[Mount]\nWhat=tmpfs"), "systemd.units[0].name", "would hide"),
		Entry("an automount with an escape", unitWith(`etc-poo\x6cboot.automount`, "[Automount]"), "systemd.units[0].name", "would hide"),
		Entry("a mount over a drop-in of a kubelet configuration", unitWith("etc-kubernetes-kubelet.conf.d-a.mount", "[Mount]\nWhat=/opt/a"), "systemd.units[0].name", "would hide"),
		Entry("a file system through a link", `{"ignition":{"version":"3.5.0"},"storage":{"links":[{"path":"/opt/l","target":"/etc/kubernetes"}],
			"filesystems":[{"device":"/dev/a","format":"xfs","path":"/opt/l/pki"}]}}`, "storage.filesystems[0].path", "would hide"),

		Entry("a variable that is unset with an escape", dropin("kubelet.service", `[Service]`+"\n"+`UnsetEnvironment=KUBELET\x5fKUBEADM_ARGS`), "systemd.units[0].dropins[0].contents", "would disable"),
		Entry("a variable that is unset in quotes", dropin("kubelet.service", `[Service]`+"\n"+`UnsetEnvironment="POOLBOOT_KUBELET_""ARGS"`), "systemd.units[0].dropins[0].contents", "would disable"),
		Entry("a variable that is unset with a specifier", dropin("kubelet.service", "[Service]\nUnsetEnvironment=KUBELET_%i"), "systemd.units[0].dropins[0].contents", "would disable"),
		Entry("an environment file through a link", strings.Replace(linkAndUnit("/etc/motd.d", "/opt/a", "kubelet.service", ""), `"contents":""`,
			`"dropins":[{"name":"a.conf","contents":"[Service]\nEnvironmentFile=/etc/motd.d/b"}]`, 1), "systemd.units[0].dropins[0].contents", "is not checked"),
		Entry("an environment file with a specifier", dropin("kubelet.service", "[Service]\nEnvironmentFile=/etc/default/%j"), "systemd.units[0].dropins[0].contents", "is not checked"),
		Entry("paths that the kubelet can't see", dropin("kubelet.service", "[Service]\nInaccessiblePaths=/etc/poolboot"), "systemd.units[0].dropins[0].contents", "InaccessiblePaths is not an allowed setting"),
		Entry("paths that no service can see", fileWith("/etc/systemd/system/service.d/a.conf", "[Service]\nInaccessiblePaths=-/etc/poolboot"), "storage.files[0].contents", "InaccessiblePaths is not an allowed setting"),
		Entry("an unknown setting", dropin("kubelet.service", "[Service]\nReplaceFiles=/etc/poolboot"), "systemd.units[0].dropins[0].contents", "ReplaceFiles is not an allowed setting"),
		Entry("a condition of every service, which applies to Poolboot's check too", fileWith("/etc/systemd/system/service.d/a.conf", "[Unit]\nConditionPathExists=/a"), "storage.files[0].contents", "ConditionPathExists is not an allowed setting"),
		Entry("a condition of every path unit", fileWith("/etc/systemd/system/path.d/a.conf", "[Unit]\nConditionPathExists=/a"), "storage.files[0].contents", "ConditionPathExists is not an allowed setting"),
		Entry("Poolboot's drop-in", unit(`{"name":"kubelet.service","dropins":[{"name":"10-poolboot.conf","contents":"[Unit]"}]}`), "systemd.units[0].dropins[0].name", "use another name"),
		Entry("Poolboot's drop-in with precedence over /etc", fileWith("/etc/systemd/system.control/kubelet.service.d/10-poolboot.conf", "[Unit]"), "storage.files[0].contents", "use another name"),
		Entry("a drop-in of all of Poolboot's units", fileWith("/etc/systemd/system/poolboot-.service.d/a.conf", "[Unit]"), "storage.files[0].contents", "reserved for Poolboot"),

		Entry("a unit that conflicts with the kubelet", unitWith("a.service", "[Unit]\nConflicts=kubelet.service"), "systemd.units[0].contents", "Conflicts would stop kubelet.service"),
		Entry("a target that conflicts with the kubelet", dropin("multi-user.target", "[Unit]\nConflicts=a.service \"kubelet.service\""), "systemd.units[0].dropins[0].contents", "Conflicts would stop kubelet.service"),
		Entry("a unit that conflicts with one of Poolboot's", unitWith("a.service", "[Unit]\nConflicts=poolboot-check.service"), "systemd.units[0].contents", "Conflicts would stop poolboot-check.service"),
		Entry("a unit that conflicts with the kubelet by a specifier", unitWith("a@.service", "[Unit]\nConflicts=%i.service"), "systemd.units[0].contents", "Conflicts would stop kubelet.service"),
		Entry("a unit whose stop also stops the kubelet", unitWith("a.service", "[Unit]\nPropagatesStopTo=kubelet.service"), "systemd.units[0].contents", "would stop kubelet.service"),
		Entry("output to one of Poolboot's files", unitWith("a.service", "[Service]\nExecStart=/bin/echo a\nStandardOutput=truncate:/etc/poolboot/kubelet.env"), "systemd.units[0].contents", "StandardOutput would write to"),
		Entry("links that a socket creates", unitWith("a.socket", "[Socket]\nSymlinks=/a /etc/hostname"), "systemd.units[0].contents", "Symlinks would write to /etc/hostname"),
		Entry("a link that disables the kubelet", link("/etc/systemd/system/multi-user.target.wants/kubelet.service", "/dev/null"), "storage.links[0].path", "does not join"),
		Entry("a link that starts another unit", link("/etc/systemd/system/multi-user.target.requires/poolboot-join.service", "../a.service"), "storage.links[0].path", "does not join"),
		Entry("a file in place of such a link", fileWith("/etc/systemd/system/multi-user.target.wants/kubelet.service", ""), "storage.files[0].path", "must be a link"),
		Entry("a link in place of a directory of such links", link("/etc/systemd/system/multi-user.target.wants", "/dev/null"), "storage.links[0].path", "must be a directory"),
		Entry("a preset with a bracket", fileWith("/etc/systemd/system-preset/00-a.preset", "disable [!a]ubelet.service"), "storage.files[0].contents", "never joins"),

		Entry("a container with the kubelet's name", fileWith("/etc/containers/systemd/kubelet.container", "[Container]\nImage=a"), "storage.files[0].contents", "kubelet.service is reserved for Poolboot"),
		Entry("a container that becomes the kubelet's unit", fileWith("/etc/containers/systemd/a/b.container", "[Container]\nServiceName=kubelet"), "storage.files[0].contents", "the name kubelet.service is reserved for Poolboot"),
		Entry("a container with the name of Poolboot's unit", fileWith("/etc/containers/systemd/poolboot-check.kube", "[Kube]"), "storage.files[0].contents", "is reserved for Poolboot"),
		Entry("a container that stops the kubelet", fileWith("/etc/containers/systemd/a.container", "[Unit]\nConflicts=kubelet.service"), "storage.files[0].contents", "would stop"),
		Entry("a container with remote contents", remote("/etc/containers/systemd/a.container"), "storage.files[0].contents", "write them into the document"),

		Entry("a credential with lines of tmpfiles", fileWith("/etc/credstore/tmpfiles.extra", "r /etc/poolboot/kubelet.env"), "storage.files[0].path", "use a name without a dot"),
		Entry("an encrypted credential", fileWith("/etc/credstore.encrypted/fstab.extra", "x"), "storage.files[0].path", "without a dot"),
		Entry("a credential that is a link", link("/etc/credstore/tmpfiles.extra", "/opt/a"), "storage.links[0].path", "without a dot"),
		Entry("a credential in one of systemd's units", dropin("systemd-tmpfiles-setup.service", "[Service]\nSetCredential=tmpfiles.extra:r /etc/poolboot/kubelet.env"), "systemd.units[0].dropins[0].contents", "SetCredential=tmpfiles.extra"),
		Entry("an extension of /etc", fileWith("/var/lib/confexts/a/etc/poolboot/kubelet.env", "x"), "storage.files[0].path", "merged over /etc"),
		Entry("an image of an extension of /etc", remote("/var/lib/confexts/a.raw"), "storage.files[0].path", "merged over /etc"),
		Entry("a unit in a system extension", fileWith("/var/lib/extensions/a/usr/lib/systemd/system/kubelet.service.d/a.conf", "[Service]\nExecStart=/a"), "storage.files[0].contents", "ExecStart would start the kubelet without the flags"),
		Entry("kernel arguments of the boot loader", fileWith("/boot/loader/entries/a.conf", "options quiet"), "storage.files[0].path", "use kernelArguments"),
		Entry("a file through OSTree", fileWith("/sysroot/etc/poolboot/kubelet.env", "x"), "storage.files[0].path", "not a regular path"),

		Entry("a kernel argument that mounts", argument("systemd.mount-extra=/opt/a:/etc/poolboot:none:bind"), "kernelArguments.shouldExist[0]", "systemd.mount-extra"),
		Entry("a kernel argument that mounts, in systemd's other spelling", argument("systemd.mount_extra=/opt/a:/etc/poolboot:none:bind"), "kernelArguments.shouldExist[0]", "systemd.mount_extra"),
		Entry("a kernel argument that discards /etc", argument("systemd.volatile=yes"), "kernelArguments.shouldExist[0]", "systemd.volatile"),
		Entry("an unknown kernel argument for systemd", argument("systemd.replace=a"), "kernelArguments.shouldExist[0]", "systemd.replace"),
		Entry("a kernel argument for the initrd", argument("rd.systemd.unit=a.target"), "kernelArguments.shouldExist[0]", "rd.systemd.unit"),
		Entry("a kernel argument that sets systemd's environment", argument("SYSTEMD_UNIT_PATH=/opt/units:"), "kernelArguments.shouldExist[0]", "SYSTEMD_UNIT_PATH"),
		Entry("a kernel argument with a second line, which could be one of the boot loader", argument("a\ninitrd /b"), "kernelArguments.shouldExist[0]", `"a\ninitrd /b" has the end of a line`),
		Entry("a setting for systemd's environment", fileWith("/etc/systemd/system.conf.d/a.conf", "[Manager]\nManagerEnvironment=SYSTEMD_UNIT_PATH=/opt/units:"), "storage.files[0].contents", "ManagerEnvironment"),
		Entry("systemd's configuration as a link", link("/etc/systemd/system.conf", "/opt/a"), "storage.links[0].path", "use a file"),
		Entry("a kernel argument that boots into another target", argument("emergency"), "kernelArguments.shouldExist[0]", "emergency"),
	)

	DescribeTable("accepts",
		func(document string) { Expect(ignition.Guard(parse(document))).To(Succeed()) },
		Entry("tmpfiles of all kinds", fileWith(tmpfiles, strings.Join([]string{
			"# comment", "d /var/lib/mine 0755 root root 10d", "D! /tmp/.X[0-9]*-lock", "R! /var/tmp/systemd-private-*", "L+ /etc/localtime - - - - ../usr/share/zoneinfo/UTC",
			"w /sys_not/a - - - - it's", "d /etc/kubernetes 0755", "d /run/mine", "f /run/mine/%b - - - - %m", "r /var/lib/doc*", "z /etc/kubernetes 0755", "x /etc/*",
			"a+ /var/log/journal - - - - d:group:wheel:r-x", "C /var/lib/a/x.conf - - - - /usr/share/a.conf", `f "/var/lib/a b" - - - - a`, "v /var/lib/portables 0700",
			"w~ /var/lib/mine/a - - - - YQ==", "q /var 0755"}, "\n"))),
		Entry("fstab for data", fileWith("/etc/fstab", "# data\nUUID=1 / xfs defaults 0 0\nUUID=2 /var/lib/containers xfs defaults\nUUID=3 none swap sw\n/dev/a /var/lib/kubelet ext4\n/var/data /mnt/data none bind\nLABEL=a /mnt/with\\040space ext4 defaults\n")),
		Entry("mounts for data", unit(`{"name":"var-lib-containers.mount","contents":"[Mount]\nWhat=/dev/a"},{"name":"var-lib-kubelet.mount","contents":"[Mount]\nWhat=/dev/b"},
			{"name":"var-lib-etcd.mount","contents":"[Mount]\nWhat=/dev/c"},{"name":"mnt-my\\x2ddata.automount","contents":"[Automount]"},{"name":"usr-local.mount","contents":"[Mount]\nWhat=/dev/d"}`)),
		Entry("a link to a directory that is not only Poolboot's, and another file in it", linkAnd("/opt/k8s", "/etc/kubernetes", tmpfiles, "d /opt/k8s/mine")),
		Entry("a link for users to the kubelet's kubeconfig", link("/root/kubeconfig", "/etc/kubernetes/kubelet.conf")),
		Entry("drop-ins of the kubelet, as in OpenShift", unit(`{"name":"kubelet.service","dropins":[
			{"name":"10-mco-default-env.conf","contents":"[Service]\nEnvironmentFile=/etc/mco/proxy.env\n"},
			{"name":"10-mco-default-madv.conf","contents":"[Service]\nEnvironment=\"GODEBUG=x509ignoreCN=0,madvdontneed=1\"\n"},
			{"name":"20-logging.conf","contents":"[Service]\nEnvironment=\"KUBELET_LOG_LEVEL=2\"\n"},
			{"name":"20-nodenet.conf","contents":"[Service]\nEnvironment=\"KUBELET_NODE_IP=192.0.2.1\"\n"},
			{"name":"30-limits.conf","contents":"[Unit]\nAfter=mine.service\nRequires=mine.service\n[Service]\nLimitNOFILE=1048576\nCPUAffinity=0-3\nSlice=kube.slice\nOOMScoreAdjust=-999\nRestartSec=5\nTimeoutStartSec=300\nMemoryMin=1G\nExecStartPre=/bin/sleep 1\n[Install]\nWantedBy=kubernetes.target"}]}`)),
		Entry("a drop-in of every service", fileWith("/etc/systemd/system/service.d/10-timeout.conf", "[Service]\nTimeoutStopSec=45\nEnvironment=TZ=UTC")),
		Entry("units that wait for the kubelet, and conflict with others", unit(`{"name":"a.service","contents":"[Unit]\nAfter=kubelet.service poolboot-joined.service\nConflicts=shutdown.target b@%i.service\n[Service]\nExecStart=/bin/a\nStandardOutput=append:/var/log/a.log\nLoadCredential=a.b\n"}`)),
		Entry("a user's own container", fileWith("/etc/containers/systemd/mine.container", "[Container]\nImage=a\nContainerName=kubelet-mine\n[Service]\nRestart=always\n[Install]\nWantedBy=multi-user.target")),
		Entry("a user's own credential", fileWith("/etc/credstore/mine", "a")),
		Entry("a system extension", storage("files", `{"path":"/var/lib/extensions/kubernetes.raw","contents":{"source":"https://a"}}`)),
		Entry("a link for a system extension", link("/etc/extensions/kubernetes.raw", "/opt/extensions/kubernetes.raw")),
		Entry("kernel arguments for systemd", argument("systemd.unified_cgroup_hierarchy=0 rd.systemd.show_status=1 systemd.log_level=debug systemd.journald.forward_to_console=1 rd.luks.options=discard")),
		Entry("udev rules, modules, sysctl, limits and users", storage("files", `{"path":"/etc/udev/rules.d/99-a.rules","contents":{"source":"data:,ACTION==%22add%22,RUN%2B=%22/bin/a%22"}},
			{"path":"/etc/sysctl.d/a.conf","contents":{"source":"data:,vm.max_map_count=1"}},{"path":"/etc/modules-load.d/a.conf","contents":{"source":"data:,sctp"}},
			{"path":"/etc/sysusers.d/a.conf","contents":{"source":"data:,u%20a"}},{"path":"/etc/systemd/system.conf.d/a.conf","contents":{"source":"data:,%5BManager%5D%0ADefaultLimitNOFILE=1"}}`)),
	)
})
