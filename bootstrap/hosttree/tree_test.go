package hosttree_test

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// gzipped is "packed", compressed.
const gzipped = "data:;base64,H4sIAAAAAAACAytITM5OTQEAELT2IQYAAAA="

func textFile(text string) hosttree.Entry {
	return hosttree.Entry{Type: hosttree.File, Mode: ptr.To[uint32](0o644), UID: ptr.To(0), GID: ptr.To(0), Contents: []byte(text)}
}

// replacing returns an entry for which Ignition replaces what is there.
func replacing(entry hosttree.Entry) hosttree.Entry {
	entry.Replaces = true
	return entry
}

var _ = Describe("What a configuration writes", func() {
	DescribeTable("is what Ignition writes, for",
		func(document string, want hosttree.Tree) {
			tree, err := treeOf(document, host)
			Expect(err).NotTo(HaveOccurred())
			Expect(tree).To(Equal(want))
		},
		Entry("a file with contents", `"storage":{"files":[{"path":"/a","contents":{"source":"data:,x%20y"}}]}`, hosttree.Tree{"/a": textFile("x y")}),
		Entry("an empty file", `"storage":{"files":[{"path":"/a","contents":{"source":"data:,"}}]}`, hosttree.Tree{"/a": textFile("")}),
		Entry("compressed contents, and more that is appended", `"storage":{"files":[{"path":"/a","contents":{"source":"`+gzipped+`","compression":"gzip"},"append":[{"source":"data:,-1"},{"source":"data:,-2"}]}]}`,
			hosttree.Tree{"/a": textFile("packed-1-2")}),
		Entry("a file without contents", `"storage":{"files":[{"path":"/a"}]}`, hosttree.Tree{"/a": {Type: hosttree.File}}),
		Entry("a file that something is appended to", `"storage":{"files":[{"path":"/a","append":[{"source":"data:,x"}]}]}`, hosttree.Tree{"/a": {Type: hosttree.File, Appends: true}}),
		Entry("a mode without its special bits, which Ignition ignores before spec 3.6", `"storage":{"directories":[{"path":"/a","mode":1517}]}`,
			hosttree.Tree{"/a": {Type: hosttree.Directory, Mode: ptr.To[uint32](0o755)}}),
		Entry("owners by name and by ID", `"storage":{"directories":[{"path":"/a","user":{"name":"core"},"group":{"name":"adm"}},{"path":"/b","user":{"id":7},"group":{"id":8}}]}`, hosttree.Tree{
			"/a": {Type: hosttree.Directory, UID: ptr.To(1000), GID: ptr.To(4)}, "/b": {Type: hosttree.Directory, UID: ptr.To(7), GID: ptr.To(8)},
		}),
		Entry("links", `"storage":{"links":[{"path":"/a","target":"../b","overwrite":true},{"path":"/c","target":"d/e","hard":true,"user":{"id":5}}]}`, hosttree.Tree{
			"/a": {Type: hosttree.Link, Target: "../b", Replaces: true}, "/c": {Type: hosttree.HardLink, Target: "/d/e"},
		}),
		Entry("units and drop-ins", `"systemd":{"units":[{"name":"a.service","contents":"a","dropins":[{"name":"1.conf","contents":""},{"name":"2.conf"}]},{"name":"b.service","contents":""}]}`, hosttree.Tree{
			"/etc/systemd/system/a.service": replacing(textFile("a")), "/etc/systemd/system/a.service.d/1.conf": replacing(textFile("")),
		}),
		Entry("masks", `"systemd":{"units":[{"name":"a.service","contents":"a","mask":true},{"name":"b.service","mask":false},{"name":"c.service","contents":"c","mask":false}]}`, hosttree.Tree{
			"/etc/systemd/system/a.service": {Type: hosttree.Link, Target: "/dev/null"}, "/etc/systemd/system/b.service": {Type: hosttree.Unmasked},
			"/etc/systemd/system/c.service": replacing(textFile("c")),
		}),
		Entry("units that are enabled and disabled", `"systemd":{"units":[{"name":"b.service","enabled":true},{"name":"a.service","enabled":false},{"name":"c@y.service","enabled":true},
			{"name":"c@x.service","enabled":true},{"name":"c@z.service","enabled":false},{"name":"d@.service","enabled":true},{"name":"e.service"}]}`,
			hosttree.Tree{hosttree.PresetPath: textFile("disable a.service\nenable b.service\ndisable c@.service z\nenable c@.service y x\nenable d@.service \n")}),
		Entry("SSH keys", `"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["1","2"]},{"name":"none"}]}`, hosttree.Tree{
			"/var/home/core/.ssh":                   {Type: hosttree.Directory, Mode: ptr.To[uint32](0o700), UID: ptr.To(1000), GID: ptr.To(1001), OnlyIfMissing: true},
			"/var/home/core/.ssh/authorized_keys.d": {Type: hosttree.Directory, Mode: ptr.To[uint32](0o700), UID: ptr.To(1000), GID: ptr.To(1001), OnlyIfMissing: true},
			"/var/home/core/.ssh/authorized_keys.d/ignition": {Type: hosttree.File, Mode: ptr.To[uint32](0o600), UID: ptr.To(1000), GID: ptr.To(1001),
				Contents: []byte("1\n2\n"), Replaces: true},
		}),
	)

	It("has one file with SSH keys if Ignition was built so", func() {
		single := host
		single.SingleKeysFile = true
		tree, err := treeOf(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["1"]}]}`, single)
		Expect(err).NotTo(HaveOccurred())
		Expect(tree.Paths()).To(Equal([]string{"/var/home/core/.ssh", "/var/home/core/.ssh/authorized_keys"}))
	})

	It("includes contents from a URL if they have their hash", func() {
		fetching := host
		fetching.Fetch = func(types.Resource) ([]byte, error) { return []byte("fetched"), nil }
		document := func(contents string) string {
			return fmt.Sprintf(`"storage":{"files":[{"path":"/a","contents":{"source":"https://example.com/a","verification":{"hash":"sha256-%x"}}}]}`, sha256.Sum256([]byte(contents)))
		}
		_, err := treeOf(document("other"), fetching)
		Expect(err).To(MatchError(HavePrefix("file /a: the contents, after decompression, don't have the hash in verification.hash: correct the contents, or ")))
		tree, err := treeOf(document("fetched"), fetching)
		Expect(err).NotTo(HaveOccurred())
		Expect(tree).To(Equal(hosttree.Tree{"/a": textFile("fetched")}))

		fetching.Fetch = func(types.Resource) ([]byte, error) { return nil, errors.New("no answer") }
		_, err = treeOf(document("fetched"), fetching)
		Expect(err).To(MatchError("file /a: no answer"))
		_, err = treeOf(document("fetched"), host)
		Expect(err).To(MatchError(HavePrefix("file /a: the contents are at another URL")))
	})

	DescribeTable("is refused, and the error names the entry and the remedy, with",
		func(document, message string) {
			_, err := treeOf(document, host)
			Expect(err).To(MatchError(HavePrefix(message)))
		},
		Entry("an unknown user", `"storage":{"files":[{"path":"/a","user":{"name":"nobody"}}]}`, `/a: user "nobody" does not exist on the host: create it in passwd.users`),
		Entry("an unknown group", `"storage":{"links":[{"path":"/a","target":"b","group":{"name":"none"}}]}`, `/a: group "none" does not exist on the host: create it in passwd.groups`),
		Entry("keys of an unknown user", `"passwd":{"users":[{"name":"other","sshAuthorizedKeys":["1"]}]}`, `passwd.users: user "other" does not exist on the host yet: create it before`),
	)
})

var _ = Describe("The changes between two trees", func() {
	It("are what differs, by path, and hard links to it", func() {
		from := hosttree.Tree{"/a": textFile("1"), "/b": textFile("1"), "/c": textFile("1"), "/d": {Type: hosttree.HardLink, Target: "/a"}, "/e": {Type: hosttree.HardLink, Target: "/b"}}
		to := hosttree.Tree{"/a": textFile("2"), "/b": textFile("1"), "/d": from["/d"], "/e": from["/e"], "/f": textFile("1")}
		changes := hosttree.Changes(from, to)
		Expect(changes).To(HaveLen(4))
		Expect(changes).To(HaveExactElements(
			HaveField("Path", "/a"), And(HaveField("Path", "/c"), HaveField("To", BeNil())), HaveField("Path", "/d"), HaveField("Path", "/f")))
		Expect(*changes[0].To).To(Equal(textFile("2")))
		Expect(hosttree.Changes(to, to)).To(BeEmpty())
	})
})

var _ = Describe("What a configuration writes to any host", func() {
	treeOfAny := func(document string) hosttree.Tree {
		GinkgoHelper()
		config, err := ignition.Parse([]byte(`{"ignition":{"version":"3.5.0"},` + document + `}`))
		Expect(err).NotTo(HaveOccurred())
		return hosttree.New(config)
	}

	It("has the names of owners and homes, and contents that are not decoded", func() {
		tree := treeOfAny(`"passwd":{"users":[{"name":"x","sshAuthorizedKeys":["1"]}]},"storage":{"files":[{"path":"/a","user":{"name":"x"},"group":{"name":"y"},"contents":{"source":"https://example.com/a"}}]}`)
		Expect(tree).To(And(HaveLen(4), HaveKeyWithValue("/a", And(HaveField("User", "x"), HaveField("Group", "y"), HaveField("Contents", BeNil()), HaveField("Sources", HaveLen(1)))),
			HaveKey("~x/.ssh/authorized_keys.d/ignition")))
	})

	file := func(rest string) string { return `"storage":{"files":[{"path":"/a",` + rest + `}]}` }

	DescribeTable("is the same with",
		func(one, other string) {
			Expect(hosttree.Changes(treeOfAny(one), treeOfAny(other))).To(BeEmpty())
		},
		Entry("another notation of the same contents", file(`"contents":{"source":"data:,packed"}`), file(`"mode":420,"contents":{"source":"`+gzipped+`","compression":"gzip"}`)),
		Entry("the same contents in parts", file(`"contents":{"source":"data:,packed"}`), file(`"contents":{"source":"data:,pa"},"append":[{"source":"data:,cked"}]`)),
		Entry("overwrite", `"storage":{"links":[{"path":"/a","target":"b","overwrite":true}]}`, `"storage":{"links":[{"path":"/a","target":"b"}]}`),
		Entry("an owner of a hard link, which has that of its file", `"storage":{"links":[{"path":"/a","target":"b","hard":true,"user":{"id":1}}]}`, `"storage":{"links":[{"path":"/a","target":"b","hard":true}]}`),
	)

	DescribeTable("differs with",
		func(one, other string) {
			Expect(hosttree.Changes(treeOfAny(one), treeOfAny(other))).To(ConsistOf(And(HaveField("Path", "/a"), HaveField("From", Not(BeNil())), HaveField("To", Not(BeNil())))))
		},
		Entry("other contents", file(`"contents":{"source":"data:,1"}`), file(`"contents":{"source":"data:,2"}`)),
		Entry("contents that stay, instead of none", file(`"mode":420,"user":{"id":0},"group":{"id":0}`), file(`"contents":{"source":"data:,"}`)),
		Entry("contents at another URL", file(`"contents":{"source":"https://example.com/a"}`), file(`"contents":{"source":"https://example.com/b"}`)),
		Entry("another mode", file(`"mode":420`), file(`"mode":384`)),
	)

	It("has no keys that a file replaces", func() {
		tree, err := treeOf(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["1"]}]},"storage":{"files":[{"path":"/var/home/core/.ssh/authorized_keys.d/ignition","contents":{"source":"data:,2"}}]}`, host)
		Expect(err).NotTo(HaveOccurred())
		Expect(tree["/var/home/core/.ssh/authorized_keys.d/ignition"]).To(Equal(textFile("2")))
	})
})

var _ = Describe("The accounts of a host", func() {
	It("are those that the C library finds", func() {
		Expect(hosttree.ParseAccounts(
			[]byte("root:x:0:0:root:/root:/bin/sh\n#old:x:1:1::/:/\ncore:x:1000:1001:,,,:/home/core:\ncore:x:2:2::/:\nbroken:x:y:1::/:\nshort:x:1\n\nlast:x:5:6::/last:/bin/false"),
			[]byte("root:x:0:\nadm:x:4:core,root\nadm:x:5:\nbroken:x::\nshort\n"),
		)).To(Equal(hosttree.Accounts{
			Users: map[string]hosttree.Account{
				"root": {Home: "/root"}, "core": {UID: 1000, GID: 1001, Home: "/home/core"}, "last": {UID: 5, GID: 6, Home: "/last"},
			},
			Groups: map[string]int{"root": 0, "adm": 4},
		}))
	})
})
