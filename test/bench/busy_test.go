package bench

import (
	"context"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const (
	// coresToUse is the environment variable of a process that only uses processor time: so many cores, until its input
	// is closed.
	coresToUse = "POOLBOOT_BENCH_CORES"
	// busyWorkers take turns with that. Each has as much to do as an API server for one request on a small machine, and
	// pauses then. So they do less while others need the processor, as the clients of an API server do.
	busyWorkers = 20
	busyTime    = 20 * time.Millisecond
)

// usedCores returns how many cores of the machine are in use on average over some time.
func usedCores(ctx context.Context, window time.Duration) (float64, error) {
	before, err := usedSeconds()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(window):
	}
	after, err := usedSeconds()
	return (after - before) / time.Since(began).Seconds(), err
}

func usedSeconds() (float64, error) {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0, err
	}
	stat, err := proc.Stat()
	cpu := stat.CPUTotal
	return cpu.User + cpu.Nice + cpu.System + cpu.IRQ + cpu.SoftIRQ, err
}

// startBusy starts a process that uses cores, and returns how to stop it.
func startBusy(ctx context.Context, cores float64) (stop func() error, err error) {
	busy := exec.CommandContext(ctx, os.Args[0])
	busy.Env = append(os.Environ(), coresToUse+"="+strconv.FormatFloat(cores, 'f', 3, 64))
	busy.Stderr = os.Stderr
	in, err := busy.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := busy.Start(); err != nil {
		return nil, err
	}
	return func() error {
		_ = in.Close()
		return busy.Wait()
	}, nil
}

// useCores uses cores until the input is closed.
func useCores(text string) error {
	cores, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return err
	}
	work := make([]byte, 64<<10)
	pause := (busyWorkers/cores - 1) * float64(busyTime)
	for range busyWorkers {
		go func() {
			runtime.LockOSThread()
			for {
				time.Sleep(time.Duration(rand.ExpFloat64() * pause))
				for until := threadTime() + busyTime; threadTime() < until; {
					_ = sha256.Sum256(work)
				}
			}
		}()
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// threadTime returns the processor time that the current thread has used.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}
