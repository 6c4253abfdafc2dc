package hostfiles

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/powerloss"
)

// Two configurations with every kind of change between them.
var (
	configA = hosttree.Tree{
		"/etc/motd":                    file("a"),
		"/etc/a/b/c":                   file("a", mode(0o750), owner(1000, 4)),
		"/etc/hard":                    hardLink("/etc/a/b/c"),
		"/etc/d":                       directory(mode(0o700)),
		"/etc/d/x":                     file("a"),
		"/etc/issue":                   link("hosts"),
		"/etc/hosts":                   keptFile(mode(0o600)),
		"/etc/gone/file":               file("a"),
		"/etc/type":                    file("a"),
		"/etc/typed":                   directory(),
		"/etc/typed/in":                file("a"),
		"/etc/systemd/system/m.socket": link("/dev/null"),
	}
	configB = hosttree.Tree{
		"/etc/motd":                    file("b"),
		"/etc/image.conf":              file("b"),
		"/etc/a/b/c":                   file("b", mode(0o4755)),
		"/etc/hard":                    hardLink("/etc/a/b/c"),
		"/etc/d":                       directory(mode(0o711), owner(1000, 1000)),
		"/etc/new/deep/file":           file("b"),
		"/etc/type":                    directory(mode(0o750)),
		"/etc/type/in":                 file("b"),
		"/etc/typed":                   file("b"),
		"/etc/systemd/system/m.socket": unmasked(),
		"/etc/conf.d":                  directory(mode(0o700)),
		"/etc/link":                    link("/etc/new"),
	}
)

// operations are what a crash can interrupt, each with how it is prepared, and how it is completed by another process.
var operations = map[string]struct{ prepare, run, settle func(u *Updater) error }{
	"an update": {
		prepare: func(*Updater) error { return nil },
		run:     func(u *Updater) error { return u.Apply(hosttree.Changes(configA, configB), false) },
	},
	"its confirmation": {
		prepare: func(u *Updater) error { return u.Apply(hosttree.Changes(configA, configB), false) },
		run:     func(u *Updater) error { return u.Confirm() },
	},
	"its rollback": {
		prepare: func(u *Updater) error { return u.Apply(hosttree.Changes(configA, configB), false) },
		run:     func(u *Updater) error { return u.RollBack() },
	},
	"a rollback that can't restore a path": {
		prepare: func(u *Updater) error {
			return errors.Join(u.Apply(hosttree.Changes(configA, configB), false), obstruct(u))
		},
		run:    func(u *Updater) error { return u.RollBack() },
		settle: restoreLeftOver,
	},
	"another try to restore paths": {
		prepare: func(u *Updater) error {
			return errors.Join(u.Apply(hosttree.Changes(configA, configB), false), obstruct(u), u.RollBack(), clearPath(u))
		},
		run:    func(u *Updater) error { return u.Retry() },
		settle: restoreLeftOver,
	},
}

// outcome is what an update that was interrupted ended with.
type outcome string

const (
	unchanged outcome = "unchanged"
	completed outcome = "completed"
	undone    outcome = "undone"
)

// recoverBy completes or undoes what was interrupted.
func recoverBy(u *Updater, isUndo bool) (outcome, error) {
	was, run := u.journal.Phase, u.Complete
	if isUndo {
		run = u.RollBack
	}
	err := run()
	switch {
	case was == idle, was == applied && !isUndo:
		return unchanged, err
	case was == confirming, u.IsUnconfirmed():
		return completed, err
	}
	return undone, err
}

// obstructed are a file of the image and one of the first configuration, which the second one replaces.
var obstructed = []string{"etc/image.conf", "etc/motd"}

// obstruct puts directories in the place of files, so that they can't be restored.
func obstruct(u *Updater) (err error) {
	for _, name := range obstructed {
		err = errors.Join(err, u.remove(name), u.mkdir(name, meta{Mode: 0o700}))
	}
	return errors.Join(err, u.syncAll("etc"))
}

func clearPath(u *Updater) (err error) {
	for _, name := range obstructed {
		err = errors.Join(err, u.removeDirectory(name))
	}
	return errors.Join(err, u.syncAll("etc"))
}

// restoreLeftOver undoes an update, also the paths that it can't restore at first.
func restoreLeftOver(u *Updater) error {
	if u.IsUnconfirmed() {
		if err := u.RollBack(); err != nil {
			return err
		}
	}
	if err := errors.Join(clearPath(u), u.Retry()); err != nil {
		return err
	}
	if left := u.LeftOver(); len(left) > 0 {
		return fmt.Errorf("not restored: %v", left)
	}
	return nil
}

