package ignition_test

import (
	"reflect"
	"slices"

	"github.com/coreos/ignition/v2/config/util"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("Validate", func() {
	DescribeTable("refuses what Ignition refuses",
		func(spoil func(c *ignition.Config)) {
			config := parse(whole)
			Expect(ignition.Validate(config)).To(Succeed())
			spoil(&config)
			Expect(validate.ValidateWithContext(config, nil).IsFatal()).To(BeTrue())
			Expect(ignition.Validate(config)).To(BeAssignableToTypeOf(&ignition.ParseError{}))
			if !slices.Contains(unbroken, CurrentSpecReport().LeafNodeText) {
				Expect(ignition.ValidateMerged(config)).To(Equal(ignition.Validate(config)))
			}
		},
		Entry("version", func(c *ignition.Config) { c.Ignition.Version = "3.4.0" }),
		Entry("file path", func(c *ignition.Config) { c.Storage.Files[0].Path = "a" }),
		Entry("file mode", func(c *ignition.Config) { *c.Storage.Files[0].Mode = 1 << 20 }),
		Entry("contents of a file", func(c *ignition.Config) { *c.Storage.Files[0].Contents.Source = "data:;base64,?" }),
		Entry("headers for contents that are not fetched", func(c *ignition.Config) {
			c.Storage.Files[0].Contents = types.Resource{Source: ptr.To("data:,f"), HTTPHeaders: types.HTTPHeaders{{Name: "a", Value: ptr.To("b")}}}
		}),
		Entry("verification", func(c *ignition.Config) { *c.Storage.Files[0].Contents.Verification.Hash = "sha1-0" }),
		Entry("appended contents", func(c *ignition.Config) { *c.Storage.Files[1].Append[0].Source = "ftp://a" }),
		Entry("owner", func(c *ignition.Config) { c.Storage.Files[0].User.ID = new(int) }),
		Entry("file twice", func(c *ignition.Config) { c.Storage.Files[1].Path = c.Storage.Files[0].Path }),
		Entry("file that is also a directory", func(c *ignition.Config) { c.Storage.Directories[0].Path = c.Storage.Files[0].Path }),
		Entry("file below a link", func(c *ignition.Config) { c.Storage.Files[0].Path = c.Storage.Links[0].Path + "/a" }),
		Entry("link without a target", func(c *ignition.Config) { c.Storage.Links[0].Target = nil }),
		Entry("unit's name", func(c *ignition.Config) { c.Systemd.Units[0].Name = "a.b" }),
		Entry("unit's contents", func(c *ignition.Config) { *c.Systemd.Units[0].Contents = "[Unit" }),
		Entry("drop-in's contents", func(c *ignition.Config) { *c.Systemd.Units[0].Dropins[0].Contents = "[Unit" }),
		Entry("drop-in's name", func(c *ignition.Config) { c.Systemd.Units[0].Dropins[0].Name = "a" }),
		Entry("drop-in twice", func(c *ignition.Config) {
			c.Systemd.Units[0].Dropins = append(c.Systemd.Units[0].Dropins, c.Systemd.Units[0].Dropins[0])
		}),
		Entry("user twice", func(c *ignition.Config) { c.Passwd.Users = append(c.Passwd.Users, c.Passwd.Users[0]) }),
		Entry("kernel argument that should and should not exist", func(c *ignition.Config) { c.KernelArguments.ShouldNotExist = c.KernelArguments.ShouldExist }),
		Entry("device", func(c *ignition.Config) { c.Storage.Raid[0].Devices[0] = "a" }),
		Entry("partition", func(c *ignition.Config) { *c.Storage.Disks[0].Partitions[0].Label = "a:b" }),
		Entry("filesystem", func(c *ignition.Config) { *c.Storage.Filesystems[0].Path = "var" }),
		Entry("tang", func(c *ignition.Config) { c.Storage.Luks[0].Clevis.Tang[0].URL = "a" }),
		Entry("proxy", func(c *ignition.Config) { *c.Ignition.Proxy.HTTPSProxy = "a" }),
		Entry("authority", func(c *ignition.Config) { *c.Ignition.Security.TLS.CertificateAuthorities[0].Source = "a" }),
	)

	It("refuses a configuration with an invalid value in every field", func() {
		Expect(ignition.Validate(util.NonZeroValue(reflect.TypeFor[ignition.Config]()).Interface().(ignition.Config))).NotTo(Succeed())
	})
})

// unbroken are the entries that ValidateMerged need not check, because a merge of valid configurations never has them.
var unbroken = []string{"file path", "file mode", "contents of a file", "unit's name", "unit's contents", "drop-in's name", "drop-in's contents"}

// whole is a document with an entry in every list.
const whole = `{"ignition":{"version":"3.5.0","proxy":{"httpsProxy":"https://p"},
		"security":{"tls":{"certificateAuthorities":[{"source":"https://ca"}]}}},
	"kernelArguments":{"shouldExist":["quiet"]},
	"passwd":{"users":[{"name":"core"}],"groups":[{"name":"admin"}]},
	"storage":{
		"disks":[{"device":"/dev/a","partitions":[{"number":1,"label":"p"}]}],
		"raid":[{"name":"r","level":"raid0","devices":["/dev/b"]}],
		"luks":[{"name":"k","device":"/dev/c","clevis":{"tang":[{"url":"https://t","thumbprint":"x"}]}}],
		"filesystems":[{"device":"/dev/d","format":"xfs","path":"/var"}],
		"files":[{"path":"/f","mode":420,"user":{"name":"core"},"contents":{"source":"https://f","verification":{"hash":"sha512-` +
	`5ae625665f3e0bd0a065ed07a41989e4025b79d13930a2a8c57d6b4325226707d956a082d1e91b4d96a793562df98fd03c9dcf743c9c7b4e3055d4f9f09ba015"}}},{"path":"/g","append":[{"source":"data:,g"}]}],
		"directories":[{"path":"/d"}],"links":[{"path":"/l","target":"/d"}]},
	"systemd":{"units":[{"name":"a.service","contents":"[Unit]","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}}`
