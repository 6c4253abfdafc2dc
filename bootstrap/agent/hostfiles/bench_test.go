package hostfiles

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// sizeOfConfig is how many files a large configuration has.
const sizeOfConfig = 1000

// largeTree returns a configuration with files of 4 KiB in 50 directories, of which the first have another version.
func largeTree(changed int) hosttree.Tree {
	tree := hosttree.Tree{}
	for i := range sizeOfConfig {
		version := 1
		if i < changed {
			version = 2
		}
		contents := strings.Repeat(fmt.Sprintf("%d %d\n", i, version), 4096/7)
		tree[fmt.Sprintf("/etc/poolboot-test/%02d/%04d.conf", i%50, i)] = hosttree.Entry{
			Type: hosttree.File, Mode: ptr.To[uint32](0o644), UID: ptr.To(0), GID: ptr.To(0), Contents: []byte(contents),
		}
	}
	return tree
}

// newBenchmarkHost returns a host on a real disk with the large configuration.
func newBenchmarkHost(b *testing.B) (string, *Updater) {
	b.Helper()
	directory, err := os.MkdirTemp("", "host-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(directory) })
	root, err := os.OpenRoot(directory)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = root.Close() })
	u, err := Open(root, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = u.Close() })
	benchmarkUpdate(b, u, nil, largeTree(0))
	return directory, u
}

func benchmarkUpdate(b *testing.B, u *Updater, from, to hosttree.Tree) {
	b.Helper()
	if err := u.Apply(hosttree.Changes(from, to), false); err != nil {
		b.Fatal(err)
	}
	if err := u.Confirm(); err != nil {
		b.Fatal(err)
	}
}

// usedCPU returns the CPU time that this process and its children used.
func usedCPU(b *testing.B) (sum time.Duration) {
	b.Helper()
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var usage syscall.Rusage
		if err := syscall.Getrusage(of, &usage); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return sum
}

// BenchmarkUpdate plans, applies and confirms updates that change some files of a large configuration.
func BenchmarkUpdate(b *testing.B) {
	for _, changed := range []int{1, 100, sizeOfConfig} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			_, u := newBenchmarkHost(b)
			from, to := largeTree(0), largeTree(changed)
			u.syncs = 0
			cpu := usedCPU(b)
			for b.Loop() {
				benchmarkUpdate(b, u, from, to)
				from, to = to, from
			}
			b.ReportMetric(float64((usedCPU(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(u.syncs)/float64(b.N), "fsyncs/op")
		})
	}
}

// BenchmarkRsync lets rsync make the same changes, with and without syncing each file. It neither records what it does
// nor can it undo it.
func BenchmarkRsync(b *testing.B) {
	if _, err := exec.LookPath("rsync"); err != nil {
		b.Skip("rsync is not installed")
	}
	for name, option := range map[string]string{"fsync": "--fsync", "no-fsync": "--times"} {
		for _, changed := range []int{1, 100, sizeOfConfig} {
			b.Run(fmt.Sprintf("%s/changed=%d", name, changed), func(b *testing.B) {
				host, _ := newBenchmarkHost(b)
				sources := [2]string{b.TempDir(), b.TempDir()}
				for i, tree := range []hosttree.Tree{largeTree(changed), largeTree(0)} {
					for name, entry := range tree {
						file := filepath.Join(sources[i], name)
						if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
							b.Fatal(err)
						}
						if err := os.WriteFile(file, entry.Contents, 0o600); err != nil {
							b.Fatal(err)
						}
						if err := os.Chmod(file, 0o644); err != nil {
							b.Fatal(err)
						}
					}
				}
				cpu, i := usedCPU(b), 0
				for b.Loop() {
					// Contents are compared by hash, because both versions of a file can have the same size and time.
					output, err := exec.Command("rsync", "-a", "--checksum", "--delete", "--whole-file", option, sources[i%2]+"/etc/poolboot-test/", host+"/etc/poolboot-test/").CombinedOutput()
					if err != nil {
						b.Fatalf("%v: %s", err, output)
					}
					i++
				}
				b.ReportMetric(float64((usedCPU(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}

// BenchmarkDifferences compares a host with a large configuration, for the first time, and when nothing changed since.
func BenchmarkDifferences(b *testing.B) {
	for _, again := range []bool{false, true} {
		b.Run(fmt.Sprintf("again=%t", again), func(b *testing.B) {
			directory, u := newBenchmarkHost(b)
			time.Sleep(2 * settled) // hashes of files that just changed are not remembered
			cpu := usedCPU(b)
			for b.Loop() {
				if !again {
					u.sums = nil
				}
				found, err := u.Differences()
				if err != nil || len(found) > 0 {
					b.Fatal(directory, found, err)
				}
			}
			b.ReportMetric(float64((usedCPU(b)-cpu).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
}
