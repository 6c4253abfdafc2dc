package kernelarguments

import (
	"context"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("The kernel arguments of a host", func() {
	ctx := context.Background()
	split := strings.Fields

	DescribeTable("that follow their configuration", func(program, image, before, after, expected string, calls ...string) {
		h := newHost(split(image), split(before))
		Expect(applyAll(h.executor(program), ctx, operations(split(before), split(after)))).To(Succeed())
		Expect(strings.Join(h.next, " ")).To(Equal(expected))
		Expect(h.calls).To(Equal(calls))

		h.calls = nil
		Expect(applyAll(h.executor(program), ctx, update.Undo(operations(split(before), split(after))))).To(Succeed())
		Expect(areEquivalent(h.next, newHost(split(image), split(before)).next)).To(BeTrue(), "%v are those before", h.next)
	},
		Entry("rpm-ostree: all old ones are deleted, and all new ones are appended, in one transaction", "rpm-ostree", "ro quiet", "a b=1", "b=1 c", "ro quiet b=1 c",
			"rpm-ostree kargs --delete=a --delete=b=1 --append=b=1 --append=c"),
		Entry("rpm-ostree: what the image has stays, and is not repeated", "rpm-ostree", "ro quiet", "quiet a", "ro b", "ro quiet b",
			"rpm-ostree kargs --delete=a --append=b"),
		Entry("rpm-ostree: their order changes", "rpm-ostree", "ro", "console=tty0 console=ttyS0", "console=ttyS0 console=tty0", "ro console=ttyS0 console=tty0",
			"rpm-ostree kargs --delete=console=tty0 --delete=console=ttyS0 --append=console=ttyS0 --append=console=tty0"),
		Entry("rpm-ostree: another value of the same name stays", "rpm-ostree", "nosmt=force", "nosmt", "a", "nosmt=force a",
			"rpm-ostree kargs --delete=nosmt --append=a"),
		Entry("grubby: all of a name are replaced, so those of the image are passed along", "grubby", "ro console=tty0 quiet", "console=ttyS0 a", "console=ttyS1 b", "ro quiet console=tty0 console=ttyS1 b",
			"grubby --update-kernel=ALL --remove-args=a --args=console=tty0 console=ttyS1 b"),
		Entry("grubby: an argument without value would remove those with one", "grubby", "nosmt=force", "nosmt", "", "nosmt=force",
			"grubby --update-kernel=ALL --args=nosmt=force"),
		Entry("the helper: only what differs", "ignition-kargs-helper", "ro quiet", "quiet a b", "b c", "ro quiet b c",
			"ignition-kargs-helper --should-exist b --should-exist c --should-not-exist a"),
		Entry("the helper: an order needs two calls", "ignition-kargs-helper", "ro", "a b c", "b a d", "ro b a d",
			"ignition-kargs-helper --should-not-exist a --should-not-exist b --should-not-exist c --should-not-exist d",
			"ignition-kargs-helper --should-exist b --should-exist a --should-exist d"),
		Entry("bootc: those of Ignition stay", "bootc", "ro", "a", "a b c", "ro a b c",
			"bootc loader-entries set-options-for-source --source poolboot --options=b c"),
	)

	It("are those of a fresh host after an update, whatever they were, and after it is undone, at every loss of power", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		anyOf := func() []string {
			all := []string{"a", "a=1", "b", "b=1", "b=2", "c", "console=tty0", "console=ttyS0", "quiet"}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			return all[:random.Intn(5)]
		}
		for range 50 {
			image, a, b, c := anyOf(), anyOf(), anyOf(), anyOf()
			for _, program := range []string{"rpm-ostree", "grubby", "ignition-kargs-helper"} {
				for failAt := range 6 {
					h := newHost(image, a)
					h.failAt = failAt
					if applyAll(h.executor(program), ctx, operations(a, b)) != nil {
						h.failAt = 0
						if random.Intn(2) == 0 {
							h.reboot()
						}
						if random.Intn(2) == 0 {
							Expect(applyAll(h.executor(program), ctx, update.Undo(operations(a, b)))).To(Succeed())
							Expect(areEquivalent(h.next, newHost(image, a).next)).To(BeTrue(), "%s of %v: %v is undone to %v", program, image, h.next, a)
							continue
						}
						Expect(applyAll(h.executor(program), ctx, operations(a, b))).To(Succeed())
					}
					h.failAt = 0
					Expect(areEquivalent(h.next, newHost(image, b).next)).To(BeTrue(), "%s of %v: %v is as %v", program, image, h.next, b)
					h.reboot()
					expectNoDifference(h.executor(program).Differences(b))
					Expect(applyAll(h.executor(program), ctx, operations(b, c))).To(Succeed())
					Expect(areEquivalent(h.next, newHost(image, c).next)).To(BeTrue(), "%s of %v: %v is as %v", program, image, h.next, c)
				}
			}
		}
	})

	It("are the same when an operation is repeated, without another deployment", func() {
		h := newHost(split("ro quiet"), split("a b"))
		for range 3 {
			Expect(applyAll(h.executor("rpm-ostree"), ctx, operations(split("a b"), split("b a c")))).To(Succeed())
		}
		Expect(h.next).To(Equal(split("ro quiet b a c")))
		Expect(h.calls).To(HaveLen(1))
	})

	It("that the host had without a configuration stay, also if nobody knows the image", func() {
		h := newHost(nil, split("a"))
		h.next = append(h.next, "by-hand")
		h.reboot()
		Expect(os.Remove(filepath.Join(h.root, imagePath))).To(Succeed())
		Expect(applyAll(h.executor("grubby"), ctx, operations(split("a"), split("by-hand b")))).To(Succeed())
		Expect(applyAll(h.executor("grubby"), ctx, operations(split("by-hand b"), nil))).To(Succeed())
		Expect(h.next).To(Equal(split("by-hand")))
	})

	It("of one item are split outside of quotes, and repeated ones are one", func() {
		h := newHost(nil, nil)
		Expect(applyAll(h.executor("rpm-ostree"), ctx, operations(nil, []string{`a b="1 2"`, "a"}))).To(Succeed())
		Expect(h.calls).To(Equal([]string{`rpm-ostree kargs --append=a --append=b="1 2"`}))
		h.reboot()
		expectNoDifference(h.executor("rpm-ostree").Differences([]string{`a b="1 2"`}))
	})

	It("that grubby can't pass are refused, also before an update, and nothing is changed", func() {
		h := newHost(nil, nil)
		Expect(h.executor("grubby").Refusal(ctx, operations(nil, []string{"a", `b="1 2"`})[0])).To(HavePrefix("grubby can't pass "))
		Expect(h.executor("grubby").Refusal(ctx, operations(nil, []string{"a"})[0])).To(BeEmpty())
		Expect(filepath.Join(h.root, RecordPath)).NotTo(BeAnExistingFile())
		Expect(applyAll(h.executor("grubby"), ctx, operations(nil, []string{"a", `b="1 2"`}))).To(MatchError(
			`change the kernel arguments: grubby can't pass "b=\"1 2\"", which has a space, a quote, a dollar sign or a backslash: change it in the MachineConfig`))
		Expect(h.calls).To(BeEmpty())
	})

	It("that bootc can't remove are refused, also before an update, and nothing is changed", func() {
		h := newHost(split("ro"), split("a b"))
		Expect(h.executor("bootc").Refusal(ctx, operations(split("a b"), split("b c"))[0])).To(HavePrefix(`bootc can't remove "a"`))
		Expect(h.executor("bootc").Refusal(ctx, operations(split("a b"), split("a b c"))[0])).To(BeEmpty())
		Expect(filepath.Join(h.root, RecordPath)).NotTo(BeAnExistingFile())
		Expect(applyAll(h.executor("bootc"), ctx, operations(split("a b"), split("b c")))).To(MatchError(ContainSubstring(
			`bootc can't remove "a", which Ignition wrote when the host was installed`)))
		Expect(h.calls).To(BeEmpty())
	})

	It("that a program loses are an error", func() {
		for _, program := range []string{"rpm-ostree", "grubby"} {
			h := newHost(split("ro"), split("a"))
			e := h.executor(program)
			e.Runner = runner(func(ctx context.Context, name string, arguments ...string) ([]byte, error) {
				defer func() {
					h.next = slices.DeleteFunc(h.next, func(a string) bool { return a == "ro" && len(h.calls) > 0 })
				}()
				return h.Run(ctx, name, arguments...)
			})
			Expect(applyAll(e, ctx, operations(split("a"), split("b")))).To(MatchError(ContainSubstring(`the host would boot with "b" instead of "ro b"`)))
			h.next = split("ro a")
			e.Runner = runner(func(ctx context.Context, name string, arguments ...string) ([]byte, error) {
				if len(arguments) > 1 {
					return nil, nil
				}
				return h.Run(ctx, name, arguments...)
			})
			Expect(applyAll(e, ctx, operations(split("a"), split("b")))).To(MatchError(ContainSubstring(`the host would boot with "ro a" instead of "ro b"`)))
		}
	})

	It("are not changed without a program, a record that is intact, or a place to write it", func() {
		h := newHost(nil, nil)
		e := h.executor("lilo")
		Expect(applyAll(e, ctx, operations(nil, split("a")))).To(MatchError(ContainSubstring("the host has no program for it")))
		h.write(RecordPath, "{")
		Expect(applyAll(h.executor("grubby"), ctx, operations(nil, split("a")))).To(MatchError(ContainSubstring(RecordPath + " is damaged")))
		Expect(os.Remove(filepath.Join(h.root, RecordPath))).To(Succeed())
		Expect(os.Remove(filepath.Join(h.root, filepath.Dir(RecordPath)))).To(Succeed())
		h.write(filepath.Dir(RecordPath), "a file in the way")
		Expect(applyAll(h.executor("grubby"), ctx, operations(nil, split("a")))).NotTo(Succeed())
		Expect(h.calls).To(BeEmpty())
	})

	It("are changed by the best program of the host", func() {
		h := newHost(nil, nil)
		e := h.executor("grubby")
		e.Programs = []string{"ignition-kargs-helper", "grubby", "rpm-ostree", "bootc"}
		Expect(applyAll(e, ctx, operations(nil, split("a")))).To(Succeed())
		Expect(h.calls).To(ConsistOf(HavePrefix("rpm-ostree")))
	})

	It("can be changed if there is a program that can", func() {
		h := newHost(nil, nil)
		for program, isUsable := range map[string]bool{"rpm-ostree": true, "grubby": true, "ignition-kargs-helper": true, "bootc": true, "apt": false} {
			Expect(h.executor(program).IsUsable(ctx)).To(Equal(isUsable), program)
		}
		e := h.executor("bootc")
		e.Runner = runner(func(context.Context, string, ...string) ([]byte, error) {
			return nil, errors.New("error: unrecognized subcommand 'loader-entries'")
		})
		Expect(e.IsUsable(ctx)).To(BeFalse())
	})

	It("are not touched by other operations", func() {
		h := newHost(nil, nil)
		Expect(h.calls).To(BeEmpty())
	})

	DescribeTable("that the running kernel lacks are found", func(running, configured string, missing ...string) {
		Expect(Missing(split(running), []string{configured})).To(HaveExactElements(toAny(missing)...))
	},
		Entry("none", "a b=1", "b=1 a"),
		Entry("another value", "a b=2", "b=1 a", "b=1"),
		Entry("all", "", "b=1 a", "b=1", "a"),
		Entry("not because the boot loader moved the quotes", `"b=1 2"`, `b="1 2"`, `b="1 2"`),
	)

	It("have quotes where the boot loader puts them", func() {
		h := newHost(nil, nil)
		h.write(commandLinePath, `ro "dyndbg=file x +p" a`+"\n")
		missing, _, err := h.executor("grubby").Differences([]string{`dyndbg="file x +p" a c`})
		Expect(err).NotTo(HaveOccurred())
		Expect(missing).To(Equal([]string{"c"}))
	})

	It("are read from what grubby prints", func() {
		output, err := os.ReadFile("testdata/grubby-info-default.txt")
		Expect(err).NotTo(HaveOccurred())
		t := grubby{runner(func(context.Context, string, ...string) ([]byte, error) { return output, nil })}
		Expect(t.read(ctx)).To(Equal(split("ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root rhgb quiet")))
		output = []byte("kernel=\"/boot/vmlinuz\"\nargs=\"\"\n")
		Expect(t.read(ctx)).To(BeEmpty())
		output = nil
		_, err = t.read(ctx)
		Expect(err).To(MatchError(ContainSubstring("shows no kernel")))
	})
})

