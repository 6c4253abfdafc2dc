package bench

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// BenchmarkRenderGrowth renders pools with growing numbers and sizes of MachineConfigs. "cpu-ns/op" is the processor
// time of all threads with the garbage collector. Unlike ns/op it hardly depends on other load of the machine.
// "ns/file" is constant if the time is proportional to the number of files.
func BenchmarkRenderGrowth(b *testing.B) {
	for _, of := range []load{
		{configs: 10, filesEach: 5, bytes: 50 << 10},
		{configs: 100, filesEach: 5, bytes: 512 << 10},
		{configs: 200, filesEach: 5, bytes: 1 << 20},
		{configs: 1000, filesEach: 1, bytes: 1 << 20},
		{configs: 200, filesEach: 5, bytes: 256 << 10},
		{configs: 200, filesEach: 5, bytes: 512 << 10},
	} {
		b.Run(fmt.Sprintf("configs=%d/files=%d/KiB=%d", of.configs, of.configs*of.filesEach, of.bytes>>10), func(b *testing.B) {
			all, err := of.make()
			if err != nil {
				b.Fatal(err)
			}
			roles := pools()
			b.ReportAllocs()
			start := processorTime(b)
			for b.Loop() {
				if _, err := pool.Render("infra", roles, all); err != nil {
					b.Fatal(err)
				}
			}
			spent := float64(processorTime(b)-start) / float64(b.N)
			b.ReportMetric(spent, "cpu-ns/op")
			b.ReportMetric(spent/float64(of.configs*of.filesEach), "ns/file")
		})
	}
}

// processorTime returns the processor time of this program.
func processorTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
