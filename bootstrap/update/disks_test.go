package update_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// keepingDisks is the policy of a pool whose running hosts keep their disks.
func keepingDisks() update.Policy {
	policy := pool.NewUpdatePolicy()
	policy.KeepsDisks = true
	return policy
}

// keep returns the plan of a host that keeps its disks, between two Ignition documents in YAML's flow style.
func keep(before, after string) update.Plan {
	GinkgoHelper()
	return update.New(parse(spec(withIgnition(before))), parse(spec(withIgnition(after))), keepingDisks(), update.AllCapabilities)
}

func named(items []update.Item) (names []string) {
	for _, item := range items {
		names = append(names, item.String())
	}
	return names
}

const mountOfData = "[Mount]\\nWhere=/var/lib/data\\nWhat=/dev/md/data\\n[Install]\\nRequiredBy=local-fs.target\\n"

var _ = Describe("A running host whose pool has other disks for new hosts only", func() {
	data := `storage: {filesystems: [{device: /dev/md/data, format: xfs, path: /var/lib/data}]}`
	withUnit := func(storage, name, contents string) string {
		return fmt.Sprintf(`%s, systemd: {units: [{name: %q, enabled: true, contents: "%s"}]}`, storage, name, contents)
	}

	DescribeTable("gets everything else, and names what it does not get", func(before, after string, want ...string) {
		after = strings.TrimSuffix(after, "}") + "files: [{path: /etc/a, mode: 420}]}"
		plan := keep(before, after)
		Expect(plan.Obstacles).To(BeEmpty())
		Expect(named(plan.Outdated)).To(Equal(want))
		Expect(plan.Changes).To(HaveLen(1), "the file")
		Expect(plan.Operations).To(HaveLen(1))
		Expect(plan.Operations[0].Name).To(Equal("/etc/a"))
		Expect(planOf(withIgnition(before), withIgnition(after)).Obstacles).NotTo(BeEmpty(), "with the policy Refuse")
	},
		Entry("a disk", "storage: {}", "storage: {disks: [{device: /dev/sdb, wipeTable: true}], }", "disk /dev/sdb"),
		Entry("a partition", "storage: {disks: [{device: /dev/sdb, partitions: [{number: 1}]}]}", "storage: {disks: [{device: /dev/sdb, partitions: [{number: 1}, {number: 2}]}], }", "disk /dev/sdb"),
		Entry("an array", "storage: {raid: [{name: data, level: raid1, devices: [/dev/a]}]}", "storage: {raid: [{name: data, level: raid0, devices: [/dev/a]}], }", "RAID data"),
		Entry("a key of LUKS, without the key",
			`storage: {luks: [{name: data, device: /dev/a, keyFile: {source: "data:,secret"}}]}`, `storage: {luks: [{name: data, device: /dev/a, keyFile: {source: "data:,other"}}], }`, "LUKS volume data"),
		Entry("a file system that is erased", "storage: {filesystems: [{device: /dev/a, format: ext4}]}", "storage: {filesystems: [{device: /dev/a, format: ext4, wipeFilesystem: true}], }", "filesystem /dev/a"),
		Entry("a file system with another path", "storage: {filesystems: [{device: /dev/a, format: xfs, path: /a}]}", "storage: {filesystems: [{device: /dev/a, format: xfs, path: /b}], }", "filesystem /dev/a"),
		Entry("a file system that is removed", data, "storage: {}", "filesystem /dev/md/data"),
		Entry("the order", "storage: {filesystems: [{device: /dev/a, format: xfs}, {device: /dev/b, format: xfs}]}", "storage: {filesystems: [{device: /dev/b, format: xfs}, {device: /dev/a, format: xfs}], }", "filesystem"),
	)

	DescribeTable("has the mount units of its own file systems", func(before, after string, want ...string) {
		plan := keep(before, after)
		Expect(plan.Obstacles).To(BeEmpty())
		Expect(named(plan.Outdated)).To(Equal(want))
		Expect(plan.Operations).To(BeEmpty())
		Expect(describe(plan.Actions)).To(Equal([]string{"None"}))
	},
		Entry("and not that of a file system that it does not have: local-fs.target would fail at its next boot",
			"storage: {}", withUnit(data, "var-lib-data.mount", mountOfData), "filesystem /dev/md/data", "unit var-lib-data.mount"),
		Entry("found by the device", "storage: {}", withUnit("storage: {filesystems: [{device: /dev/md/data, format: xfs}]}", "srv.mount", "[Mount]\\nWhat=/dev/md/data"), "filesystem /dev/md/data", "unit srv.mount"),
		Entry("found by the path", "storage: {}", withUnit(data, "var-lib-data.mount", "[Mount]\\nWhat=/dev/disk/by-id/md-name-data"), "filesystem /dev/md/data", "unit var-lib-data.mount"),
		Entry("found by the label", "storage: {}", withUnit("storage: {filesystems: [{device: /dev/a, format: xfs, label: data}]}", "srv.mount", "[Mount]\\nWhat=LABEL=data"), "filesystem /dev/a", "unit srv.mount"),
		Entry("found by the UUID", "storage: {}", withUnit("storage: {filesystems: [{device: /dev/a, format: vfat, uuid: AB-1}]}", "srv.mount", "[Mount]\\nWhat=/dev/disk/by-uuid/ab-1"), "filesystem /dev/a", "unit srv.mount"),
		Entry("found by the label of the partition", "storage: {}", withUnit("storage: {filesystems: [{device: /dev/disk/by-partlabel/data, format: xfs}]}", "srv.mount", "[Mount]\\nWhat=PARTLABEL=data"),
			"filesystem /dev/disk/by-partlabel/data", "unit srv.mount"),
		Entry("found by a device with a UUID", "storage: {}", withUnit("storage: {filesystems: [{device: /dev/disk/by-partuuid/ab-01, format: xfs}]}", "srv.mount", "[Mount]\\nWhat=PARTUUID=ab-01"),
			"filesystem /dev/disk/by-partuuid/ab-01", "unit srv.mount"),
		Entry("its automount", "storage: {}", withUnit(data, "var-lib-data.automount", "[Automount]\\nWhere=/var/lib/data"), "filesystem /dev/md/data", "unit var-lib-data.automount"),
		Entry("swap", "storage: {}", withUnit("storage: {filesystems: [{device: /dev/a, format: swap}]}", "dev-a.swap", "[Swap]\\nWhat=/dev/a"), "filesystem /dev/a", "unit dev-a.swap"),
		Entry("a mount that the configuration has no longer: programs would begin with an empty directory",
			withUnit(data, "var-lib-data.mount", mountOfData), "storage: {}", "filesystem /dev/md/data", "unit var-lib-data.mount"),
		Entry("at another device",
			withUnit("storage: {filesystems: [{device: /dev/a, format: xfs, path: /srv}]}", "srv.mount", "[Mount]\\nWhat=/dev/a"),
			withUnit("storage: {filesystems: [{device: /dev/b, format: xfs, path: /srv}]}", "srv.mount", "[Mount]\\nWhat=/dev/b"), "filesystem /dev/a", "filesystem /dev/b", "unit srv.mount"),
	)

	// Lines end with | here.
	withFile := func(storage, name, contents string) string {
		return strings.TrimSuffix(storage, "}") + fmt.Sprintf(`, files: [{path: %s, mode: 420, contents: {source: %q}}]}`, name, "data:,"+strings.NewReplacer(" ", "%20", "|", "%0A", `\`, "%5C", "#", "%23", `"`, "%22", "[", "%5B", "]", "%5D").Replace(contents))
	}
	contentsAfter := func(before, after, name string) (contents []string) {
		GinkgoHelper()
		contents = []string{}
		kept, _ := parse(spec(withIgnition(after))).KeepDisks(parse(spec(withIgnition(before))))
		for _, file := range kept.Ignition.Storage.Files {
			if file.Path == name {
				text, err := hosttree.Decode(file.Contents, nil)
				Expect(err).NotTo(HaveOccurred())
				contents = append(contents, strings.ReplaceAll(string(text), "\n", "|"))
			}
		}
		return contents
	}
	const none = "storage: {filesystems: []}"

	DescribeTable("keeps the lines of its own devices in a table of mounts: one without its device would take it to emergency mode", func(before, after, name string, want ...string) {
		Expect(contentsAfter(before, after, name)).To(Equal(want))
		Expect(named(keep(before, after).Outdated)).To(ContainElement("file " + name))
	},
		Entry("and gets other lines", withFile(none, "/etc/fstab", "/dev/a / xfs|"), withFile(data, "/etc/fstab", "/dev/a / xfs|/dev/md/data /var/lib/data xfs|nfs:/x /x nfs|"), "/etc/fstab", "/dev/a / xfs|nfs:/x /x nfs|"),
		Entry("found by the path", none, withFile(data, "/etc/fstab", "/dev/a / xfs|LABEL=x /var/lib/data/ xfs|"), "/etc/fstab", "/dev/a / xfs|"),
		Entry("found by the label, in quotes", none, withFile("storage: {filesystems: [{device: /dev/b, format: xfs, label: b}]}", "/etc/fstab", `/dev/a / xfs|LABEL="b" /b xfs|`), "/etc/fstab", "/dev/a / xfs|"),
		Entry("found by the label of a partition without a file system", none, withFile("storage: {disks: [{device: /dev/sdb, partitions: [{label: b, number: 1}]}]}", "/etc/fstab", "/dev/a / xfs|PARTLABEL=b /b xfs|"), "/etc/fstab", "/dev/a / xfs|"),
		Entry("bound from a file system that it does not have", none, withFile(data, "/etc/fstab", "/dev/a / xfs|/var/lib/data/x /x none bind|"), "/etc/fstab", "/dev/a / xfs|"),
		Entry("with its own line", withFile(data, "/etc/fstab", "/dev/md/data /var/lib/data xfs|"), withFile("storage: {filesystems: [{device: /dev/b, format: xfs, path: /var/lib/data}]}", "/etc/fstab", "#|/dev/b /var/lib/data xfs|"),
			"/etc/fstab", "#|/dev/md/data /var/lib/data xfs|"),
		Entry("that the configuration has no longer", withFile(data, "/etc/fstab", "/dev/md/data /var/lib/data xfs|"), none, "/etc/fstab", "/dev/md/data /var/lib/data xfs|"),
		Entry("without a table of its own, it keeps that of its image", none, withFile(data, "/etc/fstab", "/dev/md/data /var/lib/data xfs|"), "/etc/fstab"),
		Entry("of volumes", none, withFile(`storage: {luks: [{name: data, device: /dev/b}]}`, "/etc/crypttab", "a /dev/a key|data UUID=1 key|"), "/etc/crypttab", "a /dev/a key|"),
		Entry("of volumes, by the device", none, withFile(`storage: {luks: [{name: data, device: /dev/b}]}`, "/etc/crypttab", "a /dev/a key|b /dev/b key|"), "/etc/crypttab", "a /dev/a key|"),
		Entry("in a file of a unit", none, withFile(data, "/etc/systemd/system/srv.mount", "[Mount]|What=/dev/md/data|"), "/etc/systemd/system/srv.mount"),
	)

	It("keeps its table if the new one is at a URL, and gets one that is not about devices that differ", func() {
		before := withFile(none, "/etc/fstab", "/dev/a / xfs|")
		remote := strings.TrimSuffix(data, "}") + `, files: [{path: /etc/fstab, mode: 420, contents: {source: "https://example.com/fstab"}}]}`
		Expect(contentsAfter(before, remote, "/etc/fstab")).To(Equal([]string{"/dev/a / xfs|"}))
		for name, contents := range map[string]string{"/etc/fstab": "/dev/a / xfs|# /dev/md/data|nfs:/x /x nfs", "/etc/other": "/dev/md/data /var/lib/data xfs|"} {
			Expect(contentsAfter(before, withFile(data, name, contents), name)).To(Equal([]string{contents}))
			Expect(named(keep(before, withFile(data, name, contents)).Outdated)).To(Equal([]string{"filesystem /dev/md/data"}))
		}
	})

	It("gets mount units of file systems that it has, and other units", func() {
		before := strings.TrimSuffix(data, "]}") + `, {device: /dev/b, format: xfs, path: /srv}]}`
		plan := keep(before, withUnit(data, "var-lib-data.mount", mountOfData))
		Expect(named(plan.Outdated)).To(Equal([]string{"filesystem /dev/b"}))
		Expect(plan.Changes).To(HaveLen(1))
		Expect(plan.Changes[0].String()).To(Equal("unit var-lib-data.mount"))
		plan = keep("storage: {}", withUnit(data, "data.service", "[Service]\\nExecStart=/dev/md/data"))
		Expect(named(plan.Outdated)).To(Equal([]string{"filesystem /dev/md/data"}))
		Expect(plan.Changes).To(HaveLen(1))
	})

	It("still can't change what else no running host can", func() {
		plan := update.New(parse(spec("{}")), parse(spec("{fips: true}")), keepingDisks(), update.AllCapabilities)
		Expect(plan.IsPossible()).To(BeFalse())
	})
})

var _ = Describe("Any two configs with other disks", func() {
	// isAboutDisks are the texts of disks in anySpec.
	isAboutDisks := []string{"/dev/", "wipeTable", "raid1", "ext4", "xfs"}

	It("are no obstacle in a pool with the policy NewHostsOnly, except as the reference refuses FIPS", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 500 {
			before, after := anySpec(random, true), anySpec(random, true)
			plan := update.New(parse(before), parse(after), keepingDisks(), update.AllCapabilities)
			hasOtherDisks := false
			for _, section := range []string{"disks", "raid", "filesystems"} {
				hasOtherDisks = hasOtherDisks || fmt.Sprint(listIn(generic(before), "storage", section)) != fmt.Sprint(listIn(generic(after), "storage", section))
			}
			Expect(len(plan.Outdated) > 0).To(Equal(hasOtherDisks), "%s\n%s", before.Config.Raw, after.Config.Raw)
			before.FIPS, after.FIPS = nil, nil
			plan = update.New(parse(before), parse(after), keepingDisks(), update.AllCapabilities)
			Expect(plan.Obstacles).To(BeEmpty())
			Expect(plan.Actions).To(ConsistOf(update.New(parse(withoutDisks(before)), parse(withoutDisks(after)), pool.NewUpdatePolicy(), update.AllCapabilities).Actions))
		}
	})

	It("lead to no operation about a disk, whatever the policy, and if everything is applied again", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		kinds := []update.OperationKind{update.ChangePath, update.ChangeEnablement, update.ChangeUser, update.ChangeGroup, update.ChangeKernelArguments, update.ChangeOS}
		for range 500 {
			before, after := anySpec(random, true), anySpec(random, true)
			from, to := parse(before), parse(after)
			kept := update.New(from, to, keepingDisks(), update.AllCapabilities)
			refused := update.New(from, to, pool.NewUpdatePolicy(), update.AllCapabilities)
			Expect(slices.Concat(update.Operations(from, to), update.Undo(update.Operations(from, to)))).To(Equal(
				slices.Concat(update.Operations(parse(withoutDisks(before)), parse(withoutDisks(after))), update.Undo(update.Operations(parse(withoutDisks(before)), parse(withoutDisks(after)))))))
			for _, operation := range slices.Concat(kept.Operations, refused.Operations, update.Operations(from, to), update.Desired(to)) {
				Expect(kinds).To(ContainElement(operation.Kind), "a kind that can change disks has no place here")
				text, err := json.Marshal(operation)
				Expect(err).NotTo(HaveOccurred())
				for _, word := range isAboutDisks {
					Expect(string(text)).NotTo(ContainSubstring(word))
				}
			}
		}
	})
})

// withoutDisks returns a spec without the lists about disks.
func withoutDisks(s poolv1.MachineConfigSpec) poolv1.MachineConfigSpec {
	GinkgoHelper()
	content := document{}
	Expect(json.Unmarshal(s.Config.Raw, &content)).To(Succeed())
	for _, section := range []string{"disks", "raid", "luks", "filesystems"} {
		delete(content["storage"].(document), section)
	}
	raw, err := json.Marshal(content)
	Expect(err).NotTo(HaveOccurred())
	without := rawSpec(string(raw))
	without.KernelArguments, without.Extensions, without.KernelType = s.KernelArguments, s.Extensions, s.KernelType
	return without
}
