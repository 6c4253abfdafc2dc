package systemd_test

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/hostroot"
)

// units returns a document with units and files.
func unitsAnd(units []object, files ...object) object {
	return object{"ignition": object{"version": "3.5.0"}, "systemd": object{"units": units}, "storage": object{"files": files}}
}

var _ = DescribeTable("The links of units are those of a new host after an update, and those before if it is undone", func(before, after object) {
	from, to := encode(before), encode(after)
	newHost := func(documents ...[]byte) (string, *hostfiles.Updater) {
		root := hostroot.New(GinkgoT())
		directory, err := os.OpenRoot(root)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(directory.Close)
		updater, err := hostfiles.Open(directory)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(updater.Close)
		last := encode(unitsAnd([]object{}))
		for _, document := range documents {
			follow(root, updater, last, document)
			if updater.IsUnconfirmed() {
				Expect(updater.Confirm()).To(Succeed())
			}
			last = document
		}
		return root, updater
	}
	fresh, _ := newHost(to)
	root, updater := newHost(from)
	installed := files(root)
	operations := follow(root, updater, from, to)
	Expect(differing(files(root), files(fresh))).To(BeEmpty(), "%v", operations)
	wanted := map[string]update.Enablement{}
	for _, unit := range parse(to).Ignition.Systemd.Units {
		if wanted[unit.Name] = update.Preset; ptr.Deref(unit.Enabled, false) {
			wanted[unit.Name] = update.Enabled
		}
	}
	units, masked, err := enablement(root).Differing(GinkgoT().Context(), wanted)
	Expect(err).NotTo(HaveOccurred())
	Expect(append(units, masked...)).To(BeEmpty(), "what an update leaves is no difference")
	carryOut(root, update.Undo(operations), func() { Expect(updater.RollBack()).To(Succeed()) })
	Expect(differing(files(root), installed)).To(BeEmpty(), "back: %v", operations)
},
	Entry("the template of an instance changes",
		unitsAnd([]object{{"name": "t@.service", "contents": service + install}, {"name": "t@1.service", "enabled": true}}),
		unitsAnd([]object{{"name": "t@.service", "contents": service + "[Install]\nWantedBy=sockets.target\n"}, {"name": "t@1.service", "enabled": true}})),
	Entry("a template with a default instance changes",
		unitsAnd([]object{{"name": "t@.service", "enabled": true, "contents": service + install + "DefaultInstance=a\n"}}),
		unitsAnd([]object{{"name": "t@.service", "enabled": true, "contents": service + install + "DefaultInstance=b\n"}})),
	Entry("a unit does not name another one with Also any more",
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install + "Also=b.service\n"}, {"name": "b.service", "enabled": true, "contents": service + install}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install}, {"name": "b.service", "enabled": true, "contents": service + install}})),
	Entry("a unit that names another one with Also is removed",
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install + "Also=b.service\n"}, {"name": "b.service", "enabled": true, "contents": service + install}}),
		unitsAnd([]object{{"name": "b.service", "enabled": true, "contents": service + install}})),
	Entry("a unit names another one with Also",
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install}, {"name": "b.service", "enabled": true, "contents": service + install}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install + "Also=b.service\n"}, {"name": "b.service", "enabled": true, "contents": service + install}})),
	Entry("an alias changes",
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install + "Alias=x.service\n"}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install + "Alias=y.service\n"}})),
	Entry("a drop-in has another section Install",
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install, "dropins": []object{{"name": "i.conf", "contents": "[Install]\nWantedBy=sockets.target\n"}}}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install, "dropins": []object{{"name": "i.conf", "contents": "[Install]\nWantedBy=timers.target\n"}}}})),
	Entry("a drop-in with a section Install is removed",
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install, "dropins": []object{{"name": "i.conf", "contents": "[Install]\nWantedBy=sockets.target\n"}}}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install}})),
	Entry("the file of a unit is one of storage.files",
		unitsAnd([]object{{"name": "a.service", "enabled": true}}, object{"path": "/etc/systemd/system/a.service", "mode": 420, "contents": object{"source": "data:,%5BService%5D%0AExecStart%3D%2Fbin%2Ftrue%0A%5BInstall%5D%0AWantedBy%3Dmulti-user.target%0A"}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true}}, object{"path": "/etc/systemd/system/a.service", "mode": 420, "contents": object{"source": "data:,%5BService%5D%0AExecStart%3D%2Fbin%2Ftrue%0A%5BInstall%5D%0AWantedBy%3Dsockets.target%0A"}})),
	Entry("a masked unit gets contents",
		unitsAnd([]object{{"name": "a.service", "mask": true}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install}})),
	Entry("a mask that is a link of storage.links becomes contents",
		object{"ignition": object{"version": "3.5.0"}, "storage": object{"links": []object{{"path": "/etc/systemd/system/a.service", "target": "/dev/null"}}}},
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install}})),
	Entry("an instance is removed, and its template stays",
		unitsAnd([]object{{"name": "t@.service", "contents": service + install}, {"name": "t@1.service", "enabled": true}, {"name": "t@2.service", "enabled": true}}),
		unitsAnd([]object{{"name": "t@.service", "contents": service + install}, {"name": "t@2.service", "enabled": true}})),
	Entry("an instance gets a file of its own",
		unitsAnd([]object{{"name": "t@.service", "contents": service + install}, {"name": "t@1.service", "enabled": true}}),
		unitsAnd([]object{{"name": "t@.service", "contents": service + install}, {"name": "t@1.service", "enabled": true, "contents": service + "[Install]\nWantedBy=sockets.target\n"}})),
	Entry("another unit that names it with Also is new",
		unitsAnd([]object{{"name": "b.service", "enabled": true, "contents": service + install}}),
		unitsAnd([]object{{"name": "a.service", "enabled": true, "contents": service + install + "Also=b.service\n"}, {"name": "b.service", "enabled": true, "contents": service + install}})),
	Entry("the template and its instance are removed",
		unitsAnd([]object{{"name": "t@.service", "contents": service + install}, {"name": "t@1.service", "enabled": true}}),
		unitsAnd([]object{})),
)
