package hosts_test

import (
	"context"
	"path"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// describeFiles has the specs about what can't be written.
func describeFiles(host func() *runningHost) {
	// shell returns a function that runs a script on the host.
	shell := func(script string) func(context.Context) {
		return func(ctx context.Context) {
			GinkgoHelper()
			_, err := host().Run(ctx, "sh", "-ec", script)
			Expect(err).NotTo(HaveOccurred())
		}
	}

	DescribeTable("keeps its configuration if it can't write", func(ctx SpecContext, name string, breaks, corrects func(context.Context), why string) {
		h := host()
		h.expectDone(ctx, h.assign(ctx, h.config("before")), "before")
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
	)
}
