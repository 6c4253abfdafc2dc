package osimage

import (
	"context"
	"math/rand"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("The operating system of a host", func() {
	ctx := context.Background()
	const (
		a, b   = "quay.io/example/a@sha256:aaaa", "quay.io/example/b:latest"
		reset  = "override reset kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra"
		remove = "override remove kernel kernel-core kernel-modules kernel-modules-core kernel-modules-extra"
		unRT   = " --uninstall=kernel-rt-core --uninstall=kernel-rt-modules --uninstall=kernel-rt-modules-extra"
		addRT  = " --install=kernel-rt-core --install=kernel-rt-modules --install=kernel-rt-modules-extra"
	)
	type os = update.OperatingSystem

	DescribeTable("follows its configuration with rpm-ostree", func(before, after os, calls ...string) {
		h := newHost()
		e := h.executor("rpm-ostree")
		Expect(applyAll(e, ctx, operations(os{}, before))).To(Succeed())
		h.reboot()
		h.calls = nil
		Expect(applyAll(e, ctx, operations(before, after))).To(Succeed())
		Expect(h.calls).To(HaveLen(len(calls)))
		for i, call := range calls {
			Expect(h.calls[i]).To(Equal("rpm-ostree " + call))
		}
		Expect(applyAll(e, ctx, operations(before, after))).To(Succeed())
		Expect(h.calls).To(HaveLen(len(calls)), "there is nothing left to do")
	},
		Entry("another image", os{Image: a}, os{Image: b}, "rebase ostree-unverified-registry:"+b),
		Entry("extensions, with the packages of OpenShift", os{}, os{Extensions: []string{"ipsec", "vim"}}, "install --allow-inactive NetworkManager-libreswan libreswan vim"),
		Entry("other extensions", os{Extensions: []string{"kerberos", "vim"}}, os{Extensions: []string{"vim", "usbguard"}},
			"install --allow-inactive usbguard --uninstall=krb5-workstation --uninstall=libkadm5"),
		Entry("fewer extensions", os{Extensions: []string{"vim", "usbguard"}}, os{Extensions: []string{"vim"}}, "uninstall usbguard"),
		Entry("another image with other extensions", os{Image: a, Extensions: []string{"vim"}}, os{Image: b, Extensions: []string{"usbguard"}},
			"rebase ostree-unverified-registry:"+b+" --uninstall=vim --install=usbguard"),
		Entry("another kernel", os{KernelType: "default"}, os{KernelType: "realtime"}, remove+addRT),
		Entry("the default kernel again", os{KernelType: "realtime"}, os{KernelType: "default"}, reset+unRT),
		Entry("one kernel after another", os{KernelType: "realtime"}, os{KernelType: "64k-pages"},
			"install --allow-inactive kernel-64k-core kernel-64k-modules kernel-64k-modules-core kernel-64k-modules-extra"+unRT),
		Entry("another image with the same kernel", os{Image: a, KernelType: "realtime"}, os{Image: b, KernelType: "realtime"},
			reset+unRT, "rebase ostree-unverified-registry:"+b, remove+addRT),
		Entry("another image with the default kernel", os{Image: a, KernelType: "realtime"}, os{Image: b, KernelType: "default"},
			reset+unRT, "rebase ostree-unverified-registry:"+b),
		Entry("nothing", os{Image: a}, os{Image: a, KernelType: "default"}),
	)

	It("is what a fresh host has after an update, or what it was after the update is undone, at every loss of power", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		anyOS := func(image string) os {
			all := []string{"vim", "usbguard", "ipsec"}
			return os{Image: image, KernelType: []string{"default", "realtime", "64k-pages"}[random.Intn(3)], Extensions: all[:random.Intn(4)],
				ExtensionsImage: []string{"", "quay.io/example/extensions:1"}[random.Intn(2)]}
		}
		for range 50 {
			before, after := anyOS([]string{"", a}[random.Intn(2)]), anyOS([]string{a, b}[random.Intn(2)])
			for failAt := range 14 {
				h := newHost()
				h.booted.Packages, h.booted.Removals = []string{"by-hand"}, []string{"removed-by-hand"}
				e := h.executor("rpm-ostree")
				Expect(applyAll(e, ctx, operations(os{KernelType: "default"}, before))).To(Succeed())
				h.reboot()
				old := *h.booted
				h.calls, h.failAt = nil, failAt
				if applyAll(e, ctx, operations(before, after)) != nil {
					[]func(){func() {}, h.reboot, h.losePower}[random.Intn(3)]()
				} else if random.Intn(2) == 0 {
					h.reboot()
				}
				h.failAt = 0
				if random.Intn(2) == 0 {
					Expect(applyAll(e, ctx, update.Undo(operations(before, after)))).To(Succeed())
					Expect(h.next.is(old.deployment)).To(BeTrue(), "%s is undone to %s", h.next, old)
				} else {
					Expect(applyAll(e, ctx, operations(before, after))).To(Succeed())
					want := targetOf(after, record{Packages: []string{"by-hand"}, Removals: []string{"removed-by-hand"}})
					Expect(h.next.is(want)).To(BeTrue(), "%s is %s", h.next, want)
					h.reboot()
					Expect(e.Difference(ctx, after)).To(BeEmpty())
				}
				Expect(h.exists(repositoryPath)).To(BeFalse(), "the repository is gone")
				Expect(h.exists(extensionsDirectory)).To(BeFalse())
			}
		}
	})

	It("returns to the running deployment without a network, while the other one is only pending", func() {
		h := newHost()
		e := h.executor("rpm-ostree")
		change := operations(os{}, os{Image: b, Extensions: []string{"vim"}})
		Expect(applyAll(e, ctx, change)).To(Succeed())
		h.calls = nil
		Expect(applyAll(e, ctx, update.Undo(change))).To(Succeed())
		Expect(h.calls).To(Equal([]string{"rpm-ostree cleanup --pending"}))
	})

	It("keeps a pending deployment with other kernel arguments", func() {
		h := newHost()
		e := h.executor("rpm-ostree")
		change := operations(os{}, os{Image: b})
		Expect(applyAll(e, ctx, change)).To(Succeed())
		h.next.arguments = "ro by-hand"
		h.calls = nil
		Expect(applyAll(e, ctx, update.Undo(change))).To(Succeed())
		Expect(h.calls).To(Equal([]string{"rpm-ostree rebase ostree-unverified-registry:quay.io/example/os@sha256:1111"}))
		Expect(h.next.arguments).To(Equal("ro by-hand"))
	})

	It("returns to the commit of a branch that the host was installed with", func() {
		h := newHost()
		h.booted.Image = image{Name: fedora, Digest: "cccc"}
		e := h.executor("rpm-ostree")
		Expect(applyAll(e, ctx, operations(os{}, os{Image: b}))).To(Succeed())
		h.reboot()
		h.calls = nil
		Expect(applyAll(e, ctx, update.Undo(operations(os{}, os{Image: b})))).To(Succeed())
		Expect(h.calls).To(Equal([]string{"rpm-ostree rebase " + fedora + " cccc"}))
	})

	It("follows its configuration with bootc, and returns to the installed image", func() {
		h := newHost()
		e := h.executor("bootc")
		change := operations(os{}, os{Image: b})
		for range 2 {
			Expect(applyAll(e, ctx, change)).To(Succeed())
			Expect(h.calls).To(Equal([]string{"bootc switch --transport=registry " + b}))
		}
		Expect(applyAll(e, ctx, update.Undo(change))).To(Succeed())
		Expect(h.calls[1:]).To(Equal([]string{"bootc switch --transport=registry " + installed}), "it is on the host")

		Expect(applyAll(e, ctx, change)).To(Succeed())
		h.reboot()
		Expect(e.Difference(ctx, os{Image: b})).To(BeEmpty())
		h.calls = nil
		for range 2 {
			Expect(applyAll(e, ctx, update.Undo(change))).To(Succeed())
			Expect(h.calls).To(Equal([]string{"bootc switch --transport=registry quay.io/example/os@sha256:1111"}), "the tag can have moved")
		}
		h.reboot()
		_, how, err := e.Difference(ctx, os{Image: b})
		Expect(err).NotTo(HaveOccurred())
		Expect(how).To(Equal("the host runs the image " + h.booted.Image.Name + " instead of " + b))
	})

	It("gets packages from the extensions image, which nothing is left of", func() {
		h := newHost()
		Expect(writeFile(h, pullSecretPath)).To(Succeed())
		e := h.executor("rpm-ostree")
		Expect(applyAll(e, ctx, operations(os{}, os{Extensions: []string{"vim"}, ExtensionsImage: "quay.io/example/extensions@sha256:eeee"}))).To(Succeed())
		Expect(h.calls).To(Equal([]string{
			"podman pull --quiet --authfile=/var/lib/kubelet/config.json quay.io/example/extensions@sha256:eeee",
			"podman create --network=none --name=poolboot-extensions quay.io/example/extensions@sha256:eeee /bin/true",
			"podman cp poolboot-extensions:/usr/share/rpm-ostree/extensions /run/poolboot-extensions/packages",
			"rpm-ostree install --allow-inactive vim",
		}))
		Expect(h.repositories).To(Equal([]bool{true}))
		Expect(h.exists(repositoryPath)).To(BeFalse())
	})

	DescribeTable("is staged without a deployment, as far as its program can", func(program string, want os, calls ...string) {
		h := newHost()
		e := h.executor(program)
		Expect(e.Stage(ctx, operations(os{}, want)[0])).To(Succeed())
		Expect(h.calls).To(HaveExactElements(calls))
		Expect(h.next).To(BeIdenticalTo(h.booted))
		Expect(h.exists(RecordPath)).To(BeFalse())
	},
		Entry("an image with rpm-ostree", "rpm-ostree", os{Image: a}, "rpm-ostree rebase --download-only ostree-unverified-registry:"+a),
		Entry("an extensions image", "rpm-ostree", os{Extensions: []string{"vim"}, ExtensionsImage: "quay.io/example/extensions@sha256:eeee"},
			"podman pull --quiet quay.io/example/extensions@sha256:eeee"),
		Entry("an image with bootc, which comes with the update", "bootc", os{Image: a}),
	)

	It("loses what an agent that was killed left of an extensions image", func() {
		h := newHost()
		e := h.executor("rpm-ostree")
		for _, left := range [][]string{{repositoryPath, extensionsDirectory + "/a.rpm"}, {repositoryPath}, {extensionsDirectory + "/a.rpm"}} {
			for _, name := range left {
				Expect(writeFile(h, name)).To(Succeed())
			}
			Expect(applyAll(e, ctx, operations(os{}, os{}))).To(Succeed())
			Expect(h.exists(repositoryPath)).To(BeFalse())
			Expect(h.exists(filepath.Dir(extensionsDirectory))).To(BeFalse())
		}
	})

	It("does not change if the extensions image can't be copied", func() {
		h := newHost()
		h.failAt = 3
		err := applyAll(h.executor("rpm-ostree"), ctx, operations(os{}, os{Extensions: []string{"vim"}, ExtensionsImage: "x"}))
		Expect(err).To(MatchError(errPower))
		Expect(err).To(MatchError(And(ContainSubstring("provide the packages of x"), ContainSubstring("use an image with podman"))))
		Expect(h.next).To(BeIdenticalTo(h.booted))
	})

	DescribeTable("does not change to what is not possible", func(program string, before, after os, message string) {
		h := newHost()
		Expect(applyAll(h.executor(program), ctx, operations(before, after))).To(MatchError(ContainSubstring(message)))
		Expect(h.calls).To(BeEmpty())
	},
		Entry("without a program", "apt", os{}, os{Image: a}, "the host has no program for it"),
		Entry("extensions with bootc", "bootc", os{}, os{Extensions: []string{"vim"}}, "bootc can't install extensions"),
		Entry("a kernel with bootc", "bootc", os{}, os{KernelType: "realtime"}, "bootc can't install extensions or another kernel"),
		Entry("an unknown kernel", "rpm-ostree", os{}, os{KernelType: "fast"}, `kernelType: "fast" is not known: use default, realtime or 64k-pages`),
		Entry("an option as an image", "rpm-ostree", os{}, os{Image: "--help"}, `osImageURL: "--help" is not the name of an image: correct it in the MachineConfig`),
		Entry("an option as an extensions image", "rpm-ostree", os{}, os{Extensions: []string{"vim"}, ExtensionsImage: "-v /:/host"}, "is not the name of an image"),
		Entry("an option as an extension", "rpm-ostree", os{}, os{Extensions: []string{"--reboot"}}, `extensions: "--reboot" is not the name of a package`),
		Entry("a file as an extension", "rpm-ostree", os{}, os{Extensions: []string{"/tmp/x.rpm"}}, `extensions: "/tmp/x.rpm" is not the name of a package`),
		Entry("the installed image, which nobody knows", "rpm-ostree", os{Image: a}, os{}, "the image that the host was installed with is not known"),
	)

	It("is refused before an update if the program can't change to it, and nothing is changed", func() {
		h := newHost()
		for want, change := range map[string][]update.Operation{
			"": operations(os{}, os{Image: b}),
			"bootc can't install extensions or another kernel": operations(os{Extensions: []string{"vim"}}, os{Image: b, Extensions: []string{"vim"}}),
			"the image that the host was installed with":       operations(os{Image: a}, os{KernelType: "default"}),
		} {
			Expect(h.executor("bootc").Refusal(ctx, change[0])).To(HavePrefix(want))
			Expect(h.executor("bootc").Refusal(ctx, change[0]) == "").To(Equal(want == ""))
		}
		Expect(h.executor("apt").Refusal(ctx, operations(os{}, os{Image: b})[0])).To(HavePrefix("the host has no program for it"))
		Expect(h.calls).To(BeEmpty())
		Expect(h.exists(RecordPath)).To(BeFalse())
	})

	It("is an error if a program succeeds without effect", func() {
		for _, program := range []string{"rpm-ostree", "bootc"} {
			h := newHost()
			e := h.executor(program)
			e.Runner = runner(func(ctx context.Context, name string, arguments ...string) ([]byte, error) {
				if arguments[0] == "status" {
					return h.Run(ctx, name, arguments...)
				}
				return []byte("Image specification is unchanged.\n"), nil
			})
			Expect(applyAll(e, ctx, operations(os{}, os{Image: b}))).To(MatchError(ContainSubstring("the host would boot " + installed + " instead of " + b)))
		}
	})

	It("is compared with its configuration after a reboot", func() {
		h := newHost()
		e := h.executor("rpm-ostree")
		h.booted.Packages, h.provided = []string{"vim"}, []string{"usbguard"}
		for _, entry := range []struct {
			want  os
			entry update.Kind
			how   string
		}{
			{os{KernelType: "default", Extensions: []string{"vim", "usbguard"}}, "", ""},
			{os{Extensions: []string{"vim", "kerberos"}}, update.KindExtensions, `the packages ["krb5-workstation" "libkadm5"] are not installed`},
			{os{KernelType: "realtime", Extensions: []string{"vim"}}, update.KindKernelType, `the packages ["kernel-rt-core" "kernel-rt-modules" "kernel-rt-modules-extra"] are not installed`},
			{os{Extensions: []string{"--eval=1"}}, update.KindExtensions, `extensions: "--eval=1" is not the name of a package: correct it in the MachineConfig`},
			{os{Image: a}, update.KindOSImage, "the host runs the image " + installed + " instead of " + a},
		} {
			differing, how, err := e.Difference(ctx, entry.want)
			Expect(err).NotTo(HaveOccurred())
			Expect(differing).To(Equal(entry.entry))
			Expect(how).To(Equal(entry.how))
		}
	})

	It("is read from what rpm-ostree prints", func() {
		s, err := rpmOSTree{client: rpmostree.Client{Runner: printing("testdata/rpm-ostree-status.json")}}.status(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(s).To(Equal(status{
			next: deployment{Image: image{Name: "quay.io/example/os@sha256:" + strings.Repeat("2", 64), Transport: registry, Digest: "sha256:" + strings.Repeat("2", 64)},
				Packages: []string{"usbguard", "kernel-rt-core"}, Removals: []string{"kernel-core"}},
			booted: deployment{Image: image{Name: fedora, Digest: "518844c87b53985419e751481f379a0d808cd4693d93113150d06d9679f66103"},
				Packages: []string{}, Removals: []string{}},
			isPending: true,
		}))
	})

	It("is read from what bootc prints", func() {
		s, err := bootc{runner: printing("testdata/bootc-status.json")}.status(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(s).To(Equal(status{
			next:      deployment{Image: image{Name: "quay.io/example/os:next", Transport: registry, Digest: "sha256:" + strings.Repeat("2", 64)}},
			booted:    deployment{Image: image{Name: installed, Transport: registry, Digest: "sha256:" + strings.Repeat("1", 64)}},
			isPending: true,
		}))
	})

	DescribeTable("is not changed if its status is not understood", func(program, output, message string) {
		h := newHost()
		e := h.executor(program)
		e.Runner = runner(func(context.Context, string, ...string) ([]byte, error) { return []byte(output), nil })
		Expect(applyAll(e, ctx, operations(os{}, os{Image: a}))).To(MatchError(ContainSubstring(message)))
		Expect(h.exists(RecordPath)).To(BeFalse())
	},
		Entry("rpm-ostree: no JSON", "rpm-ostree", "error", "rpm-ostree status --json: "),
		Entry("rpm-ostree: nothing booted", "rpm-ostree", `{"deployments":[{"booted":false}]}`, "the host did not boot a deployment of rpm-ostree"),
		Entry("bootc: no JSON", "bootc", "", "bootc status --format=json: "),
		Entry("bootc: nothing booted", "bootc", `{"status":{"booted":null}}`, "the host did not boot an image of bootc"),
		Entry("bootc: packages", "bootc", `{"status":{"booted":{"incompatible":true,"image":null}}}`, "the host has changes that bootc does not know"),
	)

	It("is not changed if the record is damaged", func() {
		h := newHost()
		Expect(writeFile(h, RecordPath)).To(Succeed())
		Expect(applyAll(h.executor("bootc"), ctx, operations(os{}, os{Image: a}))).To(MatchError(ContainSubstring(RecordPath + " is damaged")))
		Expect(h.calls).To(BeEmpty())
	})

	It("returns to what it ran if the configured image was not its image, also if that was not recorded before", func() {
		h := newHost()
		e := h.executor("rpm-ostree")
		Expect(applyAll(e, ctx, operations(os{Image: installed}, os{Image: installed, Extensions: []string{"vim"}}))).To(Succeed())
		h.booted.Image, h.next = named(b, registry), h.booted // by hand
		change := operations(os{Extensions: []string{"vim"}}, os{Image: a, Extensions: []string{"vim"}})
		Expect(applyAll(e, ctx, change)).To(Succeed())
		h.reboot()
		Expect(h.booted.Image.Name).To(Equal(a))
		Expect(applyAll(e, ctx, update.Undo(change))).To(Succeed())
		Expect(h.next.Image.Digest).To(Equal(named(b, registry).Digest))
	})

	It("is not touched by other operations", func() {
		h := newHost()
		Expect(h.calls).To(BeEmpty())
	})
})

// runner is a Runner that is a function.
type runner func(ctx context.Context, name string, arguments ...string) ([]byte, error)

func (r runner) Run(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	return r(ctx, name, arguments...)
}

// printing returns a Runner whose programs print a file.
func printing(name string) rpmostree.Runner {
	return runner(func(context.Context, string, ...string) ([]byte, error) { return os.ReadFile(name) })
}

// writeFile writes a file with malformed contents.
func writeFile(h *host, name string) error {
	name = filepath.Join(h.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte("{"), 0o600)
}
