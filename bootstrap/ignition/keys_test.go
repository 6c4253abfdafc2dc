package ignition_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("CheckKeys", func() {
	DescribeTable("refuses a key that Ignition would ignore with its content, and says what to do",
		func(document, path, remedy string) {
			_, err := ignition.CheckKeys([]byte(document))
			var lost *ignition.ParseError
			Expect(errors.As(err, &lost)).To(BeTrue(), "%v", err)
			Expect(lost.Problems).To(HaveLen(1))
			Expect(lost.Problems[0].Path).To(Equal(path))
			Expect(lost.Problems[0].Message).To(And(ContainSubstring("would ignore it with its content: "), HaveSuffix(remedy)))
		},
		Entry("Butane's text of a file", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/b","contents":{"inline":"x"}}]}}`,
			"storage.files[1].contents.inline", "set source to a data URL (data:,text), or write the whole document in Butane"),
		Entry("a file system of spec 2", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","filesystem":"data"}]}}`,
			"storage.files[0].filesystem", "set the full path"),
		Entry("spec 2's name of enabled", `{"ignition":{"version":"3.2.0"},"systemd":{"units":[{"name":"a.service","enable":true}]}}`, "systemd.units[0].enable", "set enabled"),
		Entry("units of networkd", `{"ignition":{"version":"3.2.0"},"networkd":{"units":[{"name":"a.network"}]}}`, "networkd", "/etc/systemd/network"),
		Entry("a key of a later version", `{"ignition":{"version":"3.2.0"},"kernelArguments":{"shouldExist":["a"]}}`, "kernelArguments", "set ignition.version to 3.3.0, which has it"),
		Entry("a key of a later version of spec 2", `{"ignition":{"version":"2.0.0"},"storage":{"directories":[{"path":"/a","filesystem":"root"}]}}`, "storage.directories", "set ignition.version to 2.1.0, which has it"),
		Entry("a wrong name", `{"ignition":{"version":"3.5.0"},"storage":{"fils":[{"path":"/a"}]}}`, "storage.fils", "correct its name to files, or remove it"),
		Entry("a wrong name in spec 2", `{"ignition":{"version":"2.2.0"},"passwd":{"user":[{"name":"core"}]}}`, "passwd.user", "correct its name to users, or remove it"),
		Entry("a key of no version", `{"ignition":{"version":"3.5.0"},"storage":{"qqqqqqqqqq":[{"path":"/a"}]}}`, "storage.qqqqqqqqqq", "correct its name, or remove it"),
		Entry("a key one level too high", `{"ignition":{"version":"3.5.0"},"files":[{"path":"/a"}]}`, "files", "move it to storage.files"),
		Entry("a key of an item beside the list", `{"ignition":{"version":"3.5.0"},"systemd":{"dropins":[{"name":"a.conf"}]}}`, "systemd.dropins", "move it to systemd.units[].dropins"),
		Entry("a key of several places", `{"ignition":{"version":"3.5.0"},"mode":420}`, "mode", "correct its name, or remove it"),
	)

	DescribeTable("refuses a key that is given twice, of which Ignition would lose one",
		func(document, path, message string) {
			_, err := ignition.CheckKeys([]byte(document))
			var lost *ignition.ParseError
			Expect(errors.As(err, &lost)).To(BeTrue(), "%v", err)
			Expect(lost.Problems).To(ConsistOf(ignition.Problem{Path: path, Message: message}))
		},
		Entry("in another case", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"}],"Files":[{"path":"/b"}]}}`,
			"storage.Files", "files and Files are the same key: remove one"),
		Entry("in a list", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/b","user":{"id":0},"mode":420,"Path":"/c"}]}}`,
			"storage.files[1].Path", "path and Path are the same key: remove one"),
		Entry("with a letter that Ignition's parser takes for s", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"}],"fileſ":[]}}`,
			"storage.fileſ", "files and fileſ are the same key: remove one"),
		Entry("in the same case", `{"ignition":{"version":"3.2.0"},"storage":{},"storage":{"files":[{"path":"/b"}]}}`,
			"storage", "storage is given twice: remove one"),
		Entry("in spec 2", `{"ignition":{"version":"2.2.0"},"systemd":{"units":[{"name":"a.service","Name":"b.service"}]}}`,
			"systemd.units[0].Name", "name and Name are the same key: remove one"),
	)

	It("lets objects of a list have the same keys, and comments repeat", func() {
		const document = `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a"},{"path":"/b"}],"directories":[{"path":"/c"}]},"//":"x","//":"y"}`
		_, err := ignition.CheckKeys([]byte(document))
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("warns of a key without content",
		func(document, path string) {
			warnings, err := ignition.CheckKeys([]byte(document))
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(HaveLen(1))
			Expect(warnings[0].Path).To(Equal(path))
		},
		Entry("the root file system", `{"ignition":{"version":"3.2.0"},"storage":{"files":[{"path":"/a","filesystem":"root"}]}}`, "storage.files[0].filesystem"),
		Entry("an empty object", `{"ignition":{"version":"3.2.0"},"networkd":{"units":[]}}`, "networkd"),
		Entry("a comment", `{"ignition":{"version":"3.2.0"},"_why":"because"}`, "_why"),
	)

	It("compares keys as Ignition's parser does, in any case", func() {
		const document = `{"ignition":{"version":"3.2.0"},"Storage":{"files":[{"Path":"/a","contents":{"Source":"data:,x"}}]},"systemd":{"units":[{"name":"a.service","Enabled":true}]}}`
		warnings, err := ignition.CheckKeys([]byte(document))
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(BeEmpty())
		Expect(parse(document).Storage.Files[0].Contents.Source).To(HaveValue(Equal("data:,x")), "it is not lost")
	})

	It("knows every key of a whole document", func() {
		warnings, err := ignition.CheckKeys([]byte(whole))
		Expect(err).NotTo(HaveOccurred())
		Expect(warnings).To(BeEmpty())
	})

	It("leaves malformed documents to Parse", func() {
		for _, document := range []string{"", "{", "[]", `{"ignition":{"version":"9.9.9"}}`, `{"ignition":3}`} {
			warnings, err := ignition.CheckKeys([]byte(document))
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(BeEmpty())
		}
	})
})
