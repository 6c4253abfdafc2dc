package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("The origins of a rendered config", func() {
	pools := []poolv1.MachineConfigPool{newPool("worker"), newPool("infra")}
	originsOf := func(configs ...poolv1.MachineConfig) []pool.Origin {
		GinkgoHelper()
		rendered, err := pool.Render("infra", pools, configs)
		Expect(err).NotTo(HaveOccurred())
		return rendered.Origins
	}
	ignitionOf := func(name, role, sections string) poolv1.MachineConfig {
		return withIgnition(name, role, `{"ignition":{"version":"3.5.0"},`+sections+`}`)
	}

	It("name the MachineConfig that wins and those that it overrides, for each entry", func() {
		base := ignitionOf("99-worker", "worker", `
			"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}},{"path":"/etc/b"}],
				"directories":[{"path":"/opt/d"}],"links":[{"path":"/opt/l","target":"/opt/d"}],
				"disks":[{"device":"/dev/sda"}],"filesystems":[{"device":"/dev/sdb"}],
				"raid":[{"name":"r","level":"raid0","devices":["/dev/sdc"]}],"luks":[{"name":"k","device":"/dev/sdd"}]},
			"systemd":{"units":[{"name":"a.service","contents":"[Unit]","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k1"]}],"groups":[{"name":"admins"}]},
			"kernelArguments":{"shouldExist":["quiet"],"shouldNotExist":["nosmt"]}`)
		over := ignitionOf("10-infra", "infra", `
			"storage":{"files":[{"path":"/etc/a","mode":384}]},
			"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Service]"},{"name":"2.conf","contents":"[Unit]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k2"]}]}`)
		last := ignitionOf("20-infra", "infra", `"storage":{"files":[{"path":"/etc/a","mode":420}]}`)
		Expect(originsOf(over, last, base)).To(Equal([]pool.Origin{
			{Kind: pool.KindFile, Name: "/etc/a", MachineConfig: "20-infra", Overrides: []string{"99-worker", "10-infra"}},
			{Kind: pool.KindFile, Name: "/etc/b", MachineConfig: "99-worker"},
			{Kind: pool.KindDirectory, Name: "/opt/d", MachineConfig: "99-worker"},
			{Kind: pool.KindLink, Name: "/opt/l", MachineConfig: "99-worker"},
			{Kind: pool.KindUnit, Name: "a.service", MachineConfig: "99-worker"},
			{Kind: pool.KindDropin, Name: "a.service.d/1.conf", MachineConfig: "10-infra", Overrides: []string{"99-worker"}},
			{Kind: pool.KindDropin, Name: "a.service.d/2.conf", MachineConfig: "10-infra"},
			{Kind: pool.KindUser, Name: "core", MachineConfig: "10-infra", Overrides: []string{"99-worker"}},
			{Kind: pool.KindGroup, Name: "admins", MachineConfig: "99-worker"},
			{Kind: pool.KindDisk, Name: "/dev/sda", MachineConfig: "99-worker"},
			{Kind: pool.KindRaid, Name: "r", MachineConfig: "99-worker"},
			{Kind: pool.KindLuks, Name: "k", MachineConfig: "99-worker"},
			{Kind: pool.KindFilesystem, Name: "/dev/sdb", MachineConfig: "99-worker"},
			{Kind: pool.KindKernelArgument, Name: "quiet", MachineConfig: "99-worker"},
			{Kind: pool.KindRemovedKernelArgument, Name: "nosmt", MachineConfig: "99-worker"},
		}))
	})

	It("name each MachineConfig of a list, and the last of a single value", func() {
		base, over := ignitionOf("99-worker", "worker", `"storage":{}`), ignitionOf("10-infra", "infra", `"storage":{}`)
		base.Spec.KernelArguments, over.Spec.KernelArguments = []string{"quiet", "nosmt"}, []string{"quiet"}
		base.Spec.Extensions, over.Spec.Extensions = []string{"usbguard"}, []string{"kdump"}
		base.Spec.KernelType, over.Spec.KernelType = poolv1.KernelTypeRealtime, poolv1.KernelTypeDefault
		base.Spec.OSImageURL = "registry.example/os:1"
		base.Spec.BaseOSExtensionsContainerImage, over.Spec.BaseOSExtensionsContainerImage = "registry.example/extensions:1", "registry.example/extensions:2"
		base.Spec.FIPS, over.Spec.FIPS = ptr.To(true), ptr.To(false)
		Expect(originsOf(base, over)).To(Equal([]pool.Origin{
			{Kind: pool.KindKernelArgument, Name: "quiet", MachineConfig: "99-worker"},
			{Kind: pool.KindKernelArgument, Name: "nosmt", MachineConfig: "99-worker"},
			{Kind: pool.KindKernelArgument, Name: "quiet", MachineConfig: "10-infra"},
			{Kind: pool.KindExtension, Name: "usbguard", MachineConfig: "99-worker"},
			{Kind: pool.KindExtension, Name: "kdump", MachineConfig: "10-infra"},
			{Kind: pool.KindKernelType, Name: "default", MachineConfig: "10-infra", Overrides: []string{"99-worker"}},
			{Kind: pool.KindOSImageURL, Name: "registry.example/os:1", MachineConfig: "99-worker"},
			{Kind: pool.KindExtensionsImage, Name: "registry.example/extensions:2", MachineConfig: "10-infra", Overrides: []string{"99-worker"}},
			{Kind: pool.KindFIPS, Name: "true", MachineConfig: "99-worker"},
		}))
	})

	It("do not contain a file that a link replaces", func() {
		file := ignitionOf("10-infra", "infra", `"storage":{"files":[{"path":"/etc/a"}]}`)
		link := ignitionOf("20-infra", "infra", `"storage":{"links":[{"path":"/etc/a","target":"/etc/b"}]}`)
		Expect(originsOf(file, link)).To(Equal([]pool.Origin{{Kind: pool.KindLink, Name: "/etc/a", MachineConfig: "20-infra"}}))
	})

	It("are empty without MachineConfigs", func() {
		Expect(originsOf()).To(BeEmpty())
	})

	DescribeTable("are described for the files, units and disks that a text names:", func(text, described string) {
		Expect(pool.DescribeOrigins(originsOf(
			ignitionOf("50-a", "infra", `"storage":{"files":[{"path":"/etc/a"},{"path":"/etc/a.d/b"},{"path":"/etc/systemd/system/b.service"}],
				"disks":[{"device":"/dev/sdb","wipeTable":true}],"raid":[{"name":"data","level":"raid1","devices":["/dev/sdb"]}]},"kernelArguments":{"shouldExist":["quiet"]},
				"systemd":{"units":[{"name":"a.service","contents":"[Unit]"}]}`),
			ignitionOf("60-b", "infra", `"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}`)), text)).To(Equal(described))
	},
		Entry("a file", "/etc/a: no space left on device", "file /etc/a comes from MachineConfig 50-a"),
		Entry("a unit, which also depends on its drop-ins", `Restart a.service: exit status 1, see "journalctl -u a.service"`,
			"unit a.service comes from MachineConfig 50-a, dropin a.service.d/1.conf comes from MachineConfig 60-b"),
		Entry("the file of a drop-in", "write /etc/systemd/system/a.service.d/1.conf.", "dropin a.service.d/1.conf comes from MachineConfig 60-b"),
		Entry("a unit that is a file", "write /etc/systemd/system/b.service: read-only", "file /etc/systemd/system/b.service comes from MachineConfig 50-a"),
		Entry("a disk, but no array, whose name is any word", "disk /dev/sdb, RAID data: it changes", "disk /dev/sdb comes from MachineConfig 50-a"),
		Entry("a word that is no path and no unit", "be quiet about /etc/a.d", ""),
		Entry("nothing", "", ""),
	)
})
