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

const (
	// filesOfHost is how many files a large configuration has, and treeOfHost where they are.
	filesOfHost = 1000
	treeOfHost  = "/etc/poolboot-test/"
	// maxDriftCheck is the processor time that a full check of a large configuration may take.
	maxDriftCheck = 50 * time.Millisecond
)

// hostTree returns a configuration with files of 4 KiB in 50 directories, of which the first have another version.
func hostTree(changed int) hosttree.Tree {
	tree := hosttree.Tree{}
	for i := range filesOfHost {
		version := 1
		if i < changed {
			version = 2
		}
		tree[fmt.Sprintf("%s%02d/%04d.conf", treeOfHost, i%50, i)] = hosttree.Entry{
			Type: hosttree.File, Mode: ptr.To[uint32](0o644), UID: ptr.To(0), GID: ptr.To(0),
			Contents: []byte(strings.Repeat(fmt.Sprintf("%d %d\n", i, version), 4096/7)),
		}
	}
	return tree
}

// updateHost plans, applies and confirms an update of files.
func updateHost(u *Updater, from, to hosttree.Tree) error {
	if err := u.Apply(hosttree.Changes(from, to), false); err != nil {
		return err
	}
	return u.Confirm()
}

// newHostFiles returns a host with a large configuration, and what updates its files.
func newHostFiles(b *testing.B) (*os.Root, *Updater) {
	b.Helper()
	root, err := os.OpenRoot(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = root.Close() })
	u, err := Open(root)
	if err != nil {
		b.Fatal(err)
	}
	if err := updateHost(u, nil, hostTree(0)); err != nil {
		b.Fatal(err)
	}
	return root, u
}

// BenchmarkHostFiles plans, applies and confirms updates that change some files of a large configuration. The peer is
// rsync, which writes the same files, syncs each of them, and compares them by hash, because both versions of a file
// can have the same size and time. It keeps neither the replaced files nor a record of what it does.
//
// "cpu-ms/op" and "peer-cpu-ms/op" are processor time, "x-peer-cpu" is their ratio, and "fsyncs/op" is the number of
// files and directories that are synced.
func BenchmarkHostFiles(b *testing.B) {
	rsync, err := exec.LookPath("rsync")
	if err != nil {
		b.Fatal("rsync, the peer, is not installed: run hack/native-packages.sh rsync")
	}
	for _, changed := range []int{1, 100, filesOfHost} {
		b.Run(fmt.Sprintf("changed=%d", changed), func(b *testing.B) {
			_, u := newHostFiles(b)
			defer u.Close()
			from, to := hostTree(0), hostTree(changed)
			sources := [2]string{writeTree(b, to), writeTree(b, from)}
			mirror, round := writeTree(b, from), 0
			syncs := u.syncs
			var cpu, peerCPU, peerTime time.Duration
			for b.Loop() {
				start := usedBy(b, syscall.RUSAGE_SELF)
				if err := updateHost(u, from, to); err != nil {
					b.Fatal(err)
				}
				cpu += usedBy(b, syscall.RUSAGE_SELF) - start
				from, to = to, from
				b.StopTimer()
				start, began := usedBy(b, syscall.RUSAGE_CHILDREN), time.Now()
				output, err := exec.Command(rsync, "-a", "--checksum", "--delete", "--whole-file", "--fsync", sources[round%2]+treeOfHost, mirror+treeOfHost).CombinedOutput()
				if err != nil {
					b.Fatalf("%v: %s", err, output)
				}
				peerCPU += usedBy(b, syscall.RUSAGE_CHILDREN) - start
				peerTime += time.Since(began)
				round++
				b.StartTimer()
			}
			b.ReportMetric(milliseconds(cpu)/float64(b.N), "cpu-ms/op")
			b.ReportMetric(milliseconds(peerCPU)/float64(b.N), "peer-cpu-ms/op")
			b.ReportMetric(float64(cpu)/float64(peerCPU), "x-peer-cpu")
			b.ReportMetric(float64(peerTime)/float64(b.N), "peer-ns/op")
			b.ReportMetric(float64(b.Elapsed())/float64(peerTime), "x-peer")
			b.ReportMetric(float64(u.syncs-syncs)/float64(b.N), "fsyncs/op")
		})
	}
}

// writeTree writes a tree of files to a new directory.
func writeTree(b *testing.B, tree hosttree.Tree) string {
	b.Helper()
	directory := b.TempDir()
	for name, entry := range tree {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(file, entry.Contents, 0o644); err != nil { //nolint:gosec // as in the configuration
			b.Fatal(err)
		}
	}
	return directory
}

// BenchmarkDrift compares a host with its large configuration: "first" reads all files, as when the agent starts, and
// "again" is a later check, when nothing has changed since. It fails if a check takes too much processor time.
func BenchmarkDrift(b *testing.B) {
	root, u := newHostFiles(b)
	time.Sleep(2 * settled) // the hashes of files that have just changed are not remembered
	check := func(b *testing.B, u *Updater) time.Duration {
		start := usedBy(b, syscall.RUSAGE_SELF)
		found, err := u.Differences()
		if err != nil || len(found) > 0 {
			b.Fatal(found, err)
		}
		return usedBy(b, syscall.RUSAGE_SELF) - start
	}
	report := func(b *testing.B, cpu time.Duration) {
		b.ReportMetric(milliseconds(cpu)/float64(b.N), "cpu-ms/op")
		if mean := cpu / time.Duration(b.N); mean > maxDriftCheck {
			b.Errorf("a check takes %s of processor time: more than %s", mean, maxDriftCheck)
		}
	}
	b.Run("first", func(b *testing.B) {
		var cpu time.Duration
		for b.Loop() {
			b.StopTimer()
			if err := u.Close(); err != nil {
				b.Fatal(err)
			}
			var err error
			if u, err = Open(root); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			cpu += check(b, u)
		}
		report(b, cpu)
	})
	b.Run("again", func(b *testing.B) {
		var cpu time.Duration
		for b.Loop() {
			cpu += check(b, u)
		}
		report(b, cpu)
	})
	_ = u.Close()
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// usedBy returns the processor time of this program, or of the programs that it ran.
func usedBy(b *testing.B, whose int) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(whose, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
