package ignition_test

import (
	"github.com/coreos/ignition/v2/config/v3_5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Each entry is one kind of entry that two MachineConfigs have. docs/pools.md has the same table.
var _ = DescribeTable("Merge of an entry that is given twice does what Ignition does",
	func(base, over, merged string) {
		whole := func(part string) string { return `{"ignition":{"version":"3.5.0"},` + part + `}` }
		Expect(marshal(v3_5.Merge(parse(whole(base)), parse(whole(over))))).To(MatchJSON(whole(merged)), "by Ignition's own merge")
		Expect(marshal(ignition.Merge(parse(whole(base)), parse(whole(over))))).To(MatchJSON(whole(merged)))
	},
	Entry("a unit: contents of one and the mask of the other",
		`"systemd":{"units":[{"name":"a.service","contents":"[Unit]","enabled":true}]}`, `"systemd":{"units":[{"name":"a.service","mask":true,"enabled":false}]}`,
		`"systemd":{"units":[{"name":"a.service","contents":"[Unit]","enabled":false,"mask":true}]}`),
	Entry("a drop-in",
		`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Unit]"},{"name":"2.conf","contents":"[Unit]"}]}]}`,
		`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Service]"}]}]}`,
		`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Service]"},{"name":"2.conf","contents":"[Unit]"}]}]}`),
	Entry("appended parts of a file",
		`"storage":{"files":[{"path":"/a","append":[{"source":"data:,1"}]}]}`, `"storage":{"files":[{"path":"/a","append":[{"source":"data:,2"}]}]}`,
		`"storage":{"files":[{"path":"/a","append":[{"source":"data:,1"},{"source":"data:,2"}]}]}`),
	Entry("a directory",
		`"storage":{"directories":[{"path":"/a","mode":448,"user":{"name":"u"}}]}`, `"storage":{"directories":[{"path":"/a","mode":493}]}`,
		`"storage":{"directories":[{"path":"/a","mode":493,"user":{"name":"u"}}]}`),
	Entry("a link",
		`"storage":{"links":[{"path":"/a","target":"/b"}]}`, `"storage":{"links":[{"path":"/a","target":"/c"}]}`,
		`"storage":{"links":[{"path":"/a","target":"/c"}]}`),
	Entry("a path that is a file and a directory",
		`"storage":{"files":[{"path":"/a","mode":420}]}`, `"storage":{"directories":[{"path":"/a","mode":493}]}`,
		`"storage":{"directories":[{"path":"/a","mode":493}]}`),
	Entry("a user",
		`"passwd":{"users":[{"name":"core","shell":"/bin/sh","groups":["a","b"],"sshAuthorizedKeys":["k1"]}]}`,
		`"passwd":{"users":[{"name":"core","shell":"/bin/bash","groups":["b","c"],"sshAuthorizedKeys":["k2"]}]}`,
		`"passwd":{"users":[{"name":"core","shell":"/bin/bash","groups":["a","b","c"],"sshAuthorizedKeys":["k1","k2"]}]}`),
	Entry("a group",
		`"passwd":{"groups":[{"name":"ops","gid":1}]}`, `"passwd":{"groups":[{"name":"ops","gid":2}]}`, `"passwd":{"groups":[{"name":"ops","gid":2}]}`),
	Entry("a disk: partitions by number",
		`"storage":{"disks":[{"device":"/dev/a","partitions":[{"number":1,"label":"x"},{"number":2,"label":"y"}]}]}`,
		`"storage":{"disks":[{"device":"/dev/a","wipeTable":true,"partitions":[{"number":1,"label":"z"}]}]}`,
		`"storage":{"disks":[{"device":"/dev/a","wipeTable":true,"partitions":[{"number":1,"label":"z"},{"number":2,"label":"y"}]}]}`),
	Entry("a RAID: its devices add up",
		`"storage":{"raid":[{"name":"r","level":"raid1","devices":["/dev/a"]}]}`, `"storage":{"raid":[{"name":"r","level":"raid0","devices":["/dev/b"]}]}`,
		`"storage":{"raid":[{"name":"r","level":"raid0","devices":["/dev/a","/dev/b"]}]}`),
	Entry("a LUKS volume",
		`"storage":{"luks":[{"name":"l","device":"/dev/a","label":"x","clevis":{"tpm2":true}}]}`, `"storage":{"luks":[{"name":"l","device":"/dev/b"}]}`,
		`"storage":{"luks":[{"name":"l","device":"/dev/b","label":"x","clevis":{"tpm2":true}}]}`),
	Entry("a file system",
		`"storage":{"filesystems":[{"device":"/dev/a","format":"xfs","path":"/x"}]}`, `"storage":{"filesystems":[{"device":"/dev/a","format":"ext4"}]}`,
		`"storage":{"filesystems":[{"device":"/dev/a","format":"ext4","path":"/x"}]}`),
	Entry("kernel arguments: one that is removed later does not exist",
		`"kernelArguments":{"shouldExist":["quiet","nosmt"]}`, `"kernelArguments":{"shouldExist":["quiet"],"shouldNotExist":["nosmt"]}`,
		`"kernelArguments":{"shouldExist":["quiet"],"shouldNotExist":["nosmt"]}`),
)
