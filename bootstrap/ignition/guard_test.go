package ignition_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// storage returns a document with one entry of storage.
func storage(list, entry string) string {
	return fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{%q:[%s]}}`, list, entry)
}

// fileWith returns a document with one file that has these contents.
func fileWith(path, contents string) string {
	return storage("files", fmt.Sprintf(`{"path":%q,"contents":{"source":%q}}`, path, dataurl.EncodeBytes([]byte(contents))))
}

// kubeletType is at the start of a kubelet configuration.
const kubeletType = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// unit returns a document with one unit.
func unit(body string) string {
	return `{"ignition":{"version":"3.5.0"},"systemd":{"units":[` + body + `]}}`
}

// unitWith returns a document with a unit that has these contents.
func unitWith(name, contents string) string {
	return unit(fmt.Sprintf(`{"name":%q,"contents":%s}`, name, strconv.Quote(contents)))
}

// dropin returns a document with one drop-in.
func dropin(of, contents string) string {
	return unit(fmt.Sprintf(`{"name":%q,"dropins":[{"name":"10-mine.conf","contents":%s}]}`, of, strconv.Quote(contents)))
}

// zipped returns a data URL with a gzip file.
func zipped(contents string) string {
	var file bytes.Buffer
	writer := gzip.NewWriter(&file)
	_, _ = writer.Write([]byte(contents))
	_ = writer.Close()
	return dataurl.EncodeBytes(file.Bytes())
}

var _ = Describe("Guard", func() {
	DescribeTable("refuses entries that set a Node's name, labels, taints or credential",
		func(document, path, why string) {
			err := ignition.Guard(parse(document))
			var refused *ignition.GuardError
			Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
			Expect(refused.Entries).To(HaveLen(1))
			Expect(refused.Entries[0].Path).To(Equal(path))
			Expect(err).To(MatchError(ContainSubstring(why)))
		},
		Entry("a file with a NUL in its path", storage("files", `{"path":"/etc/a\u0000"}`), "storage.files[0].path", `"/etc/a\x00" contains a NUL`),
		Entry("a directory with a NUL in its path", storage("directories", `{"path":"/etc/a\u0000"}`), "storage.directories[0].path", "leave it out"),
		Entry("a link with a NUL in its path", storage("links", `{"path":"/etc/a\u0000","target":"/b"}`), "storage.links[0].path", "leave it out"),
		Entry("a link to a path with a NUL", storage("links", `{"path":"/etc/a","target":"/b\u0000"}`), "storage.links[0].target", "leave it out"),
		Entry("a file in /proc", fileWith("/proc/sys/kernel/mytest", "1"), "storage.files[0].path", "/proc/sys/kernel/mytest is in a file system of the kernel, which keeps no files: use /etc/sysctl.d"),
		Entry("a directory in /sys", storage("directories", `{"path":"/sys/fs/x"}`), "storage.directories[0].path", "which keeps no files"),
		Entry("a link in /dev", storage("links", `{"path":"/dev/x","target":"/dev/null"}`), "storage.links[0].path", "use /etc/sysctl.d, /etc/tmpfiles.d or /etc/udev/rules.d"),
		Entry("Poolboot's directory", fileWith("/etc/poolboot/kubelet.env", "A=b"), "storage.files[0].path", "/etc/poolboot/kubelet.env is reserved for Poolboot: leave it out"),
		Entry("the bootstrap kubeconfig", fileWith("/etc/kubernetes/bootstrap-kubelet.conf", ""), "storage.files[0].path", "leave it out"),
		Entry("the kubeconfig", fileWith("/etc/kubernetes/kubelet.conf", ""), "storage.files[0].path", "leave it out"),
		Entry("the cluster's CA", fileWith("/etc/kubernetes/pki/ca.crt", ""), "storage.files[0].path", "leave it out"),
		Entry("the kubelet's certificates", fileWith("/var/lib/kubelet/pki/kubelet.crt", ""), "storage.files[0].path", "leave it out"),
		Entry("kubeadm's join configuration", fileWith("/etc/kubernetes/poolboot-join.yaml", ""), "storage.files[0].path", "leave it out"),
		Entry("the kubelet's configuration", fileWith("/etc/kubernetes/kubelet.yaml", ""), "storage.files[0].path", "put a drop-in into /etc/kubernetes/kubelet.conf.d"),
		Entry("the drop-in with the worker pool's kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/97-poolboot-worker.conf", "maxPods: 5"), "storage.files[0].path", "set spec.kubelet.configuration of the MachineConfigPool"),
		Entry("the drop-in with a custom pool's kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf", "maxPods: 5"), "storage.files[0].path", "set spec.kubelet.configuration of the MachineConfigPool"),
		Entry("a link in place of that drop-in", storage("links", `{"path":"/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf","target":"/opt/1"}`), "storage.links[0].path", "set spec.kubelet.configuration of the MachineConfigPool"),
		Entry("the host's name", fileWith("/etc/hostname", "a"), "storage.files[0].path", "nodeName"),
		Entry("the sentinel", fileWith("/run/cluster-api/bootstrap-success.complete", ""), "storage.files[0].path", "leave it out"),
		Entry("the sentinel by its old path", fileWith("/var/run/cluster-api/bootstrap-success.complete", ""), "storage.files[0].path", "leave it out"),
		Entry("a directory at a reserved path", storage("directories", `{"path":"/etc/poolboot/mine"}`), "storage.directories[0].path", "reserved for Poolboot"),
		Entry("a link at a reserved path", storage("links", `{"path":"/etc/hostname","target":"/etc/name"}`), "storage.links[0].path", "reserved for Poolboot"),
		Entry("a link above a reserved path", storage("links", `{"path":"/etc/kubernetes","target":"/opt/k8s"}`), "storage.links[0].path", "must be a directory"),
		Entry("a file above a reserved path", fileWith("/etc/kubernetes/pki", ""), "storage.files[0].path", "must be a directory"),
		Entry("a link in place of the directory of kubelet configurations", storage("links", `{"path":"/etc/kubernetes/kubelet.conf.d","target":"/opt"}`), "storage.links[0].path", "must be a directory"),
		Entry("a link in place of the kubelet's unit", storage("links", `{"path":"/etc/systemd/system/kubelet.service","target":"/dev/null"}`), "storage.links[0].path", "can't be checked"),
		Entry("a link in place of the kubelet's drop-ins", storage("links", `{"path":"/etc/systemd/system/kubelet.service.d","target":"/opt"}`), "storage.links[0].path", "can't be checked"),

		Entry("the kubelet's unit", unit(`{"name":"kubelet.service","contents":"[Service]\nExecStart=/usr/bin/kubelet"}`), "systemd.units[0].contents", "use a drop-in without ExecStart"),
		Entry("the kubelet's unit as a file", fileWith("/etc/systemd/system/kubelet.service", "[Unit]"), "storage.files[0].contents", "use a drop-in without ExecStart"),
		Entry("the kubelet's unit, masked", unit(`{"name":"kubelet.service","mask":true}`), "systemd.units[0].mask", "never joins"),
		Entry("ExecStart in a drop-in of the kubelet", dropin("kubelet.service", "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet"), "systemd.units[0].dropins[0].contents", "drop-in 10-mine.conf of kubelet.service: ExecStart"),
		Entry("a kubelet in a mount namespace, with a file of its original command", dropin("kubelet.service", "[Service]\nEnvironmentFile=-/%t/%N-execstart.env\nExecStart=\nExecStart=/usr/local/bin/nsenterCmns ${ORIG_EXECSTART}"), "systemd.units[0].dropins[0].contents", "set spec.kubelet.wrapper of the MachineConfigPool"),
		Entry("a kubelet in a mount namespace", dropin("kubelet.service", "[Service]\nExecStart=\nExecStart=/usr/bin/nsenter --mount=/run/kubens/mnt $A"), "systemd.units[0].dropins[0].contents", "set spec.kubelet.wrapper of the MachineConfigPool"),
		Entry("the drop-in with the wrapper of the kubelet", fileWith("/etc/systemd/system/kubelet.service.d/20-poolboot-wrapper.conf", "[Service]"), "storage.files[0].contents", "would replace that of Poolboot with spec.kubelet.wrapper"),
		Entry("the kubelet's command, which a wrapper gets", dropin("kubelet.service", "[Service]\nEnvironment=POOLBOOT_KUBELET_COMMAND=/bin/true"), "systemd.units[0].dropins[0].contents", "POOLBOOT_KUBELET_COMMAND is reserved"),
		Entry("ExecStart in a drop-in of every service", fileWith("/etc/systemd/system/service.d/1.conf", "[Service]\nExecStart=/bin/true"), "storage.files[0].contents", "ExecStart"),
		Entry("ExecStart in a drop-in as a file", fileWith("/usr/lib/systemd/system/kubelet.service.d/1.conf", "[Service]\nExecStart=/bin/true"), "storage.files[0].contents", "ExecStart"),
		Entry("Poolboot's units", unit(`{"name":"poolboot-join.service","mask":true}`), "systemd.units[0].name", "poolboot-join.service is reserved for Poolboot: use a name"),
		Entry("Poolboot's units as a file", fileWith("/etc/systemd/system/poolboot-join.service", "[Unit]"), "storage.files[0].contents", "reserved for Poolboot"),
		Entry("a drop-in of Poolboot's units", fileWith("/etc/systemd/system/poolboot-join.service.d/1.conf", "[Unit]"), "storage.files[0].contents", "reserved for Poolboot"),

		Entry("--node-labels in a drop-in", dropin("kubelet.service", "[Service]\nEnvironment=\"A=--node-labels=a=b\""), "systemd.units[0].dropins[0].contents", "the kubelet flag --node-labels is reserved for Poolboot: set spec.node.labels"),
		Entry("--hostname-override in a unit", unit(`{"name":"a.service","contents":"[Service]\nExecStart=/usr/bin/kubelet \\\n  --hostname-override=a"}`), "systemd.units[0].contents", "--hostname-override"),
		Entry("--register-with-taints in an environment file", fileWith("/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--register-with-taints=a=b:NoSchedule"), "storage.files[0].contents", "--register-with-taints"),
		Entry("--provider_id, as the kubelet also takes it", fileWith("/etc/default/kubelet", "A=--provider_id=x"), "storage.files[0].contents", "--provider_id"),
		Entry("a flag in appended contents", storage("files", `{"path":"/etc/default/kubelet","append":[{"source":"data:,A=b"},{"source":"data:,A=--provider-id=x"}]}`), "storage.files[0].append[1]", "--provider-id"),
		Entry("a flag in a gzip file", storage("files", fmt.Sprintf(`{"path":"/opt/start","contents":{"compression":"gzip","source":%q}}`, zipped("exec kubelet --node-labels=a=b"))), "storage.files[0].contents", "--node-labels"),
		Entry("the variable with the kubelet's flags", fileWith("/opt/my.env", "POOLBOOT_KUBELET_ARGS="), "storage.files[0].contents", "use another"),

		Entry("taints in a kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "kind: KubeletConfiguration\nregisterWithTaints: []"), "storage.files[0].contents", "registerWithTaints is reserved for Poolboot"),
		Entry("the provider ID in a kubelet configuration in JSON", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", `{"providerID": "x"}`), "storage.files[0].contents", "providerID is reserved for Poolboot"),
		Entry("a kubelet configuration that is a list", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "[1]"), "storage.files[0].contents", "the file must be an object, not a list"),
		Entry("a kubelet configuration with a number that JSON does not have", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "a: .inf"), "storage.files[0].contents", "a number is not finite: correct it"),
		Entry("a kubelet configuration without a kind", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nmaxPods: 5"), "storage.files[0].contents",
			"/etc/kubernetes/kubelet.conf.d/1.conf: the file must have apiVersion: kubelet.config.k8s.io/v1beta1 and kind: KubeletConfiguration, or the kubelet would not start"),
		Entry("a kubelet configuration without an apiVersion", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "kind: KubeletConfiguration\nmaxPods: 5"), "storage.files[0].contents",
			"must have apiVersion"),
		Entry("a kubelet configuration with a kind in another case", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nKind: KubeletConfiguration"), "storage.files[0].contents", "must have apiVersion"),
		Entry("a kubelet configuration of another version", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration"), "storage.files[0].contents",
			"must have apiVersion"),
		Entry("an empty kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/a/1.conf", ""), "storage.files[0].contents", "must have apiVersion"),
		Entry("a malformed kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf", "a: [\n"), "storage.files[0].contents", "would not start"),

		Entry("a reference to a configuration to merge", `{"ignition":{"version":"3.5.0","config":{"merge":[{"source":"https://a"}]}}}`, "ignition.config.merge[0]", "copy its content into this one"),
		Entry("a reference to a configuration that replaces this one", `{"ignition":{"version":"3.5.0","config":{"replace":{"source":"https://a"}}}}`, "ignition.config.replace", "copy its content into this one"),
		Entry("remote contents in a drop-in", storage("files", `{"path":"/etc/systemd/system/kubelet.service.d/1.conf","contents":{"source":"https://a"}}`), "storage.files[0].contents", "write them into the document"),
		Entry("remote contents in a kubelet configuration", storage("files", `{"path":"/etc/kubernetes/kubelet.conf.d/1.conf","contents":{"source":"https://a"}}`), "storage.files[0].contents", "write them into the document"),
		Entry("a malformed gzip file", storage("files", `{"path":"/opt/a","contents":{"compression":"gzip","source":"data:,a"}}`), "storage.files[0].contents", "not a gzip file"),
	)

	DescribeTable("accepts entries that are not reserved",
		func(document string) { Expect(ignition.Guard(parse(document))).To(Succeed()) },
		Entry("nothing", `{"ignition":{"version":"3.5.0"}}`),
		Entry("the MachineConfig of the documentation", infratest),
		Entry("a file beside the reserved ones", fileWith("/etc/kubernetes/mine.conf", "a")),
		Entry("a name that only starts like a reserved one", fileWith("/etc/hostname.bak", "a")),
		Entry("directories above reserved files", storage("directories", `{"path":"/etc/kubernetes"},{"path":"/etc/kubernetes/kubelet.conf.d"}`)),
		Entry("a link at another path", storage("links", `{"path":"/etc/localtime","target":"/usr/share/zoneinfo/UTC"}`)),
		Entry("a link that enables the kubelet", storage("links", `{"path":"/etc/systemd/system/multi-user.target.wants/kubelet.service","target":"/usr/lib/systemd/system/kubelet.service"}`)),
		Entry("the kubelet enabled", unit(`{"name":"kubelet.service","enabled":true}`)),
		Entry("a drop-in of the kubelet without ExecStart", dropin("kubelet.service", "[Unit]\nAfter=mine.service\n[Service]\nEnvironment=GOMAXPROCS=4\nExecStartPre=/bin/true")),
		Entry("ExecStart in a drop-in of another unit", dropin("crio.service", "[Service]\nExecStart=\nExecStart=/usr/bin/crio")),
		Entry("a user's own unit", unit(`{"name":"mine.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target"}`)),
		Entry("a comment that names a flag", fileWith("/etc/sysconfig/kubelet", "# no --node-labels here\n\n ; nor --provider-id\nA=b\n")),
		Entry("a flag that only starts like a reserved one", fileWith("/etc/default/kubelet", "A=--node-status-update-frequency=5s --provider-idle")),
		Entry("a program that contains the flags", fileWith("/opt/bin/kubelet", "\x7fELF\x00--node-labels")),
		Entry("a kubelet configuration", fileWith("/etc/kubernetes/kubelet.conf.d/90-mine.conf", kubeletType+"maxPods: 500\n")),
		Entry("a kubelet configuration whose type is in another part than its settings", storage("files",
			fmt.Sprintf(`{"path":"/etc/kubernetes/kubelet.conf.d/1.conf","contents":{"source":%q},"append":[{"source":"data:,maxPods:%%205"}]}`, dataurl.EncodeBytes([]byte(kubeletType))))),
		Entry("settings that are appended to a kubelet configuration of the image", storage("files", `{"path":"/etc/kubernetes/kubelet.conf.d/1.conf","append":[{"source":"data:,maxPods:%205"}]}`)),
		Entry("a file that the kubelet does not read", fileWith("/etc/kubernetes/kubelet.conf.d/1.conf.bak", "maxPods: 5")),
		Entry("a large remote file", storage("files", `{"path":"/opt/model","contents":{"source":"https://a/model","verification":{"hash":"sha512-`+strings.Repeat("0", 128)+`"}}}`)),
		Entry("a file without contents", storage("files", `{"path":"/etc/motd","mode":420}`)),
	)

	It("names every entry", func() {
		err := ignition.Guard(parse(storage("files", `{"path":"/etc/hostname"},{"path":"/etc/motd"},{"path":"/etc/poolboot/a"}`)))
		Expect(err).To(MatchError(And(ContainSubstring("storage.files[0].path: /etc/hostname"), ContainSubstring("storage.files[2].path: /etc/poolboot/a"))))
	})

	It("does not unpack a gzip bomb", func() {
		bomb := zipped(strings.Repeat("\n", 65<<20))
		err := ignition.Guard(parse(storage("files", fmt.Sprintf(`{"path":"/opt/a","contents":{"compression":"gzip","source":%q}}`, bomb))))
		Expect(err).To(MatchError(ContainSubstring("too large")))
	})
})
