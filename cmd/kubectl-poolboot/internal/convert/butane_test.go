package convert

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert --butane", func() {
	const whole = `variant: openshift
version: 4.20.0
metadata:
  name: 50-a
  labels: {machineconfiguration.openshift.io/role: worker}
openshift:
  kernel_arguments: [nosmt]
  extensions: [usbguard]
  fips: true
  kernel_type: realtime
storage:
  files:
  - path: /etc/motd
    mode: 0644
    contents: {inline: hi}
`
	convert := func(text string, args ...string) clitest.Result {
		return runPoolboot(append([]string{"convert", "--butane", clitest.WriteFile("a.bu", text)}, args...)...)
	}

	It("converts the variant of OpenShift to a whole MachineConfig", func() {
		Expect(clitest.ExpectSuccess(convert(whole, "-n", "edge"))).To(Equal(`apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata:
  labels:
    machineconfiguration.openshift.io/role: worker
  name: 50-a
  namespace: edge
spec:
  config:
    ignition:
      version: 3.5.0
    storage:
      files:
      - contents:
          compression: ""
          source: data:,hi
        mode: 420
        path: /etc/motd
  extensions:
  - usbguard
  fips: true
  kernelArguments:
  - nosmt
  kernelType: realtime
`))
	})

	DescribeTable("names what is wrong with a MachineConfig, and its line",
		func(old, new, why string) {
			clitest.ExpectError(convert(strings.Replace(whole, old, new, 1)), 1, "a.bu: "+why)
		},
		Entry("what Poolboot reserves", "/etc/motd", "/etc/hostname", `line 13: storage.files[0].path: /etc/hostname is reserved`),
		Entry("what the schema refuses", "[nosmt]", `[""]`, "line 7: openshift.kernel_arguments[0]: must not be empty: set it, or remove it"),
		Entry("an unknown key", "fips: true", "fipz: true", "line 9: openshift.fipz: unused key"),
		Entry("a version that Butane does not know", "4.20.0", "9.0.0", "line 2: version: openshift has no version 9.0.0: set 4.8.0 to 4."),
	)

	It("refuses in a MachineConfig for the control plane what its pool can't have", func() {
		forMaster := strings.Replace(whole, "role: worker", "role: master", 1)
		Expect(clitest.ExpectSuccess(convert(forMaster))).To(ContainSubstring("role: master"))
		clitest.ExpectError(convert(strings.Replace(forMaster, "/etc/motd", "/var/lib/etcd/a", 1)), 1, "a.bu: line 13: storage.files[0].path: /var/lib/etcd/a is reserved for the control plane")
		Expect(clitest.ExpectSuccess(convert(strings.Replace(whole, "/etc/motd", "/var/lib/etcd/a", 1)))).NotTo(BeEmpty())
	})

	It("warns of what Poolboot refuses in a MachineConfig, and of a mode that was meant otherwise", func() {
		r := convert("variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/hostname\n    mode: 0420\n")
		Expect(r.Code).To(BeZero())
		Expect(r.Out).To(ContainSubstring("/etc/hostname"))
		Expect(r.ErrOut).To(MatchRegexp(`^warning: \S*a.bu: line 6: storage.files\[0\].mode: 272 is 0420, .*\nwarning: \S*a.bu: line 5: storage.files\[0\].path: Poolboot refuses it in a MachineConfig: /etc/hostname is reserved`))
	})

	It("gives Ignition no namespace", func() {
		clitest.ExpectError(convert("variant: fcos\nversion: 1.5.0\n", "-n", "edge"), 1, "leave out --namespace")
	})

	Describe("with local files", func() {
		var folder, outside string
		BeforeEach(func() {
			outside = clitest.WriteFile("secret", "secret")
			folder = GinkgoT().TempDir()
			clitest.WriteFileIn(folder, "motd", "welcome")
			clitest.WriteFileIn(folder, "tree/etc/a", "a")
			clitest.WriteFileIn(folder, "key.pub", "ssh-ed25519 AAAA\n")
			clitest.WriteFileIn(folder, "a.service", "[Service]\nExecStart=/bin/true\n")
			Expect(os.Symlink("motd", filepath.Join(folder, "inside"))).To(Succeed())
			Expect(os.Symlink(outside, filepath.Join(folder, "outside"))).To(Succeed())
			Expect(os.Symlink(outside, filepath.Join(folder, "5"))).To(Succeed())
			Expect(os.Symlink(filepath.Dir(outside), filepath.Join(folder, "up"))).To(Succeed())
			Expect(os.Symlink(outside, filepath.Join(folder, "tree/etc/link"))).To(Succeed())
			Expect(os.Truncate(clitest.WriteFileIn(folder, "large", ""), 2<<20)).To(Succeed())
		})
		local := func(path string) string {
			return "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/motd\n    contents: {local: " + path + "}\n"
		}

		It("embeds them, and writes the links of a tree as links", func() {
			text := local("inside") + "  trees: [{local: tree}]\nsystemd: {units: [{name: a.service, contents_local: a.service}]}\npasswd: {users: [{name: core, ssh_authorized_keys_local: [key.pub]}]}\n"
			out := clitest.ExpectSuccess(convert(text, "--files-dir", folder))
			Expect(out).To(And(ContainSubstring("data:,welcome"), ContainSubstring("data:,a"), ContainSubstring("ssh-ed25519 AAAA"), ContainSubstring("ExecStart"),
				ContainSubstring(`"target":"`+outside+`"`), Not(ContainSubstring("data:,secret"))))
		})

		It("refuses them without a folder", func() {
			clitest.ExpectError(convert(local("motd")), 1, "a.bu: line 6: storage.files[0].contents.local: local files are not available here", "--files-dir")
		})

		DescribeTable("refuses what is not below the folder, and what it could not embed",
			func(path, why string) {
				r := convert(local(path), "--files-dir", folder)
				clitest.ExpectError(r, 1, why)
				Expect(r.Out).To(BeEmpty())
			},
			Entry("a path that leads out", "../../../../../../../../etc/passwd", "is not below --files-dir"),
			Entry("a link that leads out", "outside", "is not below --files-dir"),
			Entry("a folder that leads out", "up/secret", "is not below --files-dir"),
			Entry("an alias in YAML", "&a outside}\n  - path: /etc/b\n    contents: {local: *a", "is not below --files-dir"),
			Entry("beside a key that is no text", "outside, 1: a", "is not below --files-dir"),
			Entry("a number, which Butane reads as a name", "5", "must be a string: quote it"),
			Entry("a truth value", "true", "must be a string: quote it"),
			Entry("a date", "2026-01-01", "must be a string: quote it"),
			Entry("a number with a fraction", "1.5", "must be a string: quote it"),
			Entry("a number as a key", "motd}\npasswd: {users: [{name: core, ssh_authorized_keys_local: [5]}]", "must be a string: quote it"),
			Entry("a file that does not exist", "nowhere", "no such file"),
			Entry("more than a pool can render", "large", "more than 1468006 bytes"),
		)

		It("refuses an empty path, with which a unit would silently have no contents", func() {
			for _, text := range []string{local(`""`), "variant: fcos\nversion: 1.5.0\nsystemd: {units: [{name: a.service, contents_local: \"\"}]}\n"} {
				clitest.ExpectError(convert(text, "--files-dir", folder), 1, "the path of a local file is empty")
				clitest.ExpectError(convert(text), 1, "the path of a local file is empty")
			}
		})

		It("refuses a device, which could have no end", func() {
			clitest.ExpectError(convert(local("zero"), "--files-dir", "/dev"), 1, "is no regular file")
		})
	})
})
