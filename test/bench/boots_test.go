package bench

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// minCrowd is how many boots are timed together at the least.
	minCrowd = 500
	// maxBoot is how long a host tries.
	maxBoot = time.Minute
)

// BenchmarkBoots boots hosts from a config server that has a process and a core of its own, as Ignition does: each host
// opens a connection, asks for its configuration, follows it to the pool's bytes on the same connection and verifies
// their hash. The peer is net/http's file server with the same two answers, in the same process as ours, in turn with
// it. So is a server that ends each connection as soon as its TLS handshake is done: handshake-share is how much of a
// boot's processor time that takes.
//
// Where hosts and server have a core each, it is the hosts' that is full: core-boots/s is what the server's own
// processor time would allow on one core.
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
			b.ReportMetric(float64(bare.spent)/float64(our.spent), "of-handshakes")
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
			for dropped := net.Error(nil); (errors.As(err, &dropped) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && time.Since(start) < maxBoot; err = do() {
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
	settings *tls.Config // a host's
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
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(s.CA)
	s.settings = &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"}
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
	connection, err := tls.Dial("tcp", s.Bare, s.settings)
	if err != nil {
		return err
	}
	return connection.Close()
}

// boot is one host. It writes its requests itself and reads no more of an answer than it must: on their core hosts must
// not be what is measured.
func (s *served) boot(target string) error {
	first, err := url.Parse(target)
	if err != nil {
		return err
	}
	connection, err := tls.Dial("tcp", first.Host, s.settings)
	if err != nil {
		return err
	}
	defer connection.Close()
	from := readers.Get().(*bufio.Reader)
	defer readers.Put(from)
	from.Reset(connection)
	body, err := get(connection, from, first)
	if err != nil {
		return err
	}
	var config pointer
	if err := json.Unmarshal(body, &config); err != nil {
		return err
	}
	if len(config.Ignition.Config.Merge) != 2 {
		return fmt.Errorf("%s: %d parts, must be 2", target, len(config.Ignition.Config.Merge))
	}
	pool := config.Ignition.Config.Merge[0]
	second, err := url.Parse(pool.Source)
	if err != nil {
		return err
	}
	if body, err = get(connection, from, second); err != nil {
		return err
	}
	return s.verify(body, pool.Verification.Hash)
}

// pointer is as much as a host must know of its configuration.
type pointer struct {
	Ignition struct {
		Config struct {
			Merge []struct {
				Source       string `json:"source"`
				Verification struct {
					Hash string `json:"hash"`
				} `json:"verification"`
			} `json:"merge"`
		} `json:"config"`
	} `json:"ignition"`
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 16<<10) }}

// get asks on an open connection.
func get(connection io.Writer, from *bufio.Reader, target *url.URL) ([]byte, error) {
	_, err := fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", target.RequestURI(), target.Host, benchToken)
	if err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(from, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body := make([]byte, max(response.ContentLength, 0))
	if _, err := io.ReadFull(response.Body, body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK || len(body) == 0 {
		return nil, fmt.Errorf("%s: %s: %d bytes", target, response.Status, len(body))
	}
	return body, nil
}

// verify makes sure that a gzip file's content has a hash. Hashing takes the hosts longer than the server takes to
// serve: of files that are the same, byte for byte, it is done once.
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
