package ignition_test

import (
	"errors"
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
)

// infratest is the MachineConfig from the Machine Config Operator's documentation of custom pools.
const infratest = `{"ignition":{"version":"2.2.0"},"storage":{"files":[
  {"contents":{"source":"data:,infra"},"filesystem":"root","mode":420,"path":"/etc/infratest"}]}}`

var _ = Describe("Parse", func() {
	It("reads the MachineConfig from the documentation of custom pools", func() {
		expectGolden("infratest.ign", []byte(marshal(parse(infratest))))
	})

	DescribeTable("reads every supported version",
		func(version string) {
			filesystem := ""
			if version[0] == '2' {
				filesystem = `"filesystem":"root",`
			}
			enabled := "enabled"
			if version == "2.0.0" {
				enabled = "enable" // its name before spec 2.1
			}
			config := parse(fmt.Sprintf(`{"ignition":{"version":%q},"storage":{"files":[
				{"path":"/etc/motd",%s"contents":{"source":"data:,hi"}}]},"systemd":{"units":[{"name":"a.service",%q:true}]}}`,
				version, filesystem, enabled))
			Expect(config.Ignition.Version).To(Equal(ignition.Version))
			Expect(config.Storage.Files).To(HaveLen(1))
			Expect(config.Storage.Files[0].Path).To(Equal("/etc/motd"))
			Expect(config.Storage.Files[0].Contents.Source).To(HaveValue(Equal("data:,hi")))
			Expect(config.Systemd.Units[0].Enabled).To(HaveValue(BeTrue()))
		},
		Entry(nil, "2.0.0"), Entry(nil, "2.1.0"), Entry(nil, "2.2.0"), Entry(nil, "2.3.0"), Entry(nil, "2.4.0"),
		Entry(nil, "3.0.0"), Entry(nil, "3.1.0"), Entry(nil, "3.2.0"), Entry(nil, "3.3.0"), Entry(nil, "3.4.0"), Entry(nil, "3.5.0"), Entry(nil, "3.6.0"),
	)

	It("reads a whole document of 3.6 as one of 3.5", func() {
		Expect(parse(strings.Replace(whole, `"version":"3.5.0"`, `"version":"3.6.0"`, 1))).To(Equal(parse(whole)))
	})

	It("reads every version as Ignition's own parser does", func() {
		special := strings.Replace(whole, `"mode":420`, `"mode":2541`, 1)
		for _, document := range []string{whole, special} {
			for _, version := range []string{"3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"} {
				document := strings.Replace(document, `"version":"3.5.0"`, fmt.Sprintf(`"version":%q`, version), 1)
				theirs, entries, err := v3_5.ParseCompatibleVersion([]byte(document))
				Expect(err).NotTo(HaveOccurred(), "%s: %s", version, entries)
				Expect(parse(document)).To(Equal(theirs), version)
			}
		}
	})

	It("reads enable, the old name of enabled", func() {
		config := parse(`{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service","enable":true},{"name":"b.service"}]}}`)
		Expect(config.Systemd.Units[0].Enabled).To(HaveValue(BeTrue()))
		Expect(config.Systemd.Units[1].Enabled).To(BeNil())
	})

	It("uses the last of duplicate files, units and users in spec 2, with all drop-ins and keys", func() {
		twice := parse(`{"ignition":{"version":"2.2.0"},
			"storage":{"files":[{"path":"/a","filesystem":"root","mode":384,"contents":{"source":"data:,1"}},{"path":"/a","filesystem":"root","contents":{"source":"data:,2"}}]},
			"systemd":{"units":[{"name":"a.service","contents":"[Unit]","dropins":[{"name":"1.conf","contents":"[Unit]"},{"name":"2.conf"}]},
				{"name":"a.service","enabled":true,"dropins":[{"name":"1.conf","contents":"[Service]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k1","k2","k1"]},{"name":"core","passwordHash":"x","sshAuthorizedKeys":["k2","k3"]}]}}`)
		Expect(marshal(twice)).To(MatchJSON(`{"ignition":{"version":"3.5.0"},
			"storage":{"files":[{"path":"/a","overwrite":true,"contents":{"source":"data:,2"}}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"dropins":[{"name":"1.conf","contents":"[Service]"},{"name":"2.conf"}]}]},
			"passwd":{"users":[{"name":"core","passwordHash":"x","sshAuthorizedKeys":["k2","k3","k1"]}]}}`))
	})

	It("uses the last of duplicate certificate authorities in spec 2, at the position of the first", func() {
		twice := parse(`{"ignition":{"version":"2.2.0","security":{"tls":{"certificateAuthorities":[
			{"source":"data:,a"},{"source":"data:,b"},{"source":"data:,a","verification":{"hash":"sha512-` + strings.Repeat("0", 128) + `"}}]}}}}`)
		Expect(marshal(twice)).To(MatchJSON(`{"ignition":{"version":"3.5.0","security":{"tls":{"certificateAuthorities":[
			{"source":"data:,a","verification":{"hash":"sha512-` + strings.Repeat("0", 128) + `"}},{"source":"data:,b"}]}}}}`))
	})

	It("reads the entries that differ in specs 2.0 and 2.1", func() {
		Expect(marshal(parse(`{"ignition":{"version":"2.0.0"},
			"storage":{"files":[{"filesystem":"root","path":"/a","mode":420,"user":{"id":5},"contents":{"source":"data:,1"}}]},
			"systemd":{"units":[{"name":"a.service","enable":true,"contents":"[Unit]","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k1"]}]}}`))).To(MatchJSON(`{"ignition":{"version":"3.5.0"},
			"storage":{"files":[{"path":"/a","mode":420,"overwrite":true,"user":{"id":5},"group":{"id":0},"contents":{"source":"data:,1"}}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Unit]","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]},
			"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["k1"]}]}}`))
		Expect(marshal(parse(`{"ignition":{"version":"2.1.0"},"storage":{
			"directories":[{"filesystem":"root","path":"/d","mode":493}],
			"links":[{"filesystem":"root","path":"/l","target":"/d"}],
			"files":[{"filesystem":"root","path":"/a","mode":420,"user":{"name":"core"},"contents":{"source":"data:,1"}}]}}`))).To(MatchJSON(`{"ignition":{"version":"3.5.0"},"storage":{
			"directories":[{"path":"/d","mode":493}],
			"links":[{"path":"/l","target":"/d"}],
			"files":[{"path":"/a","mode":420,"overwrite":true,"user":{"name":"core"},"contents":{"source":"data:,1"}}]}}`))
	})

	It("accepts partitions of spec 2 with the default start and size", func() {
		for _, version := range []string{"2.2.0", "2.4.0"} {
			Expect(marshal(parse(`{"ignition":{"version":"` + version + `"},"storage":{"disks":[{"device":"/dev/a","partitions":[{"number":1,"label":"a","start":0,"size":0}]}]}}`))).
				To(MatchJSON(`{"ignition":{"version":"3.5.0"},"storage":{"disks":[{"device":"/dev/a","partitions":[{"number":1,"label":"a"}]}]}}`))
		}
	})

	DescribeTable("names the path of an error",
		func(document, path, message string) {
			_, err := ignition.Parse([]byte(document))
			var parseError *ignition.ParseError
			Expect(errors.As(err, &parseError)).To(BeTrue(), "%v", err)
			Expect(parseError.Problems[0].Path).To(Equal(path))
			Expect(parseError.Error()).To(ContainSubstring(message))
		},
		Entry("nothing", ``, "", "the document is empty"),
		Entry("not an object", `[]`, "", "must be an object, not a list"),
		Entry("cut off", `{"ignition":{"version":"3.1.0"}`, "ignition", "unexpected end of JSON input"),
		Entry("broken", `{"ignition":{"version":"3.2.0"},"storage":}`, "storage", "invalid character"),
		Entry("no version", `{"ignition":{}}`, "ignition.version", "missing"),
		Entry("Butane", `{"variant":"fcos","version":"1.5.0"}`, "variant", "this is Butane, not Ignition: translate it with kubectl poolboot convert --butane"),
		Entry("invalid version", `{"ignition":{"version":"new"}}`, "ignition.version", `"new" is not supported: use one of 2.0.0 to`),
		Entry("version of the wrong type", `{"ignition":{"version":3}}`, "ignition.version", "must be a string"),
		Entry("version too old", `{"ignition":{"version":"1.0.0"}}`, "ignition.version", "2.0.0 to 2.4.0 and 3.0.0 to 3.6.0"),
		Entry("a value that only 3.6 accepts", `{"ignition":{"version":"3.6.0"},"storage":{"luks":[{"name":"a","device":"/dev/a","clevis":{"custom":{"pin":"pkcs11","config":"{}"}}}]}}`,
			"storage.luks[0].clevis.custom.pin", "Ignition accepts this from spec 3.6 on, and the Ignition of a host can be older"),
		Entry("a setuid bit, which only 3.6 sets", `{"ignition":{"version":"3.6.0"},"storage":{"files":[{"path":"/a"},{"path":"/b","mode":2541}]}}`,
			"storage.files[1].mode", "a setuid, setgid or sticky bit: Ignition accepts this from spec 3.6 on"),
		Entry("a sticky directory, which only 3.6 makes", `{"ignition":{"version":"3.6.0"},"storage":{"directories":[{"path":"/b","mode":1023}]}}`,
			"storage.directories[0].mode", "a setuid, setgid or sticky bit"),
		Entry("a relative path, spec 3.6", `{"ignition":{"version":"3.6.0"},"storage":{"files":[{"path":"b"}]}}`, "storage.files[0].path", "path not absolute"),
		Entry("mode as a string, spec 3.6", `{"ignition":{"version":"3.6.0"},"storage":{"files":[{"path":"/b","mode":"0644"}]}}`, "storage.files[0].mode", "0644 is 420"),
		Entry("version too new", `{"ignition":{"version":"3.7.0"}}`, "ignition.version", "2.0.0 to 2.4.0 and 3.0.0 to 3.6.0"),
		Entry("mode as a string", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/b","mode":"0644"}]}}`,
			"storage.files[1].mode", "0644 is 420"),
		Entry("mode as a string, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/b","mode":"0644"}]}}`,
			"storage.files[0].mode", "must be a whole number"),
		Entry("mode with a fraction", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/b","mode":420.0}]}}`,
			"storage.files[0].mode", "must be a whole number without fraction and exponent, not 420.0"),
		Entry("not a list", `{"ignition":{"version":"3.4.0"},"storage":{"files":{"path":"/ok"}}}`, "storage.files", "must be a list"),
		Entry("impossible mode", `{"ignition":{"version":"3.1.0"},"storage":{"files":[{"path":"/a","mode":99999}]}}`,
			"storage.files[0].mode", "illegal file mode"),
		Entry("impossible mode, spec 2", `{"ignition":{"version":"2.4.0"},"storage":{"files":[{"path":"/a","filesystem":"root","mode":99999}]}}`,
			"storage.files[0].mode", "illegal file mode"),
		Entry("relative path", `{"ignition":{"version":"3.1.0"},"storage":{"files":[{"path":"/a"},{"path":"b"}]}}`,
			"storage.files[1].path", "path not absolute"),
		Entry("path that is not simplified", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc//mine/../hostname"}]}}`,
			"storage.files[0].path", "not fully simplified: write it without //, . and .., and without / at its end"),
		Entry("path twice", `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a"},{"path":"/a"}]}}`,
			"storage.files[1]", "duplicate entry defined: remove one of them, or merge them"),
		Entry("path twice, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{
			"files":[{"path":"/a","filesystem":"root"}],"directories":[{"path":"/a","filesystem":"root"}]}}`,
			"storage.directories[0].path", "conflicting"),
		Entry("drop-in twice, spec 2", `{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service",
			"dropins":[{"name":"b.conf"},{"name":"b.conf"}]}]}}`, "systemd.units[0].dropins", "duplicate dropin"),
		Entry("broken unit", `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit"}]}}`,
			"systemd.units[0].contents", "invalid unit content"),
		Entry("broken unit, spec 2", `{"ignition":{"version":"2.3.0"},"systemd":{"units":[{"name":"b.service"},{"name":"a.service","contents":"[Unit"}]}}`,
			"systemd.units[1].contents", "invalid unit content"),
		Entry("other filesystem", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"data"}]}}`,
			"storage.files[0].filesystem", `use "root"`),
		Entry("filesystem by name", `{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"data","path":"/data"}]}}`,
			"storage.filesystems[0].name", "data"),
		Entry("mode over 0777, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"root"},{"path":"/b","filesystem":"root","mode":1023}]}}`,
			"storage.files[1].mode", "mode 01777 is above 0777"),
		Entry("mode of a directory over 0777, spec 2", `{"ignition":{"version":"2.3.0"},"storage":{"directories":[{"path":"/a","filesystem":"root","mode":1023}]}}`,
			"storage.directories[0].mode", "mode 01777 is above 0777"),
		Entry("root file system, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"root","mount":{"device":"/dev/a","format":"xfs"}}]}}`,
			"storage.filesystems[0].mount", "use spec 3"),
		Entry("a user with fields of older versions", `{"ignition":{"version":"2.2.0"},"passwd":{"users":[{"name":"core","create":{"uid":5}}]}}`,
			"passwd.users[0].create", "set uid"),
		Entry("file twice that appends, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a","filesystem":"root","append":true},{"path":"/a","filesystem":"root","append":true}]}}`,
			"storage.files[1].path", "conflicting"),
		Entry("start of a partition in sectors, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"disks":[{"device":"/dev/a","partitions":[{"number":1},{"number":2,"start":2048,"size":0}]}]}}`,
			"storage.disks[0].partitions[1].start", "is in sectors, which spec 3 does not have: set startMiB, and ignition.version to 2.3.0"),
		Entry("size of a partition in sectors, spec 2", `{"ignition":{"version":"2.4.0"},"storage":{"disks":[{"device":"/dev/a","partitions":[{"number":1,"size":4096}]}]}}`,
			"storage.disks[0].partitions[0].size", "is in sectors, which spec 3 does not have: set sizeMiB, and ignition.version to 2.3.0"),
		Entry("file system without a path, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"filesystems":[{"name":"data","mount":{"device":"/dev/a","format":"xfs"}}]}}`,
			"storage.filesystems[0].name", `the file system "data" has no path in spec 2: write it in spec 3, with device and path`),
		Entry("file without a file system, spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"files":[{"path":"/a"}]}}`, "storage.files[0].path", "no filesystem specified: set filesystem to root"),
		Entry("spaces in a data URL", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:,100% sure"}}]}}`,
			"storage.files[0].contents.source", "invalid data character: write % as %25, a space as %20 and so on, or the contents in base64 after data:;base64,"),
		Entry("lines in a data URL", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","contents":{"source":"data:;base64,YWJj\nYWJj"}}]}}`,
			"storage.files[0].contents.source", "unable to parse url: write it on one line, without other control characters"),
		Entry("networkd", `{"ignition":{"version":"2.2.0"},"networkd":{"units":[{"name":"a.network"}]}}`, "networkd.units", "networkd"),
		Entry("file that appends and overwrites", `{"ignition":{"version":"2.3.0"},"storage":{"files":[
			{"path":"/a","filesystem":"root","append":true,"overwrite":true}]}}`, "storage.files[0]", "append"),
	)

	It("names the line", func() {
		_, err := ignition.Parse([]byte("{\"ignition\": {\"version\": \"3.5.0\"},\n \"storage\": {\"files\": [\n  {\"path\": \"a\"}\n]}}"))
		Expect(err).To(MatchError("storage.files[0].path (line 3): path not absolute: use a path that begins with /"))
	})

	It("writes the same bytes for the same configuration, whatever its source", func() {
		once := marshal(parse(infratest))
		Expect(marshal(parse(once))).To(Equal(once))
		Expect(marshal(parse(`{"systemd":{},"storage":{"files":[{"path":"/etc/infratest","overwrite":true,"mode":420,"user":{},
			"contents":{"source":"data:,infra","verification":{}}}]},"ignition":{"version":"3.5.0"}}`))).To(Equal(once))
	})
})

