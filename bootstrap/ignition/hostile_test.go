package ignition_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
)

// repeat returns a list of count items.
func repeat(count int, item func(i int) string) string {
	items := make([]string, count)
	for i := range items {
		items[i] = item(i)
	}
	return strings.Join(items, ",")
}

// Each of these took seconds to minutes of processor time, or all memory, although it fits into an object.
var _ = Describe("A configuration that is expensive to check", func() {
	links := func(count int) string {
		return repeat(count, func(i int) string { return fmt.Sprintf(`{"path":"/opt/%d","target":"/opt"}`, i) })
	}

	DescribeTable("is refused before Ignition compares its links in pairs, and the error names the number, in spec version",
		func(version string) {
			list := strings.ReplaceAll(links(50_000), `{"path"`, `{"filesystem":"root","path"`)
			_, err := ignition.Parse([]byte(`{"ignition":{"version":"` + version + `"},"storage":{"links":[` + list + `]}}`))
			Expect(err).To(MatchError("storage.links: there are 50000 links, each of which Ignition compares with all 50000 files, directories and links: " +
				"these are 2500000000 pairs, and at most 4000000 are allowed: remove links, or create them with a file of tmpfiles.d"))
		},
		Entry(nil, "2.2.0"), Entry(nil, "3.0.0"), Entry(nil, "3.5.0"), Entry(nil, "3.6.0"),
	)

	It("is refused before Ignition reads a template for each of many instances, and the error names the number", func() {
		units := `{"name":"a@.service","contents":"[Unit]` + strings.Repeat(`\nA=b`, 100_000) + `"},` + repeat(1000, func(i int) string { return fmt.Sprintf(`{"name":"a@%d.service","enabled":true}`, i) })
		_, err := ignition.Parse([]byte(unit(units)))
		Expect(err).To(MatchError("systemd.units: Ignition reads a template once for each of its instances that is enabled: these are 400006000 bytes, and at most 10000000 are allowed: " +
			"shorten templates, or remove instances"))
	})

	It("is refused before Ignition compares partitions in pairs, and the error names the number", func() {
		_, err := ignition.Parse([]byte(storage("disks", `{"device":"/dev/a","partitions":[`+repeat(3000, func(i int) string { return fmt.Sprintf(`{"number":%d}`, i+1) })+`]}`)))
		Expect(err).To(MatchError("storage.disks: Ignition compares the partitions of each disk with each other: these are 9000000 pairs, and at most 4000000 are allowed: remove partitions"))
	})

	It("is accepted with as many links as are compared in time", func() {
		config, err := ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},"storage":{"links":[` + links(2000) + `]}}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(ignition.Guard(config)).To(Succeed())
		_, err = ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},"storage":{"links":[` + links(2001) + `]}}`))
		Expect(err).To(MatchError(HavePrefix("storage.links: there are 2001 links")))
	})

	It("is refused if only several configurations together have too many links", func() {
		config := ignition.Merge(parse(`{"ignition":{"version":"3.5.0"},"storage":{"links":[`+links(2000)+`]}}`), parse(storage("links", `{"path":"/a","target":"b"}`)))
		Expect(ignition.ValidateMerged(config)).To(MatchError(HavePrefix("storage.links: there are 2001 links")))
		Expect(ignition.Validate(config)).To(MatchError(HavePrefix("storage.links: there are 2001 links")))
	})

	It("has no path that is longer than Linux allows", func() {
		Expect(ignition.Guard(parse(storage("links", `{"path":"/l","target":"/`+strings.Repeat("a", 4095)+`"}`)))).To(MatchError("storage.links[0].target: the path has 4096 bytes, and Linux allows 4095: shorten it"))
	})

	It("has at most 100 refused entries in an error, and their number", func() {
		config := parse(`{"ignition":{"version":"3.5.0"},"storage":{"files":[` + repeat(5000, func(i int) string { return fmt.Sprintf(`{"path":"/etc/poolboot/%d"}`, i) }) + `]}}`)
		err := ignition.Guard(config)
		var refused *ignition.GuardError
		Expect(errors.As(err, &refused)).To(BeTrue())
		Expect(refused.Entries).To(HaveLen(100))
		Expect(err).To(MatchError(HaveSuffix("; and 4900 more")))
	})

	DescribeTable("has at most 100 problems in an error, and their number",
		func(document, end string) {
			_, err := ignition.Parse([]byte(document))
			if err == nil {
				_, err = ignition.CheckKeys([]byte(document))
			}
			var refused *ignition.ParseError
			Expect(errors.As(err, &refused)).To(BeTrue())
			Expect(refused.Problems).To(HaveLen(100))
			Expect(err).To(MatchError(HaveSuffix(end)))
		},
		Entry("about entries", `{"ignition":{"version":"3.5.0"},"storage":{"files":[`+repeat(3000, func(i int) string { return fmt.Sprintf(`{"path":"a%d"}`, i) })+`]}}`, "; and 2900 more"),
		Entry("about entries of spec 2", `{"ignition":{"version":"2.2.0"},"storage":{"files":[`+repeat(3000, func(i int) string { return fmt.Sprintf(`{"filesystem":"x","path":"/a%d"}`, i) })+`]}}`, "; and 2900 more"),
		Entry("about unknown keys", `{"ignition":{"version":"3.5.0"},"storage":{`+repeat(3000, func(i int) string { return fmt.Sprintf(`"a%d":"x"`, i) })+`}}`, "; and 2900 more"),
		Entry("about duplicate keys", `{"ignition":{"version":"3.5.0"},"storage":{`+repeat(3001, func(int) string { return `"files":[]` })+`}}`, "; and 2900 more"),
	)

	It("is not searched for the place of each of many unknown keys", func() {
		began := time.Now()
		_, err := ignition.CheckKeys([]byte(`{"ignition":{"version":"3.5.0"},` + repeat(80_000, func(i int) string { return fmt.Sprintf(`"k%d":1`, i) }) + `}`))
		Expect(err).To(MatchError(HaveSuffix("; and 79900 more")))
		Expect(time.Since(began)).To(BeNumerically("<", 15*time.Second))
	})

	It("has at most 8 MiB of contents after decompression", func() {
		packed := func(path string) string {
			return fmt.Sprintf(`{"path":%q,"contents":{"compression":"gzip","source":%q}}`, path, zipped(strings.Repeat("d /opt/a\n", 600_000)))
		}
		Expect(ignition.Guard(parse(storage("files", packed("/opt/a")+","+packed("/opt/b"))))).To(MatchError("storage.files[1].contents: /opt/b: the contents are too large to be checked after decompression: make them smaller"))
	})

	DescribeTable("is refused before Ignition's own parser reads too many values, and the error names the number, if",
		func(version, entry string) {
			const count = 10_001
			list := repeat(count, func(i int) string { return fmt.Sprintf(entry, i) })
			_, err := ignition.Parse([]byte(`{"ignition":{"version":"` + version + `"},"storage":{"files":[` + list + "\n]}}"))
			Expect(err).To(MatchError(MatchRegexp("^the document has [0-9]{5} values, and only 20000 are read of one that is .*: split it into several")))
		},
		Entry("its paths are relative, and it has lines", "3.5.0", `{"path":"a%d"}`),
		Entry("it is of an old spec version", "2.2.0", `{"filesystem":"root","path":"/opt/%d"}`),
	)

	It("has as many values as fit into an object if it is valid and of spec 3", func() {
		_, err := ignition.Parse([]byte(storage("files", repeat(20_000, func(i int) string { return fmt.Sprintf(`{"path":"/opt/%d"}`, i) }))))
		Expect(err).NotTo(HaveOccurred())
	})

	It("does not count what is in texts as values", func() {
		_, err := ignition.Parse([]byte(`{"ignition":{"version":"3.6.0"},"systemd":{"units":[{"name":"a.service","contents":"[Unit]\n` + strings.Repeat(`A=\"{[,\n`, 30_000) + `"}]}}`))
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("is refused before Butane translates it, and the error names the number, with",
		func(document, want string) {
			_, err := butane.Parse("variant: fcos\nversion: 1.5.0\n" + document)
			Expect(err).To(MatchError(MatchRegexp("^" + want + "$")))
		},
		Entry("many entries", "storage:\n  files:\n"+strings.Repeat("  - path: /opt/a\n", 4000),
			"there are 120[0-9]{2} keys and values after aliases are replaced, and at most 10000 are allowed: split the document into several"),
		Entry("aliases of aliases", "a: &a [1,1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n",
			"there are 1[0-9]{4} keys and values after aliases are replaced, and at most 10000 are allowed: split the document into several"),
		Entry("many aliases of a large text", "a: &a "+strings.Repeat("a", 100_000)+"\nb: ["+strings.Repeat("*a,", 30)+"]\n",
			"keys and values have 31000[0-9]{2} bytes after aliases are replaced, and at most 2097152 are allowed: use fewer aliases"),
		Entry("many mirrored disks", "boot_device:\n  mirror:\n    devices: ["+strings.Repeat("/dev/a,", 101)+"]\n",
			"boot_device.mirror.devices: there are 101 disks, and at most 100 are mirrored: remove disks"),
	)

	DescribeTable("has at most 100 problems of Butane in an error, and their number, which the API server joins in much more time",
		func(document string) {
			_, err := butane.Parse("variant: fcos\nversion: 1.5.0\n" + document)
			var refused *ignition.ParseError
			Expect(errors.As(err, &refused)).To(BeTrue())
			Expect(refused.Problems).To(HaveLen(100))
			Expect(err).To(MatchError(MatchRegexp("; and [0-9]{3,4} more$")))
		},
		Entry("about entries", "systemd:\n  units:\n"+strings.Repeat("  - name: a\n    name_: b\n", 1000)),
		Entry("about types", "storage:\n  files:\n"+strings.Repeat("  - path: [1]\n", 1000)),
	)

	It("has no kubelet configuration of more than 64 KiB", func() {
		Expect(ignition.Guard(parse(fileWith("/etc/kubernetes/kubelet.conf.d/a.conf", kubeletType+strings.Repeat("#", 64<<10))))).To(MatchError(ContainSubstring("at most 65536 are read")))
	})
})
