package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// foundHost returns a host that Poolboot did not boot, after its agent has started. prepare is what its owner did.
func foundHost(prepare func(*world)) (w *world, revision string) {
	GinkgoHelper()
	w = newWorld()
	prepare(w)
	a := w.assign("as-found", update.Config{})
	a.Config = assignment.AsFound()
	revision = w.offer(a)
	Expect(w.run()).To(Succeed())
	w.steps, w.calls, w.states = nil, nil, nil
	return w, revision
}

var _ = Describe("A host that Poolboot did not boot", func() {
	// pool is the configuration of its pool.
	pool := func() update.Config {
		config := withFiles("/etc/f", "pool", "/etc/same", "same", "/etc/none/new", "new")
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Unit]", true), unit("same.service", "[Unit]", true)}
		config.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"key"}}}
		config.KernelArguments = []string{"quiet", "hugepages=4"}
		return config
	}
	// owned is what its owner made of it: some of it is as in the pool.
	owned := func(w *world) {
		w.write("etc/f", "owner")
		w.write("etc/same", "same")
		w.write("etc/systemd/system/same.service", "[Unit]")
		w.enablement["same.service"] = update.Enabled
		w.running, w.arguments = []string{"quiet"}, []string{"quiet"}
	}
	// all is a host that has everything already.
	all := func(w *world) {
		owned(w)
		for name, contents := range map[string]string{"etc/f": "pool", "etc/none/new": "new", "etc/systemd/system/web.service": "[Unit]", "home/core/.ssh/authorized_keys.d/ignition": "\nkey\n"} {
			w.write(name, contents)
		}
		w.enablement["web.service"] = update.Enabled
		w.running, w.arguments = []string{"quiet", "hugepages=4"}, []string{"quiet", "hugepages=4"}
	}
	next := func(w *world, a assignment.Assignment) string {
		w.offered = w.put(a)
		w.node.Annotations[agentv1.NextAnnotation] = w.offered
		return w.offered
	}

	It("is adopted without a change, and differs from nothing", func() {
		var before map[string]string
		w, revision := foundHost(func(w *world) { owned(w); before = w.snapshot() })
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))
	})

	It("says what its first update would change, and changes nothing, also after another start and while its owner changes it", func() {
		w, first := foundHost(owned)
		before := w.snapshot()
		config := pool()
		config.Ignition.Systemd.Units = append(config.Ignition.Systemd.Units, unit("poolboot-register.service", "[Unit]", true))
		revision := next(w, w.assign("rendered-a", config))
		preview := func() string { return w.node.Annotations[agentv1.PreviewAnnotation] }
		for range 2 {
			Expect(w.run()).To(Succeed())
			Expect(preview()).To(HavePrefix(revision + " Reboot\n"))
			Expect(strings.Split(preview(), "\n")[1:]).To(ConsistOf("/etc/f: Content", "/etc/none/new: Missing", "/etc/systemd/system/web.service: Missing",
				"/home/core/.ssh: Missing", "/home/core/.ssh/authorized_keys.d: Missing", "/home/core/.ssh/authorized_keys.d/ignition: Missing", "hugepages=4: MissingKernelArgument"))
		}
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.state()).To(Equal("Done " + first))
		w.write("etc/f", "pool")
		w.boot()
		Expect(w.run()).To(Succeed())
		Expect(preview()).NotTo(ContainSubstring("/etc/f:"))
		delete(w.node.Annotations, agentv1.NextAnnotation)
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.PreviewAnnotation))
	})

	It("pulls no image and no operating system before somebody agrees", func() {
		const address = "https://files.example/module.ko"
		config := withFiles("/etc/drain/f", "")
		contents := &config.Ignition.Storage.Files[0].Contents
		contents.Source, contents.Verification.Hash = ptr.To(address), ptr.To("sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
		w, _ := foundHost(owned)
		w.contents[address] = []byte("abc")
		revision := next(w, w.assign("rendered-a", config, func(a *assignment.Assignment) {
			a.Staging = &assignment.Staging{BytesPerSecond: 1 << 20, Images: []string{"registry.example/a:1"}}
		}))
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.PreviewAnnotation]).To(HavePrefix(revision + " "))
		Expect(w.steps).NotTo(ContainElement(ContainSubstring("pull")))
		w.node.Annotations[agentv1.DesiredAnnotation] = revision
		delete(w.node.Annotations, agentv1.NextAnnotation)
		Expect(w.run()).To(Succeed())
		Expect(w.steps).To(ContainElement("after pull registry.example/a:1"))
		Expect(w.read("etc/drain/f")).To(Equal("abc"))
	})

	It("says what another configuration of its pool would change, soon after the pool has it", func() {
		w, _ := foundHost(owned)
		next(w, w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		revision := next(w, w.assign("rendered-b", withFiles("/etc/other", "new")))
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.PreviewAnnotation]).To(And(HavePrefix(revision+" "), ContainSubstring("/etc/other: Missing")))
	})

	It("has its pool's configuration without a drain, an action or a write where it has everything already", func() {
		w, _ := foundHost(all)
		inode := func() os.FileInfo {
			info, err := os.Stat(filepath.Join(w.directory, "etc/same"))
			Expect(err).NotTo(HaveOccurred())
			return info
		}
		before := inode()
		revision := w.offer(w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.boots).To(Equal(1))
		Expect(w.states).NotTo(ContainElement(ContainSubstring(string(agentv1.Draining))))
		Expect(os.SameFile(before, inode())).To(BeTrue())
	})

	It("keeps what it had when its pool drops the entry, and gets back what an entry replaced", func() {
		w, _ := foundHost(owned)
		w.offer(w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/f") + w.read("etc/none/new") + w.read("etc/same")).To(Equal("poolnewsame"))
		Expect(w.boots).To(Equal(2), "it reboots once, for the kernel arguments")
		revision := w.offer(w.assign("rendered-b", withFiles()))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.read("etc/f") + w.read("etc/none/new") + w.read("etc/same")).To(Equal("ownersame"))
	})

	It("keeps what it had also if the entry was repaired in between", func() {
		w, _ := foundHost(owned)
		config := withFiles("/etc/none/same", "same")
		w.write("etc/none/same", "same")
		w.offer(w.assign("rendered-a", config, repairs))
		Expect(w.run()).To(Succeed())
		w.write("etc/none/same", "by hand")
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/same")).To(Equal("same"))
		w.offer(w.assign("rendered-b", withFiles()))
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/same")).To(Equal("same"))
	})

	It("returns to what its owner made of it by leaving the pool", func() {
		var before map[string]string
		w, first := foundHost(func(w *world) { owned(w); before = w.snapshot() })
		w.can = update.CapabilitiesWithout("Extensions", "OSImage")
		w.offer(w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(differing(w.snapshot(), before)).To(BeEmpty())
	})

	It("is as its owner left it if somebody takes the agreement back before its Node is drained", func() {
		var before map[string]string
		w, first := foundHost(func(w *world) { owned(w); before = w.snapshot() })
		w.drains = false
		revision := w.offer(w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Draining " + revision))
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(differing(w.snapshot(), before)).To(BeEmpty())
	})

	for _, losesPower := range []bool{false, true} {
		how := map[bool]string{false: "by a killed agent", true: "by a power failure"}[losesPower]
		It("returns to what its owner made of it, interrupted at any step "+how, func() {
			for stopAt := 0; ; stopAt++ {
				var before map[string]string
				w, first := foundHost(func(w *world) { owned(w); before = w.snapshot() })
				w.offer(w.assign("rendered-a", pool()))
				Expect(w.run()).To(Succeed())
				w.steps = nil
				w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
				w.stopAt, w.losesPower = stopAt, losesPower
				Expect(w.run()).To(Succeed(), "interrupted at step %d", stopAt)
				Expect(w.state()).To(Equal("Done "+first), "interrupted at step %d", stopAt)
				Expect(differing(w.snapshot(), before)).To(BeEmpty(), "interrupted at step %d", stopAt)
				if stopAt > 0 && len(w.steps) < stopAt {
					Expect(stopAt).To(BeNumerically(">", 20), "there are not enough steps")
					break
				}
			}
		})
	}

	It("is as its owner left it once the undo of its first update has ended and the agreement is taken back", func() {
		var before map[string]string
		w, first := foundHost(func(w *world) { owned(w); before = w.snapshot() })
		w.isBroken = func() bool { return w.read("etc/f") == "pool" }
		revision := w.offer(w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(differing(w.snapshot(), before)).To(BeEmpty())
	})

	It("returns also if its owner or its pool changed files in between", func() {
		w, first := foundHost(owned)
		w.offer(w.assign("rendered-a", pool()))
		Expect(w.run()).To(Succeed())
		w.offer(w.assign("rendered-b", withFiles("/etc/f", "pool 2", "/etc/same", "other")))
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/same")).To(Equal("other"))
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.read("etc/f") + w.read("etc/same")).To(Equal("ownersame"))
	})

	It("refuses a configuration with disks, and keeps its own if the pool has them for new hosts only", func() {
		w, _ := foundHost(owned)
		revision := next(w, w.assign("rendered-a", withDisk("a", "/dev/sda", "x")))
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.PreviewAnnotation]).To(HavePrefix(revision + " Unreconcilable\n"))
		revision = w.offer(w.assign("rendered-a", withDisk("a", "/dev/sda", "x")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Unreconcilable " + revision))
		revision = w.offer(w.assign("rendered-b", withDisk("b", "/dev/sda", "x"), func(a *assignment.Assignment) { a.Policy.KeepsDisks = true }))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.read("etc/systemd/system/var-lib-data.mount")).To(BeEmpty())
		Expect(w.node.Annotations[agentv1.OutdatedDisksAnnotation]).To(ContainSubstring("disk /dev/sda"))
	})

	for _, losesPower := range []bool{false, true} {
		how := map[bool]string{false: "by a killed agent", true: "by a power failure"}[losesPower]
		for _, isBroken := range []bool{false, true} {
			end := map[bool]string{false: "ends with the configuration of its pool", true: "returns to what its owner made of it if it does not work"}[isBroken]

			It(end+", interrupted at any step "+how, func() {
				var want map[string]string
				for stopAt := 0; ; stopAt++ {
					var before map[string]string
					w, _ := foundHost(func(w *world) { owned(w); before = w.snapshot() })
					revision := w.offer(w.assign("rendered-a", pool()))
					if isBroken {
						w.isBroken = func() bool { return w.read("etc/f") == "pool" }
					}
					w.stopAt, w.losesPower = stopAt, losesPower
					Expect(w.run()).To(Succeed(), "interrupted at step %d", stopAt)
					if want == nil {
						want = before
						if !isBroken {
							want = w.snapshot()
						}
					}
					if stopAt > 0 && len(w.steps) < stopAt {
						Expect(stopAt).To(BeNumerically(">", 20), "there are not enough steps")
						break
					}
					By(fmt.Sprintf("interrupting step %d: %s", stopAt, strings.Join(w.steps[max(stopAt-1, 0):max(stopAt, 1)], "")))
					Expect(w.state()).To(Equal(map[bool]string{false: "Done ", true: "Degraded "}[isBroken] + revision))
					Expect(differing(w.snapshot(), want)).To(BeEmpty())
				}
			})
		}
	}
})
