package agent

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// withDisk returns a configuration with a file, and with a file system on a device that is mounted at /var/lib/data.
func withDisk(contents, device, options string) update.Config {
	config := withFiles("/etc/none/f", contents)
	storage := &config.Ignition.Storage
	storage.Disks = []types.Disk{{Device: device, WipeTable: ptr.To(true)}}
	storage.Luks = []types.Luks{{Name: "data", Device: ptr.To(device + "1"), KeyFile: types.Resource{Source: ptr.To("data:,secret-of-" + strings.TrimPrefix(device, "/dev/"))}}}
	storage.Filesystems = []types.Filesystem{{Device: device + "2", Format: ptr.To("xfs"), Path: ptr.To("/var/lib/data"), WipeFilesystem: ptr.To(true)}}
	config.Ignition.Systemd.Units = []types.Unit{{Name: "var-lib-data.mount", Enabled: ptr.To(true), Contents: ptr.To(fmt.Sprintf("[Mount]\nWhat=%s2\nOptions=%s\n", device, options))}}
	return config
}

var _ = Describe("A host whose pool has other disks for new hosts only", func() {
	keeping := func(a *assignment.Assignment) {
		a.Policy.KeepsDisks = true
		a.Policy.Units["var-lib-data.mount"] = rule(update.Action{Type: update.Reboot})
	}
	const mount = "etc/systemd/system/var-lib-data.mount"
	outdated := func(w *world) string { return w.node.Annotations[agentv1.OutdatedDisksAnnotation] }
	change := func(w *world, name string, config update.Config, changes ...func(*assignment.Assignment)) string {
		GinkgoHelper()
		revision := w.offer(w.assign(name, config, append([]func(*assignment.Assignment){keeping}, changes...)...))
		Expect(w.run()).To(Succeed())
		return revision
	}

	It("keeps its disks and their mounts, gets everything else, and reports what it does not get", func() {
		w := installed(withDisk("a", "/dev/sda", "x"))
		revision := change(w, "rendered-b", withDisk("b", "/dev/sdb", "x"))
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.read("etc/none/f")).To(Equal("b"))
		Expect(w.read(mount)).To(ContainSubstring("What=/dev/sda2"))
		Expect(w.calls).To(BeEmpty(), "nothing reboots or restarts")
		Expect(outdated(w)).To(Equal("disk /dev/sda\ndisk /dev/sdb\nLUKS volume data\nfilesystem /dev/sda2\nfilesystem /dev/sdb2\nunit var-lib-data.mount"))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))
		Expect(fmt.Sprint(w.node.Annotations)).NotTo(ContainSubstring("secret"))
	})

	It("compares with what it was installed with, and not with its last configuration", func() {
		w := installed(withDisk("a", "/dev/sda", "x"), keeping)
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.OutdatedDisksAnnotation))
		change(w, "rendered-b", withDisk("b", "/dev/sdb", "x"))
		change(w, "rendered-c", withDisk("c", "/dev/sdc", "x"))
		Expect(outdated(w)).To(Equal("disk /dev/sda\ndisk /dev/sdc\nLUKS volume data\nfilesystem /dev/sda2\nfilesystem /dev/sdc2\nunit var-lib-data.mount"))
		change(w, "rendered-d", withDisk("d", "/dev/sda", "x"))
		Expect(w.read("etc/none/f")).To(Equal("d"))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.OutdatedDisksAnnotation))
		Expect(w.calls).To(BeEmpty())
	})

	It("gets other options for a mount while the file system is its own, and keeps them then", func() {
		w := installed(withDisk("a", "/dev/sda", "x"), keeping)
		change(w, "rendered-b", withDisk("b", "/dev/sda", "noatime"))
		Expect(w.read(mount)).To(ContainSubstring("noatime"))
		Expect(w.calls).To(Equal([]string{"reboot"}))
		change(w, "rendered-c", withDisk("c", "/dev/sdc", "x"))
		Expect(w.read(mount)).To(ContainSubstring("What=/dev/sda2\nOptions=noatime"))
		Expect(w.calls).To(Equal([]string{"reboot"}))
	})

	It("does not write the mounts of other disks if it is forced, or repaired", func() {
		w := installed(withFiles("/etc/none/f", "a"), keeping)
		revision := change(w, "rendered-b", withDisk("b", "/dev/sdb", "x"), func(a *assignment.Assignment) { a.Force, a.RepairsDrift = "1", true })
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.read(mount)).To(BeEmpty())
		w.write("etc/none/f", "by hand")
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/f")).To(Equal("b"))
		Expect(w.read(mount)).To(BeEmpty())
		Expect(w.enablement).To(BeEmpty())
	})

	It("can't change to the configuration once the pool refuses other disks, and says so", func() {
		w := installed(withDisk("a", "/dev/sda", "x"), keeping)
		change(w, "rendered-b", withDisk("b", "/dev/sdb", "x"))
		revision := w.offer(w.assign("rendered-b", withDisk("b", "/dev/sdb", "x")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Unreconcilable " + revision))
		Expect(w.reason()).To(ContainSubstring("disk /dev/sdb: a host applies it only when it is installed: replace the Machine, undo the change, or set spec.updates.diskPolicy to NewHostsOnly"))
		Expect(outdated(w)).NotTo(BeEmpty())
	})

	It("keeps them if an update is undone, and if the agent is killed at any step", func() {
		steps := 0
		for stopAt := 0; stopAt <= steps; stopAt++ {
			w := installed(withDisk("a", "/dev/sda", "x"), keeping)
			w.steps, w.stopAt = nil, stopAt
			revision := change(w, "rendered-b", withDisk("b", "/dev/sdb", "x"))
			steps = max(steps, len(w.steps))
			Expect(w.state()).To(Equal("Done " + revision))
			w.stopAt = 0
			w.isBroken = func() bool { return w.read("etc/none/f") == "c" }
			failed := change(w, "rendered-c", withDisk("c", "/dev/sdc", "x"))
			Expect(w.state()).To(Equal("Degraded "+failed), "killed at %d", stopAt)
			Expect(outdated(w)).To(ContainSubstring("disk /dev/sdb"), "what it returned to")
			w.isBroken = func() bool { return false }
			change(w, "rendered-d", withDisk("d", "/dev/sda", "x"))
			Expect(w.node.Annotations).NotTo(HaveKey(agentv1.OutdatedDisksAnnotation), "killed at %d", stopAt)
			Expect(w.read(mount)).To(ContainSubstring("What=/dev/sda2"))
		}
		Expect(steps).To(BeNumerically(">", 10))
	})

	It("forgets the earlier disks only once nothing depends on them, also if the agent is killed at any step", func() {
		for steps, stopAt := 1, 1; stopAt <= steps; stopAt++ {
			w := installed(withDisk("a", "/dev/sda", "x"), keeping)
			change(w, "rendered-b", withDisk("b", "/dev/sdb", "x"))
			w.steps, w.stopAt = nil, stopAt
			same := change(w, "rendered-c", withDisk("c", "/dev/sda", "x"))
			steps, w.stopAt = len(w.steps), 0
			Expect(w.state()).To(Equal("Done "+same), "killed at %d: %s", stopAt, w.reason())
			last := change(w, "rendered-d", withDisk("d", "/dev/sda", "x"))
			Expect(w.state()).To(Equal("Done "+last), "killed at %d: %s", stopAt, w.reason())
		}
	})
})
