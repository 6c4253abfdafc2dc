package ignition_test

import (
	"fmt"
	"math/rand"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// file returns a document with one file.
func file(body string) string {
	return `{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd",` + body + `}]}}`
}

// anyConfig returns a configuration with random entries of the lists that have keys. Each entry has a random field.
func anyConfig(random *rand.Rand) ignition.Config {
	GinkgoHelper()
	lists := []struct {
		section, list string
		keys, fields  []string
	}{
		{"storage", "files", []string{`"path":"/a"`, `"path":"/b"`, `"path":"/c"`}, []string{`"mode":420`, `"mode":384`, `"overwrite":false`,
			`"contents":{"source":"data:,x"}`, `"contents":{"compression":"gzip","source":"data:,y"}`, `"append":[{"source":"data:,z"}]`, `"user":{"id":1}`}},
		{"storage", "directories", []string{`"path":"/d"`, `"path":"/c"`}, []string{`"mode":493`, `"user":{"name":"a"}`}},
		{"storage", "filesystems", []string{`"device":"/dev/a"`, `"device":"/dev/b"`}, []string{`"format":"xfs"`, `"format":"ext4","label":"l"`}},
		{"storage", "disks", []string{`"device":"/dev/c"`}, []string{`"wipeTable":true`, `"partitions":[{"number":1,"label":"p"}]`, `"partitions":[{"number":2}]`}},
		{"storage", "raid", []string{`"name":"r","level":"raid0","devices":["/dev/a"]`}, []string{`"spares":0`, `"options":["-v"]`}},
		{"systemd", "units", []string{`"name":"a.service"`, `"name":"b.service"`}, []string{`"enabled":true`, `"mask":false`, `"contents":"[Unit]"`,
			`"dropins":[{"name":"1.conf","contents":"[Unit]"}]`, `"dropins":[{"name":"2.conf"},{"name":"1.conf"}]`}},
		{"passwd", "users", []string{`"name":"core"`, `"name":"admin"`}, []string{`"sshAuthorizedKeys":["k1"]`, `"sshAuthorizedKeys":["k2","k1"]`, `"uid":5`}},
	}
	document := map[string][]string{}
	for _, list := range lists {
		var entries []string
		for _, key := range list.keys {
			if random.Intn(2) == 0 {
				entries = append(entries, "{"+key+","+list.fields[random.Intn(len(list.fields))]+"}")
			}
		}
		document[list.section] = append(document[list.section], fmt.Sprintf("%q:[%s]", list.list, strings.Join(entries, ",")))
	}
	// An invalid combination, such as a file and a directory with the same path, is discarded.
	config, err := ignition.Parse([]byte(fmt.Sprintf(`{"ignition":{"version":"3.5.0"},"storage":{%s},"systemd":{%s},"passwd":{%s}}`,
		strings.Join(document["storage"], ","), strings.Join(document["systemd"], ","), strings.Join(document["passwd"], ","))))
	if err != nil {
		return anyConfig(random)
	}
	return config
}

var _ = Describe("Merge", func() {
	DescribeTable("of one file",
		func(base, over, merged string) {
			Expect(marshal(ignition.Merge(parse(file(base)), parse(file(over))))).To(MatchJSON(file(merged)))
		},
		Entry("uses the later contents", `"contents":{"source":"data:,a"}`, `"contents":{"source":"data:,b"}`,
			`"contents":{"source":"data:,b"},"overwrite":true`),
		Entry("keeps fields that the later one does not set", `"mode":420,"contents":{"source":"data:,a"}`, `"mode":384`,
			`"mode":384,"contents":{"source":"data:,a"},"overwrite":true`),
		Entry("removes the compression of contents that are replaced",
			`"contents":{"compression":"gzip","source":"data:;base64,H4sI"}`, `"contents":{"source":"data:,b"}`,
			`"contents":{"source":"data:,b"},"overwrite":true`),
		Entry("keeps the compression of contents that are not replaced",
			`"contents":{"compression":"gzip","source":"data:;base64,H4sI"}`, `"mode":384`,
			`"mode":384,"contents":{"compression":"gzip","source":"data:;base64,H4sI"},"overwrite":true`),
		Entry("removes the hash of contents that are replaced",
			`"contents":{"source":"data:,a","verification":{"hash":"sha256-ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"}}`,
			`"contents":{"source":"data:,b"}`, `"contents":{"source":"data:,b"},"overwrite":true`),
		Entry("removes the headers of contents that are replaced",
			`"contents":{"source":"https://a","httpHeaders":[{"name":"X-Key","value":"k"}]}`,
			`"contents":{"source":"https://b"}`, `"contents":{"source":"https://b"},"overwrite":true`),
		Entry("keeps overwrite false if it is set", `"mode":420`, `"overwrite":false,"contents":{"source":"data:,b"}`,
			`"mode":420,"contents":{"source":"data:,b"},"overwrite":false`),
		Entry("does not set overwrite if there are no contents", `"mode":420`, `"append":[{"source":"data:,b"}]`,
			`"mode":420,"append":[{"source":"data:,b"}]`),
	)

	It("adds files, units and drop-ins, and replaces a file by a link", func() {
		base := parse(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/a"},{"path":"/b"}]},
			"systemd":{"units":[{"name":"a.service","dropins":[{"name":"1.conf","contents":"[Unit]"}]}]}}`)
		over := parse(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/c"}],"links":[{"path":"/b","target":"/c"}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"dropins":[{"name":"2.conf","contents":"[Unit]"}]},{"name":"b.service"}]}}`)
		Expect(marshal(ignition.Merge(base, over))).To(MatchJSON(`{"ignition":{"version":"3.5.0"},
			"storage":{"files":[{"path":"/a"},{"path":"/c"}],"links":[{"path":"/b","target":"/c"}]},
			"systemd":{"units":[{"name":"a.service","enabled":true,"dropins":[
				{"name":"1.conf","contents":"[Unit]"},{"name":"2.conf","contents":"[Unit]"}]},{"name":"b.service"}]}}`))
	})

	It("does not change its arguments", func() {
		base, over := parse(file(`"contents":{"compression":"gzip","source":"data:;base64,H4sI"}`)), parse(file(`"contents":{"source":"data:,b"}`))
		before, beforeOver := marshal(base), marshal(over)
		ignition.Merge(base, over)
		Expect(marshal(base)).To(Equal(before))
		Expect(marshal(over)).To(Equal(beforeOver))
	})

	It("keeps no field of a file that a link has replaced, even if a later configuration has the file again", func() {
		link := parse(storage("links", `{"path":"/etc/motd","target":"/a"}`))
		merged := ignition.Merge(parse(file(`"mode":384`)), link, parse(file(`"contents":{"source":"data:,b"}`)))
		Expect(marshal(merged)).To(MatchJSON(file(`"contents":{"source":"data:,b"},"overwrite":true`)))
	})

	It("remembers that a file must not be overwritten", func() {
		merged := ignition.Merge(parse(file(`"overwrite":false`)), parse(file(`"contents":{"source":"data:,b"}`)), parse(file(`"mode":384`)))
		Expect(marshal(merged)).To(MatchJSON(file(`"mode":384,"contents":{"source":"data:,b"},"overwrite":false`)))
	})

	DescribeTable("of a link", func(link, merged string) {
		Expect(marshal(ignition.Merge(parse(storage("links", link))))).To(MatchJSON(storage("links", merged)))
	},
		Entry("overwrites a hard link, which has another target when an interrupted first boot starts over",
			`{"path":"/a","target":"/b","hard":true}`, `{"path":"/a","target":"/b","hard":true,"overwrite":true}`),
		Entry("keeps overwrite false of a hard link if it is set",
			`{"path":"/a","target":"/b","hard":true,"overwrite":false}`, `{"path":"/a","target":"/b","hard":true,"overwrite":false}`),
		Entry("does not change a symbolic link", `{"path":"/a","target":"/b"}`, `{"path":"/a","target":"/b"}`),
	)

	It("returns the same for many configurations as for one after the other", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 300 {
			var configs []ignition.Config
			for range 2 + random.Intn(5) {
				configs = append(configs, anyConfig(random))
			}
			Expect(marshal(ignition.Merge(configs...))).To(Equal(marshal(mergedInTurn(configs))))
		}
	})

	It("returns an empty configuration for no arguments", func() {
		Expect(ignition.Merge()).To(Equal(ignition.New()))
	})

	It("keeps the version, even with a configuration that has none", func() {
		Expect(ignition.Merge(ignition.New(), ignition.Config{}).Ignition.Version).To(Equal("3.5.0"))
	})

	It("can return a configuration that Ignition refuses, which Validate reports", func() {
		merged := ignition.Merge(
			parse(`{"ignition":{"version":"3.5.0"},"storage":{"links":[{"path":"/etc/a","target":"/b"}]}}`),
			parse(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/a/b"}]}}`))
		Expect(ignition.Validate(merged)).To(MatchError(ContainSubstring("storage.files[0]")))
		Expect(ignition.Validate(ignition.New())).To(Succeed())
	})
})