var _ = Describe("A host that crashes", func() {
	// image, a and b are what the host has without a configuration, and with each of them.
	var image, a, b map[string]string
	BeforeEach(func() {
		root := newHost()
		image = snapshot(root)
		u := open(root)
		apply(u, nil, configA)
		a = snapshot(root)
		apply(u, configA, configB)
		b = snapshot(root)
	})

	// installed returns a host with the first configuration, on which an operation is prepared.
	installed := func(prepare func(*Updater) error) (string, *Updater) {
		GinkgoHelper()
		root := newHost()
		u := open(root)
		apply(u, nil, configA)
		Expect(prepare(u)).To(Succeed())
		return root, u
	}

	// expectWhole checks that a recovered host has one of the configurations, and can get rid of it.
	expectWhole := func(root string, u *Updater, got outcome) {
		GinkgoHelper()
		now := snapshot(root)
		isA, isB := differing(now, a), differing(now, b)
		switch got {
		case completed:
			Expect(isB).To(BeEmpty())
		case undone:
			Expect(isA).To(BeEmpty())
		default:
			Expect(len(isA)*len(isB)).To(BeZero(), "neither %q nor %q", isA, isB)
		}
		Expect(u.Differences()).To(BeEmpty())
		config := configA
		if len(isB) == 0 {
			config = configB
		}
		if u.IsUnconfirmed() {
			Expect(u.RollBack()).To(Succeed())
			Expect(differing(snapshot(root), a)).To(BeEmpty())
			config = configA
		}
		apply(u, config, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
		Expect(u.Close()).To(Succeed())
	}

	// crash runs a function until it makes this number of system calls that change something, and reports whether it
	// made them.
	crash := func(u *Updater, calls int, run func() error) (crashed bool) {
		type crash struct{}
		defer func() {
			if reason := recover(); reason != nil {
				Expect(reason).To(Equal(crash{}))
				crashed = true
			}
			Expect(u.Close()).To(Succeed())
		}()
		u.before = func(string, string, string) {
			if calls--; calls == 0 {
				panic(crash{})
			}
		}
		Expect(run()).To(Succeed())
		return false
	}

	for name, operation := range operations {
		It("because its agent is killed at any step of "+name+" has the old or the new files, and all of them", func() {
			chance := rand.New(rand.NewPCG(1, 2))
			outcomes := map[outcome]int{}
			steps := 0
			for calls, crashed := 1, true; crashed; calls++ {
				for _, isUndo := range []bool{false, true} {
					root, u := installed(operation.prepare)
					crashed = crash(u, calls, func() error { return operation.run(u) })
					u = open(root)
					// It is killed again while it recovers.
					if crash(u, 1+chance.IntN(60), func() error { _, err := recoverBy(u, isUndo); return err }) {
						steps++
					}
					u = open(root)
					got, err := recoverBy(u, isUndo)
					Expect(err).NotTo(HaveOccurred())
					outcomes[got]++
					if operation.settle != nil {
						chance := 1 + chance.IntN(100)
						if crash(u, chance, func() error { return operation.settle(u) }) {
							steps++
						}
						u = open(root)
						_, err := recoverBy(u, isUndo)
						Expect(err).NotTo(HaveOccurred())
						Expect(operation.settle(u)).To(Succeed())
					}
					expectWhole(root, u, got)
					Expect(os.RemoveAll(root)).To(Succeed())
				}
				steps++
			}
			AddReportEntry("steps and outcomes", []any{steps, outcomes})
		})

		It("because it loses power at any step of "+name+" has the old or the new files, and all of them", func() {
			root, u := installed(operation.prepare)
			disk := newShadow(root)
			chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
			outcomes := map[outcome]int{}
			fail := func(isUndo bool, chance *rand.Rand) {
				GinkgoHelper()
				after := disk.fail(chance)
				u := open(after)
				got, err := recoverBy(u, isUndo)
				Expect(err).NotTo(HaveOccurred())
				outcomes[got]++
				if operation.settle != nil {
					Expect(operation.settle(u)).To(Succeed())
				}
				expectWhole(after, u, got)
				Expect(os.RemoveAll(after)).To(Succeed())
			}
			steps := 0
			u.before = func(call, name, other string) {
				policies := []bool{false, true}
				fail(policies[steps%2], nil)
				fail(policies[chance.IntN(2)], chance)
				disk.before(call, name, other)
				steps++
			}
			Expect(operation.run(u)).To(Succeed())
			fail(false, nil)
			AddReportEntry("steps and outcomes", []any{steps, outcomes})
		})
	}

	It("because it loses power on ext4 has the old or the new files, and all of them", func() {
		disk := powerloss.NewDisk()
		root := disk.Root
		Expect(os.Chmod(root, 0o700)).To(Succeed())
		installImage(root)
		u := open(root)
		apply(u, nil, configA)
		Expect(unix.Syncfs(int(u.root.Fd()))).To(Succeed())
		outcomes := map[outcome]int{}
		steps, every := 0, 4
		u.before = func(string, string, string) {
			if steps++; (steps+int(GinkgoRandomSeed()))%every != 0 {
				return
			}
			disk.AfterLoss(func(after string) {
				handle, err := os.OpenRoot(after)
				Expect(err).NotTo(HaveOccurred())
				u, err := Open(handle)
				Expect(err).NotTo(HaveOccurred())
				policies := []bool{false, true}
				got, err := recoverBy(u, policies[steps/every%2])
				Expect(err).NotTo(HaveOccurred())
				outcomes[got]++
				expectWhole(after, u, got)
				Expect(handle.Close()).To(Succeed())
			})
		}
		Expect(u.Apply(hosttree.Changes(configA, configB), false)).To(Succeed())
		Expect(outcomes).To(And(HaveKey(undone), HaveKey(completed)))
		AddReportEntry("steps and outcomes", []any{steps, outcomes})
	})

	It("with a disk that lost what it confirmed has the old files", func() {
		root, u := installed(func(*Updater) error { return nil })
		isCommitted := false
		for calls := 1; !isCommitted; calls++ {
			Expect(crash(u, calls, func() error { return u.Apply(hosttree.Changes(configA, configB), false) })).To(BeTrue())
			u = open(root)
			if isCommitted = u.journal.Phase == committed; !isCommitted {
				Expect(recoverBy(u, false)).To(Or(Equal(undone), Equal(unchanged)))
			}
		}
		for _, slot := range slots(root) {
			if filepath.Ext(slot) == ".new" {
				Expect(os.Truncate(slot, 0)).To(Succeed())
				break
			}
		}
		got, err := recoverBy(u, false)
		Expect(err).To(MatchError(And(HavePrefix("the update was undone: "), ContainSubstring("is not as it was prepared: [Content]"))))
		expectWhole(root, u, got)
	})
})
