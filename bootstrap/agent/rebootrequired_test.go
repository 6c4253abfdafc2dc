package agent

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("A reboot that the operating system needs", func() {
	config := withFiles("/etc/none/f", "a")
	var w *world
	BeforeEach(func() { w = installed(config) })

	// reported returns what an agent reports that starts now.
	reported := func() string {
		GinkgoHelper()
		a, stop := w.begin()
		defer stop()
		a.Look(GinkgoT().Context())
		_, err := a.Step(GinkgoT().Context(), w.seen())
		Expect(err).NotTo(HaveOccurred())
		return w.node.Annotations[agentv1.RebootRequiredAnnotation]
	}
	boot := func() string { return fakeClock{w}.BootID() }
	need := func(packages string) {
		w.write("run/reboot-required", "*** System restart required ***\n")
		w.write("run/reboot-required.pkgs", packages)
	}

	It("is reported with the boot and its packages, each once, and not any more when it is over", func() {
		Expect(reported()).To(BeEmpty())
		need("linux-image-6.1.0-40-amd64\nlinux-base\nlinux-base\n")
		Expect(reported()).To(Equal(boot() + "\nlinux-image-6.1.0-40-amd64\nlinux-base"))
		Expect(os.Remove(filepath.Join(w.directory, "run/reboot-required"))).To(Succeed())
		Expect(reported()).To(BeEmpty())
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.RebootRequiredAnnotation))
	})

	It("is seen while the agent runs", func() {
		a, stop := w.begin()
		defer stop()
		Expect(a.Look(GinkgoT().Context())).To(BeTrue(), "its first look")
		need("")
		Expect(a.lookAtReboot()).To(BeTrue())
		Expect(a.lookAtReboot()).To(BeFalse())
	})

	It("is AtBoot if it was needed in the first minutes of the boot, also for an agent that starts later", func() {
		need("")
		w.uptime = time.Minute
		Expect(reported()).To(Equal(boot() + " AtBoot"))
		w.uptime = 5 * time.Hour
		Expect(reported()).To(Equal(boot() + " AtBoot"))
		w.boot()
		w.uptime = 5 * time.Hour
		Expect(reported()).To(Equal(boot()), "in another boot, what was reported before does not count")
	})

	DescribeTable("is reported with bounds whatever is in the files", func(prepare func(directory string)) {
		Expect(os.MkdirAll(filepath.Join(w.directory, "run"), 0o755)).To(Succeed())
		w.write("run/reboot-required", "")
		prepare(filepath.Join(w.directory, "run"))
		text := reported()
		Expect(text).To(HavePrefix(boot()))
		Expect(len(text)).To(BeNumerically("<=", agentv1.MaxReason))
		for _, name := range strings.Split(text, "\n")[1:] {
			Expect(name).To(MatchRegexp(`^[a-z0-9-]{1,128}$`))
		}
	},
		Entry("1 MB of lines", func(string) { w.write("run/reboot-required.pkgs", strings.Repeat("a-package-with-a-name\nb\n", 50000)) }),
		Entry("one line of 1 MB", func(string) { w.write("run/reboot-required.pkgs", strings.Repeat("a", 1<<20)) }),
		Entry("many long names", func(string) {
			for i := range 100 {
				w.write("run/reboot-required.pkgs", w.read("run/reboot-required.pkgs")+strings.Repeat("a", 20+i)+"\n")
			}
		}),
		Entry("what controls a terminal, or could be a command", func(string) {
			w.write("run/reboot-required.pkgs", "\x1b[2Jred\n$(reboot)\n--all\n../etc\nlinux\x00base\n\xff\xfe\n<b>bold</b>\n| a | b |\n")
		}),
		Entry("a pipe in place of the packages", func(directory string) {
			Expect(syscall.Mkfifo(filepath.Join(directory, "reboot-required.pkgs"), 0o644)).To(Succeed())
		}),
		Entry("a directory in place of the packages", func(directory string) {
			Expect(os.Mkdir(filepath.Join(directory, "reboot-required.pkgs"), 0o755)).To(Succeed())
		}),
	)

	Describe("that the manager has decided", func() {
		leave := func(boot string, changes ...func(*assignment.Assignment)) string {
			GinkgoHelper()
			return w.offer(w.assign("rendered-a", config, append(changes, func(a *assignment.Assignment) { a.RebootFrom = boot })...))
		}

		It("happens once, also if the host needs it again in the next boot", func() {
			need("linux-base\n")
			revision := leave(boot())
			Expect(w.run()).To(Succeed())
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + revision))
			Expect(w.calls).To(Equal([]string{"reboot"}))
			Expect(w.states).To(Equal([]string{"Draining", "Applying", "Rebooting", "Verifying", "Done"}))
			Expect(reported()).To(Equal(boot() + " AtBoot\nlinux-base"))
		})

		It("does nothing in another boot, such as after a reboot by somebody else", func() {
			revision := leave("boot-0")
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + revision))
			Expect(w.calls).To(BeEmpty())
		})

		It("is not needed any more if somebody else reboots the host while its Node is drained", func() {
			w.drains = false
			revision := leave(boot())
			Expect(w.run()).To(Succeed())
			Expect(w.states).To(Equal([]string{"Draining"}))
			w.boot()
			w.drains = true
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + revision))
			Expect(w.calls).To(BeEmpty())
		})

		It("stays without effect in later assignments and repairs", func() {
			from := boot()
			leave(from)
			Expect(w.run()).To(Succeed())
			w.calls = nil
			revision := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b"), func(a *assignment.Assignment) { a.RebootFrom, a.Force = from, "again" }))
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + revision))
			Expect(w.calls).To(BeEmpty())
		})

		It("boots the kernel, whatever the method of the pool", func() {
			leave(boot(), rebootsBy(update.SoftReboot))
			Expect(w.run()).To(Succeed())
			Expect(w.calls).To(Equal([]string{"reboot"}))
		})

		It("is not lost or repeated if the agent is killed at any step", func() {
			leave(boot())
			Expect(w.run()).To(Succeed())
			steps := len(w.steps)
			for at := 1; at <= steps; at++ {
				w = installed(config)
				w.steps, w.stopAt = nil, at
				revision := leave(boot())
				Expect(w.run()).To(Succeed())
				Expect(w.state()).To(Equal("Done " + revision))
				Expect(w.boots).To(Equal(2))
			}
		})
	})
})
