package excerpt_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

func TestExcerpt(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Excerpts of texts")
}

var _ = DescribeTable("An excerpt", func(text string, size int, want string) {
	Expect(excerpt.Of(text, size)).To(Equal(want))
},
	Entry("is the whole text if it fits", "kubelet.service failed", 22, "kubelet.service failed"),
	Entry("ends between two words", "a unit of the host: kubelet.service failed", 30, "a unit of the host: …"),
	Entry("ends after a word that just fits", "kubelet.service failed", 19, "kubelet.service …"),
	Entry("ends between two lines", "first.service: failed\nsecond.service: failed", 30, "first.service: failed …"),
	Entry("has a part of a word that is longer than all", strings.Repeat("x", 30), 10, "xxxxxx …"),
	Entry("has whole characters", strings.Repeat("ü", 30), 11, "üüü …"),
	Entry("of nothing is nothing", "word", 0, ""),
)

var _ = It("Text that prints keeps lines and tabs, and nothing that controls a terminal", func() {
	text := "one\r\n\ttwo\x1b[31m \xff\u202e€"
	Expect(excerpt.Printable(text)).To(Equal("one\n\ttwo [31m \uFFFD €"))
	Expect(excerpt.Line(text, 100)).To(Equal("one two [31m \uFFFD €"))
	Expect(excerpt.Line(strings.Repeat("word\n", 20), 12)).To(Equal("word wor …"))
})

var _ = It("A list names the first of its names, and how many more there are", func() {
	names := []string{"c", "a", "b"}
	Expect(excerpt.List(2, names)).To(Equal("c, a and 1 more"))
	Expect(excerpt.List(3, names)).To(Equal("c, a, b"))
	Expect(excerpt.Names(2, names)).To(Equal("a, b and 1 more"))
	Expect(names).To(HaveExactElements("c", "a", "b"))
})

var _ = It("An excerpt of any text is valid and fits", func() {
	for _, text := range []string{"", "a", "a b", "ü ü", strings.Repeat("\xff", 40), strings.Repeat("word ", 20), strings.Repeat("€", 20)} {
		for size := range 60 {
			got := excerpt.Of(text, size)
			Expect(len(got)).To(BeNumerically("<=", size), "%q %d", text, size)
			Expect(utf8.ValidString(got)).To(BeTrue(), "%q %d", text, size)
		}
	}
})
