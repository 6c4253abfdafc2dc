package ignition_test

import (
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// withHash returns a resource whose hash is that of some contents.
func withHash(source, compression, contents string) string {
	return fmt.Sprintf(`{"source":%q,"compression":%q,"verification":{"hash":"sha512-%x"}}`, source, compression, sha512.Sum512([]byte(contents)))
}

// contentsIn returns a document with a resource at each place where Ignition has one, except references to documents.
func contentsIn(resource string) string {
	return `{"ignition":{"version":"3.5.0","security":{"tls":{"certificateAuthorities":[{"source":"https://ca"},` + resource + `]}}},"storage":{` +
		`"files":[{"path":"/etc/a"},{"path":"/etc/b","contents":` + resource + `},{"path":"/etc/c","append":[{"source":"data:,a"},` + resource + `]}],` +
		`"luks":[{"name":"a","device":"/dev/a","keyFile":` + resource + `}]}}`
}

// contentPlaces are the places of the resource in contentsIn, in the order of messages.
var contentPlaces = []string{"ignition.security.tls.certificateAuthorities[1]", "storage.luks[0].keyFile", "storage.files[1].contents", "storage.files[2].append[1]"}

var _ = Describe("Contents that a host would refuse", func() {
	expectRefused := func(document, field, message string) {
		GinkgoHelper()
		var malformed *ignition.ParseError
		Expect(errors.As(ignition.CheckContents(parse(document)), &malformed)).To(BeTrue())
		var guarded *ignition.GuardError
		Expect(errors.As(ignition.Guard(parse(document)), &guarded)).To(BeTrue())
		Expect(malformed.Problems).To(HaveLen(len(contentPlaces)))
		var places []string
		for i, place := range contentPlaces {
			Expect(malformed.Problems[i].Path).To(Equal(place + field))
			Expect(malformed.Problems[i].Message).To(ContainSubstring(message))
			places = append(places, place+field)
		}
		var refused []string
		for _, entry := range guarded.Entries {
			refused = append(refused, entry.Path)
			Expect(entry.Why).To(ContainSubstring(message))
		}
		Expect(refused).To(Equal(places))
	}

	DescribeTable("are refused in every field, because of",
		func(resource, field, message string) { expectRefused(contentsIn(resource), field, message) },
		Entry("the hash of other contents", withHash("data:,a%0A", "", "a"), ".verification.hash", "don't have the hash in verification.hash: correct the contents, or set sha512-"),
		Entry("a hash that is not hexadecimal", `{"source":"data:,a","verification":{"hash":"sha256-`+strings.Repeat("x", 64)+`"}}`, ".verification.hash", "don't have the hash"),
		Entry("the hash of the gzip file", withHash("data:;base64,H4sIAAAAAAACAytITM5OTQEAELT2IQYAAAA=", "gzip", "\x1f\x8b"), ".verification.hash", "after decompression"),
		Entry("contents that are not compressed", `{"source":"data:,a","compression":"gzip"}`, "", "not a gzip file: compress them, or remove compression"),
		Entry("a gzip file that is cut off", `{"source":"data:;base64,H4sIAAAAAAACAytITM5OTQEA","compression":"gzip"}`, "", "malformed gzip file: compress them again"),
	)

	DescribeTable("are not",
		func(resource string) {
			Expect(ignition.CheckContents(parse(contentsIn(resource)))).To(Succeed())
			Expect(ignition.Guard(parse(contentsIn(resource)))).To(Succeed())
		},
		Entry("contents with their hash", withHash("data:,a%0A", "", "a\n")),
		Entry("contents with their SHA-256 in upper case", fmt.Sprintf(`{"source":"data:,a","verification":{"hash":"sha256-%X"}}`, sha256.Sum256([]byte("a")))),
		Entry("compressed contents with the hash of what is compressed", withHash("data:;base64,H4sIAAAAAAACAytITM5OTQEAELT2IQYAAAA=", "gzip", "packed")),
		Entry("contents at another URL", withHash("https://example.com/a", "gzip", "a")),
	)

	It("are not those of an empty source, which Ignition does not read", func() {
		config := parse(storage("files", `{"path":"/etc/a","contents":`+withHash("", "gzip", "a")+`}`))
		Expect(ignition.CheckContents(config)).To(Succeed())
		Expect(ignition.Guard(config)).To(Succeed())
	})

	It("include documents that are merged", func() {
		err := ignition.CheckContents(parse(`{"ignition":{"version":"3.5.0","config":{"merge":[{"source":"https://a"},` + withHash("data:,a", "", "b") + `],"replace":` + withHash("data:,a", "", "b") + `}}}`))
		Expect(err).To(MatchError(And(ContainSubstring("ignition.config.merge[1].verification.hash: "), ContainSubstring("ignition.config.replace.verification.hash: "))))
	})

	It("include a gzip bomb", func() {
		bomb := fmt.Sprintf(`{"source":%q,"compression":"gzip"}`, zipped(strings.Repeat("\n", 65<<20)))
		Expect(ignition.CheckContents(parse(contentsIn(bomb)))).To(MatchError(ContainSubstring("too large to be checked")))
	})
})