var _ = Describe("The helper of the image", func() {
	ctx := context.Background()
	split := strings.Fields

	It("follows the configuration on a running host, and is undone", func() {
		for _, c := range []struct{ before, after, expected string }{
			{"quiet a b", "b c", "ro quiet b c"},
			{"a b c", "b a d", "ro quiet b a d"},
			{"a", "", "ro quiet"},
			{"", "console=ttyS0,115200 a", "ro quiet console=ttyS0,115200 a"},
		} {
			h := newHost(split("ro quiet"), split(c.before))
			s := newScript(h.next...)
			e := &Executor{Runner: s, Programs: []string{"ignition-kargs-helper"}, Root: h.root}
			for range 2 {
				Expect(applyAll(e, ctx, operations(split(c.before), split(c.after)))).To(Succeed())
				Expect(s.arguments()).To(Equal(split(c.expected)))
			}
			Expect(applyAll(e, ctx, update.Undo(operations(split(c.before), split(c.after))))).To(Succeed())
			Expect(s.arguments()).To(Equal(h.next))
			calls, err := os.ReadFile(filepath.Join(s.directory, "calls"))
			Expect(err).NotTo(HaveOccurred())
			Expect(string(calls)).To(HavePrefix("-o remount,rw "))
			Expect(string(calls)).To(HaveSuffix("-o remount,ro " + filepath.Join(s.directory, "boot") + "\n"))
		}
	})

	It("refuses what GRUB can't pass, and changes nothing", func() {
		h := newHost(split("ro"), nil)
		s := newScript("ro")
		e := &Executor{Runner: s, Programs: []string{"ignition-kargs-helper"}, Root: h.root}
		Expect(applyAll(e, ctx, operations(nil, []string{`a b="1 2"`}))).To(MatchError(ContainSubstring("GRUB cannot pass the kernel argument")))
		Expect(s.arguments()).To(Equal(split("ro")))
	})
})

// runner is a Runner that is a function.
type runner func(ctx context.Context, name string, arguments ...string) ([]byte, error)

func (r runner) Run(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	return r(ctx, name, arguments...)
}

func toAny(values []string) (all []any) {
	for _, value := range values {
		all = append(all, value)
	}
	return all
}

func expectNoDifference(missing, additional []string, err error) {
	GinkgoHelper()
	Expect(err).NotTo(HaveOccurred())
	Expect(missing).To(BeEmpty())
	Expect(additional).To(BeEmpty())
}
