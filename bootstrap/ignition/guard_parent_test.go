package ignition_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// An Ignition on a host ends with "not a directory" or "file exists" for each of these, and the host never boots.
var _ = Describe("A configuration that needs a directory where it has something else", func() {
	DescribeTable("is refused",
		func(document, want string) {
			Expect(ignition.Guard(parse(`{"ignition":{"version":"3.5.0"},` + document + `}`))).To(MatchError(want + ": remove one of them, or change its path"))
		},
		Entry("a file below a file", `"storage":{"files":[{"path":"/opt/x/y"},{"path":"/opt/x"}]}`, "storage.files[0].path: /opt/x/y is below /opt/x, which is a file"),
		Entry("a file far below a file, between others", `"storage":{"files":[{"path":"/opt/x"},{"path":"/opt/x-y"},{"path":"/opt/x.d/a"},{"path":"/opt/x/y/z/a"}]}`, "storage.files[3].path: /opt/x/y/z/a is below /opt/x, which is a file"),
		Entry("a directory below a file", `"storage":{"files":[{"path":"/opt/x"}],"directories":[{"path":"/opt/x/y"}]}`, "storage.directories[0].path: /opt/x/y is below /opt/x, which is a file"),
		Entry("a link below a file", `"storage":{"files":[{"path":"/opt/x"}],"links":[{"path":"/opt/x/y","target":"a"}]}`, "storage.links[0].path: /opt/x/y is below /opt/x, which is a file"),
		Entry("a file below a unit", `"storage":{"files":[{"path":"/etc/systemd/system/a.service/x"}]},"systemd":{"units":[{"name":"a.service","contents":"[Unit]"}]}`,
			"storage.files[0].path: /etc/systemd/system/a.service/x is below /etc/systemd/system/a.service, which is a unit"),
		Entry("a directory below a masked unit", `"storage":{"directories":[{"path":"/etc/systemd/system/a.service/x"}]},"systemd":{"units":[{"name":"a.service","mask":true}]}`,
			"storage.directories[0].path: /etc/systemd/system/a.service/x is below /etc/systemd/system/a.service, which is a unit"),
		Entry("a file below a drop-in", `"storage":{"files":[{"path":"/etc/systemd/system/a.service.d/1.conf/x"}]},"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}`,
			"storage.files[0].path: /etc/systemd/system/a.service.d/1.conf/x is below /etc/systemd/system/a.service.d/1.conf, which is a drop-in"),
		Entry("a file where drop-ins are", `"storage":{"files":[{"path":"/etc/systemd/system/a.service.d"}]},"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}`,
			"systemd.units[0].dropins[0].name: /etc/systemd/system/a.service.d/1.conf is below /etc/systemd/system/a.service.d, which is a file"),
		Entry("a file where presets are", `"storage":{"files":[{"path":"/etc/systemd/system-preset"}]},"systemd":{"units":[{"name":"a.service","enabled":true}]}`,
			"systemd.units[0].enabled: /etc/systemd/system-preset/20-ignition.preset is below /etc/systemd/system-preset, which is a file"),
		Entry("a file where a file system is mounted", `"storage":{"files":[{"path":"/var/x"}],"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var/x"}]}`,
			"storage.filesystems[0].path: /var/x must be a directory, but is a file too"),
		Entry("a file system below a file", `"storage":{"files":[{"path":"/var/x"}],"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var/x/y"}]}`,
			"storage.filesystems[0].path: /var/x/y is below /var/x, which is a file"),
		Entry("a file where SSH keys are", `"storage":{"files":[{"path":"/home/a/.ssh"}]},"passwd":{"users":[{"name":"a","sshAuthorizedKeys":["x"]}]}`,
			"passwd.users[0].sshAuthorizedKeys: /home/a/.ssh/authorized_keys is below /home/a/.ssh, which is a file"),
		Entry("a file as the home directory of a user with SSH keys", `"storage":{"files":[{"path":"/srv/a"}]},"passwd":{"users":[{"name":"a","homeDir":"/srv/a","sshAuthorizedKeys":["x"]}]}`,
			"passwd.users[0].sshAuthorizedKeys: /srv/a/.ssh/authorized_keys is below /srv/a, which is a file"),
	)

	DescribeTable("is not one with",
		func(document string) {
			Expect(ignition.Guard(parse(`{"ignition":{"version":"3.5.0"},` + document + `}`))).To(Succeed())
		},
		Entry("files in directories", `"storage":{"directories":[{"path":"/opt/x"},{"path":"/opt/x/y"}],"files":[{"path":"/opt/x/y/z"},{"path":"/opt/x/a"}]}`),
		Entry("paths that begin alike", `"storage":{"files":[{"path":"/opt/x"},{"path":"/opt/x.d/y"},{"path":"/opt/xy/z"},{"path":"/opt/x-/a"}]}`),
		Entry("files beside a unit, its drop-ins, and links to it", `"storage":{"files":[{"path":"/etc/systemd/system/a.service.d/2.conf"}],
			"links":[{"path":"/etc/systemd/system/multi-user.target.wants/a.service","target":"/etc/systemd/system/a.service"}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}`),
		Entry("files in a file system", `"storage":{"directories":[{"path":"/var/x"}],"files":[{"path":"/var/x/y"}],"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var/x"}]}`),
		Entry("a file of SSH keys beside those of the user", `"storage":{"files":[{"path":"/home/a/.ssh/authorized_keys"}]},"passwd":{"users":[{"name":"a","sshAuthorizedKeys":["x"]}]}`),
		Entry("a unit without contents", `"storage":{"directories":[{"path":"/etc/systemd/system/a.service.d"}]},"systemd":{"units":[{"name":"a.service","mask":false,"contents":""}]}`),
	)
})
