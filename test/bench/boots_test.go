package bench

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/ignition/v2/config/v3_1/types"
	"golang.org/x/sync/errgroup"
)

const (
	// minCrowd is how many boots are timed together at the least.
	minCrowd = 500
	// maxBoot is how long a host tries.
	maxBoot = time.Minute
)

// BenchmarkBoots boots hosts from a config server that has a process and a core of its own, as Ignition does: each host opens
// a connection, asks for its configuration, follows it to the pool's bytes on the same connection and verifies their hash.
// The peer is net/http's file server with the same two answers, in the same process as ours, in turn with it. So is a server that
// ends each connection as soon as its TLS handshake is done: handshake-share is how much of a boot's processor time that takes.
//
// Where hosts and server have a core each, it is the hosts' that is full: core-boots/s is what the server's own processor time
// would allow on one core.
func BenchmarkBoots(b *testing.B) {
	ontoCore(b, os.Getpid(), 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := startServer(b, 1, 400<<10)
	for _, atOnce := range []int{10, 100, 1000, machines} {
		b.Run(fmt.Sprintf("hosts-%d", atOnce), func(b *testing.B) {
			boots := max(atOnce, minCrowd)
			var our, peer, bare crowded
			for b.Loop() {
				our.boot(b, s, s.Ours, boots, atOnce)
				b.StopTimer()
				peer.boot(b, s, s.Peer, boots, atOnce)
				bare.crowd(b, s, boots, atOnce, s.handshake)
				b.StartTimer()
			}
			b.ReportMetric(float64(bare.processor)/float64(our.processor), "handshake-share")
			b.ReportMetric(float64(our.spent)/float64(peer.spent), "x-peer")
			our.report(b, "")
			peer.report(b, "peer-")
			bare.report(b, "handshake-")
			b.ReportMetric(s.figures(b).ResidentMiB, "RSS-MiB")
		})
	}
}

// crowded is what crowds of hosts saw, and what they cost their server.
type crowded struct {
	spent, processor time.Duration
	allocations      uint64
	dropped          atomic.Int64 // connections; as Ignition does, the host tries again
	boots            []time.Duration
}

// boot has hosts boot, so many of them at a time.
func (c *crowded) boot(b *testing.B, s *served, target string, boots, atOnce int) {
	c.crowd(b, s, boots, atOnce, func() error { return s.boot(target + configPath(strconv.Itoa(int(s.next.Add(1))%machines))) })
}

// crowd has hosts do something, so many of them at a time; who loses its connection does it again.
func (c *crowded) crowd(b *testing.B, s *served, boots, atOnce int, do func() error) {
	took := make([]time.Duration, boots)
	before, start := s.figures(b), time.Now()
	var crowd errgroup.Group
	crowd.SetLimit(atOnce)
	for i := range boots {
		crowd.Go(func() error {
			start := time.Now()
			err := do()
			for dropped := net.Error(nil); (errors.As(err, &dropped) || errors.Is(err, io.EOF)) && time.Since(start) < maxBoot; err = do() {
				c.dropped.Add(1)
			}
			took[i] = time.Since(start)
			return err
		})
	}
	if err := crowd.Wait(); err != nil {
		b.Fatal(err)
	}
	c.spent += time.Since(start)
	after := s.figures(b)
	c.processor += after.Processor - before.Processor
	c.allocations += after.Allocations - before.Allocations
	c.boots = append(c.boots, took...)
}

func (c *crowded) report(b *testing.B, prefix string) {
	slices.Sort(c.boots)
	n := len(c.boots)
	b.ReportMetric(float64(n)/c.spent.Seconds(), prefix+"boots/s")
	b.ReportMetric(float64(n)/c.processor.Seconds(), prefix+"core-boots/s")
	b.ReportMetric(float64(c.processor.Microseconds())/float64(n), prefix+"cpu-µs/boot")
	b.ReportMetric(float64(c.allocations)/float64(n), prefix+"allocs/boot")
	b.ReportMetric(float64(c.dropped.Load()), prefix+"dropped")
	b.ReportMetric(c.boots[n/2].Seconds()*1000, prefix+"p50-ms")
	b.ReportMetric(c.boots[n*99/100].Seconds()*1000, prefix+"p99-ms")
}

// served is a server in a process of its own.
type served struct {
	announcement
	ask      *json.Encoder
	told     *json.Decoder
	verified sync.Map // hash → the gzip file whose content has it
	next     atomic.Int64
}

// startServer starts this program once more, as a server on the first core.
func startServer(b *testing.B, pools, size int) *served {
	own, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	child := exec.Command(own)
	child.Env = append(os.Environ(), serverPools+"="+strconv.Itoa(pools), serverSize+"="+strconv.Itoa(size), "GOMAXPROCS=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { // it ends with its input
		if err := errors.Join(in.Close(), child.Wait()); err != nil {
			b.Error(err)
		}
	})
	ontoCore(b, child.Process.Pid, 0)
	s := &served{ask: json.NewEncoder(in), told: json.NewDecoder(out)}
	if err := s.told.Decode(&s.announcement); err != nil {
		b.Fatal(err)
	}
	return s
}

// ontoCore keeps all threads of a process on one core.
func ontoCore(b *testing.B, pid, core int) {
	if out, err := exec.Command("taskset", "-acp", strconv.Itoa(core), strconv.Itoa(pid)).CombinedOutput(); err != nil {
		b.Fatalf("taskset: %v: %s", err, out)
	}
}

// figures asks the server what it has used so far.
func (s *served) figures(b *testing.B) (f figures) {
	if err := errors.Join(s.ask.Encode(true), s.told.Decode(&f)); err != nil {
		b.Fatal(err)
	}
	return f
}

// handshake connects, and has TLS agreed on.
func (s *served) handshake() error {
	connection, err := tls.Dial("tcp", s.Bare, s.settings())
	if err != nil {
		return err
	}
	return connection.Close()
}

// settings are a host's for TLS.
func (s *served) settings() *tls.Config {
	return askingClient(false, s.CA).Transport.(*http.Transport).TLSClientConfig
}

// boot is one host.
func (s *served) boot(target string) error {
	host := askingClient(true, s.CA)
	defer host.CloseIdleConnections()
	body, err := ask(host, target)
	if err != nil {
		return err
	}
	var config types.Config
	if err := json.Unmarshal(body, &config); err != nil {
		return err
	}
	if len(config.Ignition.Config.Merge) != 2 {
		return fmt.Errorf("%s: %d parts, must be 2", target, len(config.Ignition.Config.Merge))
	}
	pool := config.Ignition.Config.Merge[0]
	if body, err = ask(host, *pool.Source); err != nil {
		return err
	}
	return s.verify(body, *pool.Verification.Hash)
}

// verify makes sure that a gzip file's content has a hash. Hashing takes the hosts longer than the server takes to serve: of
// files that are the same, byte for byte, it is done once.
func (s *served) verify(file []byte, hash string) error {
	if known, ok := s.verified.Load(hash); ok && bytes.Equal(known.([]byte), file) {
		return nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return err
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		return err
	}
	sum := sha512.Sum512(content)
	if got := "sha512-" + hex.EncodeToString(sum[:]); got != hash {
		return fmt.Errorf("the pool's bytes have the hash %s, must be %s", got, hash)
	}
	s.verified.Store(hash, file)
	return nil
}
