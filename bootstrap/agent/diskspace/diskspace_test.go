package diskspace

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestDiskSpace(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Disk space")
}

var _ = Describe("A download", func() {
	var free atomic.Int64
	host := Host{Root: "/", Stat: func(string) (int64, int64, error) { return free.Load(), 100 * Reserve, nil }}

	It("is refused if it would use what stays free, with the mount and the bytes", func() {
		free.Store(Reserve + 2)
		Expect(host.Check("/proc/self", 2)).To(Succeed())
		Expect(host.Check("/proc/self", 3)).To(MatchError("the file system at /proc has 1073741826 bytes left, and needs 3 besides the 1073741824 that stay free: make room on the host"))
	})

	It("leaves a tenth of a small file system", func() {
		small := Host{Root: "/", Stat: func(string) (int64, int64, error) { return 150, 1000, nil }}
		Expect(small.Check("/", 50)).To(Succeed())
		Expect(small.Check("/", 51)).To(MatchError(ContainSubstring("the 100 that stay free")))
	})

	It("by another program ends before the file system is full", func(ctx SpecContext) {
		free.Store(2 * Reserve)
		Expect(host.Guard(ctx, "/", func(ctx context.Context) error {
			free.Store(Reserve - 1)
			<-ctx.Done()
			return errors.New("signal: terminated")
		})).To(BeAssignableToTypeOf(&NoRoomError{}))
		Expect(host.Guard(ctx, "/", func(context.Context) error { panic("it does not begin") })).To(HaveOccurred())
	})

	It("reports its own error while there is room", func(ctx SpecContext) {
		free.Store(2 * Reserve)
		failed := errors.New("404 Not Found")
		Expect(host.Guard(ctx, "/", func(context.Context) error { return failed })).To(BeIdenticalTo(failed))
	})
})
