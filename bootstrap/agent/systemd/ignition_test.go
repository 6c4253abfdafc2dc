package systemd_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/hostroot"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// newInstalledHost returns a host that Ignition installed and that has booted for the first time: systemd enables units
// by presets then.
func newInstalledHost(document []byte) string {
	GinkgoHelper()
	root := hostroot.New(GinkgoT())
	write(root, "usr/lib/systemd/system/image.service", service+install)
	write(root, "usr/lib/systemd/system/off.service", service+install)
	write(root, "usr/lib/systemd/system-preset/50-image.preset", "enable image.service\n")
	run(root, "systemctl", "--root=/", "preset-all") // as who builds an image does
	run(root, "cp", "--archive", "/etc", "/usr/etc")
	bin, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(bin, "ignition")
	if _, err := os.Stat(program); err != nil {
		Skip(program + " does not exist: run make binaries")
	}
	state := GinkgoT().TempDir()
	config := filepath.Join(state, "config.ign")
	Expect(os.WriteFile(config, document, 0o600)).To(Succeed())
	for _, stage := range []string{"fetch", "files"} {
		cmd := exec.Command(program, "-platform", "file", "-stage", stage, "-root", root, "-log-to-stdout",
			"-config-cache", filepath.Join(state, "cache"), "-state-file", filepath.Join(state, "state"), "-neednet", filepath.Join(state, "neednet"))
		cmd.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+config)
		output, err := cmd.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
	run(root, "systemctl", "--root=/", "preset-all", "--preset-mode=enable-only")
	return root
}

// randomUnits returns a document with units of a small set, so that two documents have many in common. It has no
// instances: Ignition asks the systemd of this machine for its version then.
func randomUnits(chance *rand.Rand) []byte {
	GinkgoHelper()
	units := []object{}
	for _, name := range []string{"a.service", "b.service", "image.service", "off.service", "none.service"} {
		if chance.IntN(4) == 0 {
			continue
		}
		unit := object{"name": name}
		if name == "a.service" || name != "none.service" && chance.IntN(3) == 0 {
			target := []string{"multi-user", "sockets", "timers"}[chance.IntN(3)]
			if name == "image.service" || name == "off.service" {
				target = "multi-user" // other links of the image would stay on a host that Ignition installs
			}
			unit["contents"] = fmt.Sprintf("%s# %d\n[Install]\nWantedBy=%s.target\n", service, chance.IntN(3), target)
		}
		// A unit of which only some configs have a file is enabled only with it: if it returns to a config that
		// enables it without a file, the link stays.
		if _, hasFile := unit["contents"]; chance.IntN(3) > 0 && (hasFile || name != "b.service") {
			unit["enabled"] = chance.IntN(3) > 0
		}
		if name == "b.service" && chance.IntN(3) == 0 {
			unit = object{"name": name, "mask": true}
		}
		units = append(units, unit)
	}
	return encode(object{"ignition": object{"version": "3.5.0"}, "systemd": object{"units": units}})
}

// follow updates a host from one document to another, as the agent does, and returns the operations.
func follow(root string, updater *hostfiles.Updater, from, to []byte) []update.Operation {
	GinkgoHelper()
	before, after := parse(from), parse(to)
	plan := update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
	Expect(plan.Obstacles).To(BeEmpty())
	carryOut(root, plan.Operations, func() {
		Expect(updater.Apply(hosttree.Changes(treeOf(before), treeOf(after)), false)).To(Succeed())
	})
	return plan.Operations
}

// carryOut carries out operations; one call changes all files.
func carryOut(root string, operations []update.Operation, changeFiles func()) {
	GinkgoHelper()
	changed := false
	Expect(enablement(root).Prepare(GinkgoT().Context(), slices.DeleteFunc(slices.Clone(operations), func(o update.Operation) bool { return o.Kind != update.ChangeEnablement }))).To(Succeed())
	for _, operation := range operations {
		switch {
		case operation.Kind == update.ChangeEnablement:
			Expect(applyAll(enablement(root), GinkgoT().Context(), []update.Operation{operation})).To(Succeed())
		case !changed:
			changed = true
			changeFiles()
		}
	}
}

func parse(document []byte) update.Config {
	GinkgoHelper()
	config, err := ignition.Parse(document)
	Expect(err).NotTo(HaveOccurred(), string(document))
	return update.Config{Ignition: config}
}

func treeOf(config update.Config) hosttree.Tree {
	GinkgoHelper()
	tree, err := hosttree.New(config.Ignition).On(hosttree.System{})
	Expect(err).NotTo(HaveOccurred())
	return tree
}

// differing returns what is only in one of two lists of files, or differs.
func differing(got, want map[string]string) (names []string) {
	for name := range got {
		if text, exists := want[name]; !exists || text != got[name] {
			names = append(names, "got "+name+" "+got[name])
		}
	}
	for name := range want {
		if text, exists := got[name]; !exists || text != want[name] {
			names = append(names, "want "+name+" "+want[name])
		}
	}
	return names
}

var _ = Describe("A host that follows any config of units", func() {
	It("has the same links as one that is installed with it, and those that it had if it returns", func() {
		chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		for range 8 {
			from, to := randomUnits(chance), randomUnits(chance)
			root, fresh := newInstalledHost(from), newInstalledHost(to)
			installed := files(root)
			directory, err := os.OpenRoot(root)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(directory.Close)
			updater, err := hostfiles.Open(directory)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(updater.Close)
			Expect(updater.Adopt(treeOf(parse(from)))).To(Succeed())

			operations := follow(root, updater, from, to)
			Expect(differing(files(root), files(fresh))).To(BeEmpty(), "from %s\nto %s\n%v", from, to, operations)

			carryOut(root, update.Undo(operations), func() { Expect(updater.RollBack()).To(Succeed()) })
			Expect(differing(files(root), installed)).To(BeEmpty(), "from %s\nto %s and back\n%v", from, to, operations)
		}
	})
})
