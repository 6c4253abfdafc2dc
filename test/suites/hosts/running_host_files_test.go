package hosts_test

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// immutable is the flag of a file that nobody can change (linux/fs.h).
const immutable = 0x10

// setImmutable changes the flag of a path on the host, as chattr does.
func (h *runningHost) setImmutable(name string, isImmutable bool) {
	GinkgoHelper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/root%s", h.PID(), name))
	Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	flags, err := unix.IoctlGetInt(int(file.Fd()), unix.FS_IOC_GETFLAGS)
	Expect(err).NotTo(HaveOccurred())
	flags &^= immutable
	if isImmutable {
		flags |= immutable
	}
	Expect(unix.IoctlSetPointerInt(int(file.Fd()), unix.FS_IOC_SETFLAGS, flags)).To(Succeed())
}

// describeFiles has the specs about what can't be written or started.
func describeFiles(host func() *runningHost) {
	// shell returns a function that runs a script on the host.
	shell := func(script string) func(context.Context) {
		return func(ctx context.Context) {
			GinkgoHelper()
			_, err := host().Run(ctx, "sh", "-ec", script)
			Expect(err).NotTo(HaveOccurred())
		}
	}
	flag := func(name string, isImmutable bool) func(context.Context) {
		return func(context.Context) {
			GinkgoHelper()
			host().setImmutable(name, isImmutable)
		}
	}

	DescribeTable("keeps its configuration if it can't write", func(ctx SpecContext, name string, breaks, corrects func(context.Context), why string) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("before", file("/opt/immutable/f", 0o644, "before"))), "before")
		breaks(ctx)
		isCorrected := false
		DeferCleanup(func(ctx SpecContext) {
			if !isCorrected {
				corrects(ctx)
			}
		})
		config := h.render(h.config("after", file(name, 0o644, strings.Repeat("0123456789abcdef", 16<<10))))
		revision := h.pool.assign(ctx, config)
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(30 * time.Second).Should(Equal("Degraded " + revision))
		Expect(h.reason(ctx)()).To(And(ContainSubstring(path.Dir(name)), ContainSubstring(why)))
		h.expectOnly(ctx, "before")
		Expect(h.Run(ctx, "find", "/etc", "/opt", "-name", ".poolboot", "-not", "-empty")).To(BeEmpty())

		By("correcting it, and trying again")
		corrects(ctx)
		isCorrected = true
		h.pool.force = config
		h.expectDone(ctx, h.pool.assign(ctx, config), "after")
	},
		Entry("to a full disk", "/opt/full/f", shell("mkdir -p /opt/full && mount -t tmpfs -o size=128k tmpfs /opt/full"),
			shell("mount -o remount,size=1m /opt/full"), "no space left", SpecTimeout(time.Minute)),
		Entry("to a read-only directory", "/opt/read-only/f",
			shell("mkdir -p /opt/read-only && mount --bind /opt/read-only /opt/read-only && mount -o remount,bind,ro /opt/read-only"),
			shell("umount /opt/read-only"), "read-only", SpecTimeout(time.Minute)),
		Entry("an immutable file", "/opt/immutable/f", flag("/opt/immutable/f", true), flag("/opt/immutable/f", false), "it is immutable", SpecTimeout(time.Minute)),
		Entry("to an immutable directory", "/opt/immutable/g", flag("/opt/immutable", true), flag("/opt/immutable", false), "it is immutable", SpecTimeout(time.Minute)),
	)

	DescribeTable("returns to its configuration", func(ctx SpecContext, setting, why string) {
		h := host()
		web := func(others ...string) map[string]any {
			return unit("web.service", append([]string{"[Install]", "WantedBy=multi-user.target", "[Unit]", "StartLimitIntervalSec=0", "[Service]", "Type=exec", "ExecStart=/bin/sleep infinity",
				"Environment=TEXT=before", "TimeoutStartSec=2", "ExecReload=/bin/sh -c '[ ! -e /run/hangs ] || exec sleep infinity'"}, others...)...)
		}
		h.expectDone(ctx, h.assign(ctx, h.configWith(web(), "before", file("/etc/reloaded", 0o644, "before"))), "before")
		after := web()
		if setting != "" {
			after = web(setting)
		} else {
			writeFile(ctx, h.Host, "/run/hangs", "")
			DeferCleanup(func(ctx SpecContext) { _, _ = h.Run(ctx, "rm", "-f", "/run/hangs") })
		}
		revision := h.assign(ctx, h.configWith(after, "after", file("/etc/reloaded", 0o644, "after")))
		Eventually(ctx, h.pool.state(ctx)).WithTimeout(30 * time.Second).Should(Equal("Degraded " + revision))
		Expect(h.reason(ctx)()).To(HavePrefix(why))
		h.expectOnly(ctx, "before")
		Expect(readFile(ctx, h.Host, "/etc/reloaded")).To(Equal("before"))
	},
		Entry("if a unit does not start", "ExecStartPre=/bin/false", "Restart web.service: ", SpecTimeout(time.Minute)),
		Entry("if a unit hangs when it starts", "ExecStartPre=/bin/sleep infinity", "Restart web.service: ", SpecTimeout(time.Minute)),
		Entry("if a reload hangs", "", "Reload web.service: ", SpecTimeout(time.Minute)),
	)
}
