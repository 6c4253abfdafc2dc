package agent

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// differing returns what differs between two snapshots.
func differing(got, want map[string]string) (lines []string) {
	for name := range maps.Keys(got) {
		if got[name] != want[name] {
			lines = append(lines, fmt.Sprintf("%s: got %q, want %q", name, got[name], want[name]))
		}
	}
	for name := range want {
		if _, exists := got[name]; !exists {
			lines = append(lines, fmt.Sprintf("%s: got nothing, want %q", name, want[name]))
		}
	}
	slices.Sort(lines)
	return lines
}

var _ = Describe("Invariant 9: a host that is interrupted at any step", func() {
	// configs returns two configurations that differ in everything that changes on a running host.
	configs := func(file string) (a, b update.Config) {
		a, b = withFiles(file, "a", "/etc/image.conf", "a", "/etc/none/a", "a"), withFiles(file, "b", "/etc/none/b", "b")
		a.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Unit]", true)}
		b.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Service]", false)}
		a.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", PasswordHash: ptr.To("a")}}
		b.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", PasswordHash: ptr.To("b"), SSHAuthorizedKeys: []types.SSHAuthorizedKey{"key"}}}
		return a, b
	}
	withArguments := func(a, b update.Config) (update.Config, update.Config) {
		a.KernelArguments, b.KernelArguments = []string{"one two"}, []string{"two three"}
		a.OS.Image, b.OS.Image = "image:1", "image:2"
		return a, b
	}

	// interrupt runs the same update again and again, and interrupts each run at another step.
	interrupt := func(from, to update.Config, method update.RebootMethod, losesPower bool, breaks func(*world), verify func(w *world, first, second string, isA, isB []string)) {
		assignA := func(w *world) assignment.Assignment { return w.assign("rendered-a", from, rebootsBy(method)) }
		assignB := func(w *world) assignment.Assignment { return w.assign("rendered-b", to, rebootsBy(method)) }
		wantA, wantB := fresh(assignA), fresh(assignB)
		for stopAt := 1; ; stopAt++ {
			w := newWorld()
			first := w.install(assignA(w))
			Expect(w.run()).To(Succeed())
			second := w.offer(assignB(w))
			breaks(w)
			w.steps, w.stopAt, w.losesPower = nil, stopAt, losesPower
			Expect(w.run()).To(Succeed(), "interrupted at step %d", stopAt)
			got := w.snapshot()
			if len(w.steps) < stopAt {
				Expect(stopAt).To(BeNumerically(">", 20), "there are not enough steps")
				return
			}
			By(fmt.Sprintf("interrupting step %d: %s", stopAt, w.steps[stopAt-1]))
			verify(w, first, second, differing(got, wantA), differing(got, wantB))
		}
	}

	for _, losesPower := range []bool{false, true} {
		how := map[bool]string{false: "by a killed agent", true: "by a power failure"}[losesPower]

		DescribeTable("ends with the new configuration, "+how, func(file string, hasArguments bool, method update.RebootMethod) {
			a, b := configs(file)
			if hasArguments {
				a, b = withArguments(a, b)
			}
			interrupt(a, b, method, losesPower, func(*world) {}, func(w *world, _, second string, _, isB []string) {
				Expect(w.state()).To(Equal("Done " + second))
				Expect(isB).To(BeEmpty())
			})
		},
			Entry("in an update with a restart", "/etc/restart/f", false, update.FullReboot),
			Entry("in an update with a reboot", "/etc/f", true, update.FullReboot),
			Entry("in an update with a kexec", "/etc/f", false, update.Kexec),
			Entry("in an update with a soft reboot", "/etc/f", false, update.SoftReboot),
		)

		DescribeTable("ends with the old configuration if the new one does not work, "+how, func(file string, hasArguments bool, method update.RebootMethod, breaks func(*world)) {
			a, b := configs(file)
			if hasArguments {
				a, b = withArguments(a, b)
			}
			interrupt(a, b, method, losesPower, breaks, func(w *world, _, second string, isA, _ []string) {
				Expect(w.state()).To(Equal("Degraded " + second))
				Expect(isA).To(BeEmpty())
			})
		},
			Entry("after a restart", "/etc/restart/f", false, update.FullReboot, func(w *world) { w.isBroken = func() bool { return w.read("etc/restart/f") == "b" } }),
			Entry("after a reboot", "/etc/f", true, update.FullReboot, func(w *world) { w.isBroken = func() bool { return w.read("etc/f") == "b" } }),
			Entry("after a kexec", "/etc/f", false, update.Kexec, func(w *world) { w.isBroken = func() bool { return w.read("etc/f") == "b" } }),
			Entry("after a soft reboot", "/etc/f", false, update.SoftReboot, func(w *world) { w.isBroken = func() bool { return w.read("etc/f") == "b" } }),
			Entry("after the network was changed, so that the config server can't be reached", "/etc/systemd/network/f.network", true, update.FullReboot,
				func(w *world) { w.isCutOff = func() bool { return w.read("etc/systemd/network/f.network") == "b" } }),
			Entry("because a restart fails", "/etc/restart/f", false, update.FullReboot, func(w *world) { w.fails["restart kubelet.service"] = errors.New("exit status 1") }),
			Entry("because the operating system can't change", "/etc/f", true, update.FullReboot, func(w *world) {
				w.fails["arguments two three"] = errors.New("exit status 1")
			}),
		)

		It("is repaired as far as possible, or stays as it is if that fails, "+how, func() {
			for _, fails := range []bool{false, true} {
				for stopAt := 1; ; stopAt++ {
					w := installed(withFiles("/etc/reload/f", "a", "/etc/none/f", "a", "/etc/f", "a"), repairs)
					for _, name := range []string{"etc/reload/f", "etc/none/f", "etc/f"} {
						w.write(name, "by hand")
					}
					if fails {
						w.fails["reload web.service"] = errors.New("exit status 1")
					}
					w.steps, w.stopAt, w.losesPower = nil, stopAt, losesPower
					Expect(w.run()).To(Succeed(), "interrupted at step %d", stopAt)
					got := w.read("etc/reload/f") + " " + w.read("etc/none/f") + " " + w.read("etc/f")
					Expect(got).To(Equal(map[bool]string{false: "a a by hand", true: "by hand by hand by hand"}[fails]), "interrupted at step %d", stopAt)
					Expect(w.state()).To(HavePrefix("Degraded "))
					if len(w.steps) < stopAt {
						Expect(stopAt).To(BeNumerically(">", 10), "there are not enough steps")
						break
					}
				}
			}
		})
	}
})
