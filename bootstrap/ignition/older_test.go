package ignition_test

import (
	"errors"
	"os"
	"regexp"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_0"
	"github.com/coreos/ignition/v2/config/v3_1"
	"github.com/coreos/ignition/v2/config/v3_2"
	"github.com/coreos/ignition/v2/config/v3_3"
	"github.com/coreos/ignition/v2/config/v3_4"
	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/vcontext/report"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// own parses a document with the parser of its version only.
var own = map[string]func([]byte) (report.Report, error){
	"3.0.0": reader(v3_0.Parse), "3.1.0": reader(v3_1.Parse), "3.2.0": reader(v3_2.Parse),
	"3.3.0": reader(v3_3.Parse), "3.4.0": reader(v3_4.Parse), "3.5.0": reader(v3_5.Parse),
}

func reader[Config any](parse func([]byte) (Config, report.Report, error)) func([]byte) (report.Report, error) {
	return func(document []byte) (report.Report, error) {
		_, entries, err := parse(document)
		return entries, err
	}
}

var _ = Describe("The releases of Ignition that read a spec version", func() {
	It("are those that the documentation lists", func() {
		document, err := os.ReadFile("../../docs/dev/config-server.md")
		Expect(err).NotTo(HaveOccurred())
		for _, version := range ignition.VersionsWritten {
			Expect(string(document)).To(MatchRegexp(`(?m)^\| %s \| %s \|`, regexp.QuoteMeta(version), regexp.QuoteMeta(ignition.FirstRelease(version))), version)
		}
	})
})

var _ = Describe("A configuration in an older spec version", func() {
	It("is the same document except for its version, and Ignition's parser of that version knows all entries", func() {
		config := parse(`{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 a"]}]},
			"storage":{"directories":[{"path":"/var/a","mode":1023}],"links":[{"path":"/etc/b","target":"/etc/a"}],
			"files":[{"path":"/etc/a","mode":420,"overwrite":true,"contents":{"compression":"","source":"data:,hi"}},{"path":"/etc/c","append":[{"source":"https://a/b"}]}],
			"filesystems":[{"device":"/dev/a","format":"xfs","path":"/var"}],"raid":[{"name":"a","level":"raid1","devices":["/dev/a","/dev/b"]}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Service]\nExecStart=/bin/true","dropins":[{"name":"a.conf","contents":"[Unit]"}]}]}}`)
		Expect(own).To(HaveLen(len(ignition.VersionsWritten)))
		for _, version := range ignition.VersionsWritten {
			document, err := ignition.WriteAs(config, version)
			Expect(err).NotTo(HaveOccurred())
			Expect(string(document)).To(Equal(strings.Replace(marshal(config), `"version":"3.5.0"`, `"version":"`+version+`"`, 1)))
			entries, err := own[version](document)
			Expect(err).NotTo(HaveOccurred(), entries.String())
			Expect(entries.String()).NotTo(ContainSubstring("unused"), version)
		}
	})

	DescribeTable("is refused if that version does not support an entry, with the path of the entry", func(since, document, path string) {
		config := parse(`{"ignition":{"version":"3.5.0"` + document + `}`)
		var newest error // from the newest version that does not support the entry
		for _, version := range ignition.VersionsWritten {
			_, err := ignition.WriteAs(config, version)
			if version >= since {
				Expect(err).NotTo(HaveOccurred(), version)
				continue
			}
			wrong, ok := errors.AsType[*ignition.VersionError](err)
			Expect(ok).To(BeTrue(), "%s: %v", version, err)
			Expect(wrong.Version).To(Equal(version))
			Expect(wrong.Path).NotTo(BeEmpty())
			newest = err
		}
		Expect(newest).To(MatchError(HavePrefix(path + ": ")))
	},
		Entry("a key for an IBM crypto card", "3.5.0", `},"storage":{"luks":[{"name":"a","device":"/dev/a","cex":{"enabled":true}}]}`, "storage.luks[0].cex.enabled"),
		Entry("trim on an encrypted disk", "3.4.0", `},"storage":{"luks":[{"name":"a","device":"/dev/a","discard":true}]}`, "storage.luks[0].discard"),
		Entry("an S3 object with its access point", "3.4.0", `,"config":{"merge":[{"source":"arn:aws:s3:us-west-1:123456789012:accesspoint/test/object/some/path"}]}}`, "ignition.config.merge[0]"),
		Entry("kernel arguments", "3.3.0", `},"kernelArguments":{"shouldExist":["nosmt"]}`, "kernelArguments.shouldExist"),
		Entry("an encrypted disk", "3.2.0", `},"storage":{"luks":[{"name":"a","device":"/dev/a"}]}`, "storage.luks"),
		Entry("a user that must not exist", "3.2.0", `},"passwd":{"users":[{"name":"a"},{"name":"core","shouldExist":false}]}`, "passwd.users[1].shouldExist"),
		Entry("an HTTP header", "3.1.0", `,"config":{"merge":[{"source":"https://a","httpHeaders":[{"name":"a","value":"b"}]}]}}`, "ignition.config.merge[0].httpHeaders"),
		Entry("a proxy", "3.1.0", `,"proxy":{"httpProxy":"http://a"}}`, "ignition.proxy.httpProxy"),
	)

	It("is not written in an unknown version", func() {
		for _, version := range []string{"", "2.4.0", "3.6.0", "3.5"} {
			_, err := ignition.WriteAs(ignition.New(), version)
			Expect(err).To(MatchError(ContainSubstring("3.0.0")), version)
		}
	})
})
