package ignition_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("Guard of a configuration for a control plane", func() {
	controlPlane := ignition.Scope{ControlPlane: true}

	// paths are what kubeadm and etcd have.
	paths := []string{
		"/etc/kubernetes/pki", "/etc/kubernetes/pki/apiserver.crt", "/etc/kubernetes/pki/etcd/ca.key", "/etc/kubernetes/manifests", "/etc/kubernetes/manifests/mine.yaml",
		"/var/lib/etcd", "/var/lib/etcd/member/snap/db", "/var/lib/kubelet/pki", "/var/lib/kubelet/pki/a.pem", "/etc/kubernetes/admin.conf", "/etc/kubernetes/super-admin.conf",
		"/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/scheduler.conf", "/etc/kubernetes/kubelet.conf",
	}

	refused := func(document, path, why string) {
		GinkgoHelper()
		err := controlPlane.Guard(parse(document))
		var guarded *ignition.GuardError
		Expect(errors.As(err, &guarded)).To(BeTrue(), "%s: %v", document, err)
		Expect(guarded.Entries).To(HaveLen(1), document)
		Expect(guarded.Entries[0].Path).To(Equal(path), document)
		Expect(guarded.Entries[0].Why).To(ContainSubstring(why), document)
	}

	It("refuses files, directories and links where kubeadm and etcd have theirs, and says what to do", func() {
		for _, path := range paths {
			const why = " is reserved for the control plane: kubeadm and etcd have it, and no update may touch it: leave it out, and use kubeadmConfigSpec of the KubeadmControlPlane"
			refused(fileWith(path, "a"), "storage.files[0].path", why)
			refused(storage("files", `{"path":"`+path+`","append":[{"source":"data:,a"}]}`), "storage.files[0].path", why)
			refused(storage("directories", `{"path":"`+path+`"}`), "storage.directories[0].path", why)
			refused(storage("links", `{"path":"`+path+`","target":"/opt/a"}`), "storage.links[0].path", why)
			refused(storage("links", `{"path":"/opt/a","hard":true,"target":"`+path+`"}`), "storage.links[0].target", why)
			refused(storage("filesystems", `{"device":"/dev/a","format":"xfs","path":"`+path+`"}`), "storage.filesystems[0].path", "would hide what is reserved for the control plane")
		}
	})

	It("refuses what would replace or hide a directory above them", func() {
		for _, path := range []string{"/etc", "/etc/kubernetes", "/var", "/var/lib"} {
			refused(fileWith(path, "a"), "storage.files[0].path", path+" must be a directory")
			refused(storage("links", `{"path":"`+path+`","target":"/opt/a"}`), "storage.links[0].path", path+" must be a directory")
			refused(storage("directories", `{"path":"`+path+`","overwrite":true}`), "storage.directories[0].overwrite", "would delete files")
			refused(storage("filesystems", `{"device":"/dev/a","format":"xfs","path":"`+path+`"}`), "storage.filesystems[0].path", "a mount at "+path+" would hide")
		}
		refused(storage("filesystems", `{"device":"/dev/a","format":"xfs","path":"/"}`), "storage.filesystems[0].path", "a mount at / would hide")
	})

	DescribeTable("refuses units that mount something at, above or below them", func(document, path, at string) {
		refused(document, path, "a mount at "+at+" would hide what is reserved for the control plane")
	},
		Entry("at", unitWith("var-lib-etcd.mount", "[Mount]"), "systemd.units[0].name", "/var/lib/etcd"),
		Entry("below", unitWith("var-lib-etcd-member.mount", "[Mount]"), "systemd.units[0].name", "/var/lib/etcd/member"),
		Entry("above", unitWith("var.mount", "[Mount]"), "systemd.units[0].name", "/var"),
		Entry("at /", unitWith("-.mount", "[Mount]"), "systemd.units[0].name", "/"),
		Entry("with an escaped name", unitWith(`etc-kubernetes-super\x2dadmin.conf.mount`, "[Mount]"), "systemd.units[0].name", "/etc/kubernetes/super-admin.conf"),
		Entry("an automount", unitWith("etc-kubernetes.automount", "[Automount]"), "systemd.units[0].name", "/etc/kubernetes"),
		Entry("a drop-in", dropin("var-lib-etcd.mount", "[Mount]"), "systemd.units[0].name", "/var/lib/etcd"),
		Entry("a file", fileWith("/etc/systemd/system/var-lib-etcd.mount", "[Mount]"), "storage.files[0].path", "/var/lib/etcd"),
		Entry("a drop-in as a file", fileWith("/etc/systemd/system/var-lib-etcd.mount.d/1.conf", "[Mount]"), "storage.files[0].path", "/var/lib/etcd"),
		Entry("a link", storage("links", `{"path":"/etc/systemd/system/var-lib-etcd.mount","target":"/opt/a"}`), "storage.links[0].path", "/var/lib/etcd"),
	)

	It("refuses a line of /etc/fstab that does, but for that of /", func() {
		refused(fileWith("/etc/fstab", "# /dev/a /var xfs\n/dev/a / xfs\n\n/dev/b\t/var/lib/etcd/ xfs defaults 0 0\n"), "storage.files[0].contents", "a mount at /var/lib/etcd would hide")
		Expect(controlPlane.Guard(parse(fileWith("/etc/fstab", "/dev/a / xfs\n/dev/b /var/log xfs\n")))).To(Succeed())
		Expect(ignition.Guard(parse(fileWith("/etc/fstab", "/dev/b /var/lib/etcd xfs\n")))).To(Succeed())
	})

	It("refuses a drop-in of the kubelet with other static Pods than those of the control plane", func() {
		for _, setting := range []string{"staticPodPath: /etc/other", `staticpodpath: ""`} {
			document := fileWith("/etc/kubernetes/kubelet.conf.d/99-a.conf", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"+setting+"\n")
			refused(document, "storage.files[0].contents", "the control plane runs in static Pods: remove static")
			Expect(ignition.Guard(parse(document))).To(Succeed())
		}
	})

	It("refuses SSH keys of a user whose home is there", func() {
		refused(`{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"etcd","homeDir":"/var/lib/etcd","sshAuthorizedKeys":["a"]}]}}`, "passwd.users[0].sshAuthorizedKeys", "use another user")
	})

	It("refuses what Guard refuses, and accepts everything else", func() {
		refused(fileWith("/etc/hostname", "a"), "storage.files[0].path", "/etc/hostname is reserved for Poolboot")
		for _, document := range []string{
			fileWith("/etc/kubernetes/audit.yaml", "a"), fileWith("/etc/kubernetes/manifests.d/a", "a"), fileWith("/var/lib/etcd-defrag/a", "a"), fileWith("/etc/kubernetes/admin.conf.d", "a"),
			storage("directories", `{"path":"/etc/kubernetes"},{"path":"/var/lib"}`), storage("links", `{"path":"/opt/ca.crt","target":"/etc/kubernetes/pki/ca.crt"}`),
			storage("filesystems", `{"device":"/dev/a","format":"xfs","path":"/var/log"}`), unitWith("var-log.mount", "[Mount]"), unitWith("etcd.service", "[Service]"),
			`{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"etcd","homeDir":"/var/lib/etcd"}]}}`,
		} {
			Expect(controlPlane.Guard(parse(document))).To(Succeed(), document)
		}
	})

	It("does not apply to other pools, whose hosts can have static Pods of their own", func() {
		for _, document := range []string{fileWith("/etc/kubernetes/manifests/mine.yaml", "a"), unitWith("var.mount", "[Mount]"), fileWith("/var/lib/etcd/a", "a")} {
			Expect(ignition.Guard(parse(document))).To(Succeed(), document)
		}
	})
})

var _ = DescribeTable("An entry changes a volume of a static Pod if it is", func(name, volume string, is bool) {
	if !is {
		Expect(ignition.VolumeAt(name, []string{"/unused", volume})).To(BeEmpty())
		return
	}
	Expect(ignition.VolumeAt(name, []string{"/unused", volume})).To(Equal(volume))
},
	Entry("at it", "/data/etcd", "/data/etcd", true),
	Entry("below it", "/data/etcd/member/snap/db", "/data/etcd", true),
	Entry("a file that a Pod mounts", "/etc/kubernetes/encryption.yaml", "/etc/kubernetes/encryption.yaml", true),
	Entry("a unit that mounts something at it", "/etc/systemd/system/data-etcd.mount", "/data/etcd", true),
	Entry("a unit that mounts something above it", "/etc/systemd/system/data.automount", "/data/etcd", true),
	Entry("a unit that mounts something below it", "/etc/systemd/system/data-etcd-member.mount", "/data/etcd", true),
	Entry("not beside it", "/data/etcd2/a", "/data/etcd", false),
	Entry("not above it", "/data", "/data/etcd", false),
	Entry("not a unit that mounts something beside it", "/etc/systemd/system/data-images.mount", "/data/etcd", false),
	Entry("not a CA that the operating system trusts", "/usr/local/share/ca-certificates/a.crt", "/usr/local/share/ca-certificates", false),
	Entry("not one in another distribution", "/etc/pki/ca-trust/source/anchors/a.pem", "/etc/pki/ca-trust", false),
	Entry("not its bundle", "/etc/ssl/certs/a.pem", "/etc/ssl/certs", false),
	Entry("not a file that many Pods mount", "/etc/hosts", "/etc/hosts", false),
	Entry("not in a directory that others write to, too", "/etc/motd", "/etc", false),
	Entry("not on a host of which a Pod mounts everything", "/etc/motd", "/", false),
)