var _ = Describe("Butane", func() {
	DescribeTable("is read in every version that becomes Ignition 3.0 to 3.6", func(version string) {
		config, err := butane.Parse(`variant: fcos
version: ` + version + `
storage:
  files:
  - path: /etc/motd
    mode: 0644
    contents: {inline: "hello"}
`)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Storage.Files[0].Mode).To(HaveValue(Equal(0o644)))
		expectIgnitionReads([]byte(marshal(config)))
	}, Entry(nil, "1.0.0"), Entry(nil, "1.5.0"), Entry(nil, "1.6.0"), Entry(nil, "1.7.0"))

	It("is read in the variant openshift without its MachineConfig", func() {
		config, err := butane.Parse("variant: openshift\nversion: 4.14.0\nmetadata:\n  name: a\n" +
			"  labels: {machineconfiguration.openshift.io/role: infra}\nstorage:\n  files:\n  - path: /etc/motd\n    contents: {inline: hi}\n")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Storage.Files).To(HaveLen(1))
	})

	DescribeTable("names the path of an error",
		func(text, message string) {
			_, err := butane.Parse(text)
			Expect(err).To(BeAssignableToTypeOf(&ignition.ParseError{}))
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("nothing", "", "variant: is missing: set fcos, flatcar"),
		Entry("no variant", "version: 1.5.0", "variant: is missing: set fcos, flatcar"),
		Entry("no version", "variant: fcos", "version: is missing or malformed: set 1.0.0 to 1."),
		Entry("unknown variant", "variant: flat\nversion: 1.0.0", `variant: "flat" is unknown: set fcos`),
		Entry("a version that results in a newer Ignition spec", "variant: fcos\nversion: 1.8.0-experimental", `version: translates to Ignition that can't be read, use an older version: ignition.version: version "3.7.0-experimental"`),
		Entry("broken YAML", "variant: fcos\nversion: 1.5.0\nstorage: [\n", "line 3"),
		Entry("wrong type", "variant: fcos\nversion: 1.5.0\nstorage:\n  files: none\n", "line 4"),
		Entry("wrong value", "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: etc/x\n", "storage.files[0].path (line 5): path not absolute"),
		Entry("unknown key", "variant: fcos\nversion: 1.5.0\nstorge: {}\n", "storge (line 3): unused key"),
		Entry("local file", "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/x\n    contents: {local: passwd}\n",
			"storage.files[0].contents.local (line 6)"),
		Entry("a field of OpenShift's MachineConfig", "variant: openshift\nversion: 4.14.0\nmetadata:\n  name: a\n"+
			"  labels: {machineconfiguration.openshift.io/role: infra}\nopenshift: {kernel_type: realtime}\n", "openshift.kernel_type (line 6)"),
	)
})
