package agent

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/powerloss"
)

func newJournal() journal {
	revision := strings.Repeat("a", 64)
	return journal{
		Phase: undoing, Current: revision, Target: strings.Repeat("b", 64), Drift: []update.Drift{{Name: "/etc/f", Kind: "Content"}}, Starts: 1, FirstBoot: "1", Boot: "2",
		ChangedAt: time.Minute, Boots: 1, Heartbeat: time.Unix(1, 0).UTC(), HasActed: true, Failed: &failure{strings.Repeat("b", 64), "why", true}, Step: 1,
		LeftOver: []leftEntry{{strings.Repeat("b", 64), update.ChangeUser, "app", "why"}}, Retries: 1,
		SingleKeysFile: true, RefusedProgram: &failure{"c", "why", false},
	}
}

var _ = Describe("The journal", func() {
	It("is read as it was written", func() {
		raw, err := durable.EncodeJournal(journalVersion, newJournal())
		Expect(err).NotTo(HaveOccurred())
		Expect(durable.DecodeJournal[journal]("", journalVersion, raw)).To(HaveValue(Equal(newJournal())))
	})

	It("is refused after a change of any byte, and if it is truncated", func() {
		raw, err := durable.EncodeJournal(journalVersion, newJournal())
		Expect(err).NotTo(HaveOccurred())
		for i := range raw {
			changed := append([]byte(nil), raw...)
			changed[i] ^= 0x11
			_, err := durable.DecodeJournal[journal]("", journalVersion, changed)
			Expect(err).To(HaveOccurred(), "byte %d", i)
			_, err = durable.DecodeJournal[journal]("", journalVersion, raw[:i])
			Expect(err).To(HaveOccurred(), "first %d bytes", i)
		}
	})

	It("of a newer agent says what to do", func() {
		raw, err := durable.EncodeJournal(journalVersion, newJournal())
		Expect(err).NotTo(HaveOccurred())
		_, err = durable.DecodeJournal[journal]("", journalVersion, []byte(strings.Replace(string(raw), "journal 1 ", "journal 2 ", 1)))
		Expect(err).To(MatchError(ContainSubstring("install that version")))
	})

	DescribeTable("that is damaged or missing stops the agent before it changes anything", func(damage func(state string)) {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/f", "a")))
		Expect(w.run()).To(Succeed())
		damage(filepath.Join(w.directory, "var/lib/poolboot"))
		root, err := os.OpenRoot(w.directory)
		Expect(err).NotTo(HaveOccurred())
		files, err := hostfiles.Open(root)
		Expect(err).NotTo(HaveOccurred())
		defer files.Close()
		_, err = New(Options{Root: root, StateDirectory: "/var/lib/poolboot/agent", Files: files})
		var refusal *durable.JournalError
		Expect(errors.As(err, &refusal)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("/var/lib/poolboot/agent/agent.journal")))
	},
		Entry("damaged", func(state string) {
			Expect(os.WriteFile(filepath.Join(state, "agent/agent.journal"), []byte("x"), 0o600)).To(Succeed())
		}),
		Entry("missing", func(state string) { Expect(os.Remove(filepath.Join(state, "agent/agent.journal"))).To(Succeed()) }),
		Entry("without that of the files", func(state string) { Expect(os.Remove(filepath.Join(state, "files.journal"))).To(Succeed()) }),
	)

	It("and the documents are on the disk when they are written", func() {
		disk := powerloss.NewDisk()
		root, err := os.OpenRoot(disk.Root)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(root.Close)
		s, err := newStore(root, "/var/lib/poolboot/agent")
		Expect(err).NotTo(HaveOccurred())
		w := newWorld()
		a := w.assign("rendered-a", withFiles("/etc/f", "a"))
		revision := w.put(a)
		Expect(s.put(revision, w.documents[revision], w.rendered["rendered-a"])).To(Succeed())
		for _, p := range []phase{adopting, draining} {
			Expect(s.writeJournal(journal{Phase: p, Current: revision, Target: revision})).To(Succeed())
			disk.AfterLoss(func(directory string) {
				left, err := os.OpenRoot(directory)
				Expect(err).NotTo(HaveOccurred())
				defer left.Close()
				after := openStore(left, "/var/lib/poolboot/agent")
				Expect(after.readJournal()).To(HaveField("Phase", p))
				_, rendered, err := after.get(revision)
				Expect(err).NotTo(HaveOccurred())
				Expect(rendered).To(Equal(w.rendered["rendered-a"]))
			})
		}
	})

	It("and the documents can be read by root only", func() {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/f", "a")))
		Expect(w.run()).To(Succeed())
		names, err := filepath.Glob(filepath.Join(w.directory, "var/lib/poolboot/agent/*"))
		Expect(err).NotTo(HaveOccurred())
		Expect(names).To(HaveLen(3))
		for _, name := range append(names, filepath.Join(w.directory, "var/lib/poolboot/agent")) {
			info, err := os.Stat(name)
			Expect(err).NotTo(HaveOccurred())
			Expect(info.Mode().Perm()&0o077).To(BeZero(), name)
		}
	})
})

func FuzzParseJournal(f *testing.F) {
	raw, err := durable.EncodeJournal(journalVersion, newJournal())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte("poolboot-journal 1 sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a\n{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		j, err := durable.DecodeJournal[journal]("", journalVersion, raw)
		if err != nil {
			return
		}
		again, err := durable.EncodeJournal(journalVersion, j)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := durable.DecodeJournal[journal]("", journalVersion, again); err != nil || !reflect.DeepEqual(j, second) {
			t.Errorf("%q is read as %v, and written as %q", raw, j, again)
		}
	})
}

func TestTextsFitIntoAnnotations(t *testing.T) {
	for _, size := range []int{10, 100} {
		for text, want := range map[string]string{"short": "short", "a\x00b\xffc": "a b\uFFFDc"} {
			if got := shorten(text, size); got != want {
				t.Errorf("%q became %q", text, got)
			}
		}
		long := shorten(strings.Repeat("ä", 200), size)
		if len(long) > size || !strings.HasSuffix(long, " …") || strings.Contains(long, "\uFFFD") {
			t.Errorf("%q has %d bytes", long, len(long))
		}
	}
}
