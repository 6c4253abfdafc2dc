package hostfiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

var _ = Describe("A journal", func() {
	DescribeTable("is refused with its path and what to do, and nothing is changed, if it",
		func(change func(string) string, why, remedy string) {
			root := newHost()
			u := open(root)
			Expect(u.Apply(hosttree.Changes(nil, configA), false)).To(Succeed())
			Expect(u.Close()).To(Succeed())
			name := filepath.Join(root, "var/lib/poolboot/files.journal")
			data, err := os.ReadFile(name)
			Expect(err).NotTo(HaveOccurred())
			Expect(os.WriteFile(name, []byte(change(string(data))), 0o600)).To(Succeed())
			before := snapshot(root)

			_, err = tryOpen(root)
			var refused *durable.JournalError
			Expect(errors.As(err, &refused)).To(BeTrue())
			Expect(refused.Path).To(Equal("/var/lib/poolboot/files.journal"))
			Expect(refused.Error()).To(And(HavePrefix("journal /var/lib/poolboot/files.journal: "), ContainSubstring(why), ContainSubstring(remedy)))
			Expect(differing(snapshot(root), before)).To(BeEmpty())

			By("the lock is free again, and the right journal works")
			Expect(os.WriteFile(name, data, 0o600)).To(Succeed())
			Expect(open(root).RollBack()).To(Succeed())
		},
		Entry("is empty", func(string) string { return "" }, "truncated or not a journal", "Restore it from a backup"),
		Entry("is truncated in its header", func(s string) string { return s[:30] }, "its checksum is wrong", "Restore it"),
		Entry("is truncated", func(s string) string { return s[:len(s)-1] }, "its checksum is wrong", "Restore it"),
		Entry("has a flipped bit", func(s string) string { return s[:200] + string(s[200]^1) + s[201:] }, "its checksum is wrong", "Restore it"),
		Entry("has a flipped bit in its checksum", func(s string) string { return strings.Replace(s, "sha256:", "sha256:f", 1) }, "its checksum is wrong", "Restore it"),
		Entry("was written by a newer agent", func(s string) string { return strings.Replace(s, "poolboot-journal 1", "poolboot-journal 2", 1) },
			"it was written by a newer agent (format 2, this agent knows 1)", "install that version of the agent again"),
		Entry("has an unknown field", rewrite(`"sequence"`, `"other":1,"sequence"`), "unknown field", "do not edit it"),
	)
})

var _ = It("A journal is refused after a change of any bit, and if it ends anywhere", func() {
	intact, err := durable.EncodeJournal(journalVersion, &journal{
		Sequence: 2, Phase: applied, Managed: map[string]record{"/etc/a": {state: state{Type: hosttree.File, Sum: "x"}, Real: "etc/a"}},
		Steps: []step{{Do: put, Path: "etc/a", Slot: "var/lib/poolboot/slots/2-0", Old: true}},
	})
	Expect(err).NotTo(HaveOccurred())
	for i := range intact {
		for bit := range 8 {
			changed := slices.Clone(intact)
			changed[i] ^= 1 << bit
			_, err := durable.DecodeJournal[journal]("", journalVersion, changed)
			Expect(err).To(HaveOccurred(), "%q", changed)
		}
		_, err := durable.DecodeJournal[journal]("", journalVersion, intact[:i])
		Expect(err).To(HaveOccurred(), "%q", intact[:i])
	}
})

// rewrite returns a function that replaces text in a journal, and corrects its checksum.
func rewrite(old, text string) func(string) string {
	return func(journal string) string {
		GinkgoHelper()
		Expect(journal).To(ContainSubstring(old))
		_, body, _ := strings.Cut(strings.Replace(journal, old, text, 1), "\n")
		return "poolboot-journal 1 sha256:" + sumOf([]byte(body)) + "\n" + body
	}
}

func FuzzJournal(f *testing.F) {
	name := uint32(0o644)
	seed, err := durable.EncodeJournal(journalVersion, &journal{
		Sequence: 2, Phase: committed, Managed: map[string]record{"/etc/a": {state: state{Type: hosttree.File, Mode: &name, Sum: "x"}, Real: "etc/a"}},
		Next:  map[string]record{"/etc/a": {state: state{Type: hosttree.Link, Target: "b"}, Real: "etc/a", Origin: origin{Kind: kept, Slot: "var/lib/poolboot/slots/1-0.old"}}},
		Steps: []step{{Do: put, Path: "etc/a", Slot: "var/lib/poolboot/slots/2-0", Old: true}, {Do: mkdir, Path: "etc/b", After: &meta{Mode: 0o755}}},
	})
	if err != nil {
		f.Fatal(err)
	}
	_, body, _ := strings.Cut(string(seed), "\n")
	f.Add([]byte(body), true)
	f.Add(seed, false)
	f.Add([]byte("poolboot-journal 9 sha256:\n{}"), false)
	f.Fuzz(func(t *testing.T, data []byte, withHeader bool) {
		if withHeader { // a checksum is no protection against an attacker, and stops a fuzzer
			data = append([]byte("poolboot-journal 1 sha256:"+sumOf(data)+"\n"), data...)
		}
		j, err := durable.DecodeJournal[journal]("", journalVersion, data)
		if err != nil {
			var refused *durable.JournalError
			if !errors.As(err, &refused) || refused.Why == "" || refused.Remedy == "" {
				t.Fatalf("the error has no reason or no remedy: %v", err)
			}
			return
		}
		written, err := durable.EncodeJournal(journalVersion, j)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := durable.DecodeJournal[journal]("", journalVersion, written); err != nil {
			t.Fatalf("what was written can't be read: %v", err)
		}
	})
}
