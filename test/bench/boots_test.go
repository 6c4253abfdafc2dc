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
	// minCrowd is the minimum number of boots of a measurement.
	minCrowd = 500
	// maxBoot is the timeout of a host's boot.
	maxBoot = time.Minute
)

// BenchmarkBoots boots hosts from a config server with its own process and core, as Ignition does: each host opens a
// connection, requests its configuration, fetches the pool's configuration on the same connection and verifies its
// hash. The peer is net/http's file server with the same two answers, in the same process and in turn. The same process
// also has a server that closes each connection after the TLS handshake: handshake-share is the handshake's share of a
// boot's processor time.
//
// With one core for the hosts and one for the server, the hosts' core is the bottleneck. core-boots/s is the rate that
// the server's processor time allows on one core.
func BenchmarkBoots(b *testing.B) {
	pinToCore(b, os.Getpid(), 1)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	s := startServer(b, 1, 400<<10)
	for _, atOnce := range []int{10, 100, 1000, machines} {
		b.Run(fmt.Sprintf("hosts-%d", atOnce), func(b *testing.B) {
			boots := max(atOnce, minCrowd)
			var our, peer, bare bootResults
			for b.Loop() {
				our.boot(b, s, s.Ours, boots, atOnce)
				b.StopTimer()
				peer.boot(b, s, s.Peer, boots, atOnce)
				bare.runConcurrently(b, s, boots, atOnce, s.handshake)
				b.StartTimer()
			}
			b.ReportMetric(float64(bare.processor)/float64(our.processor), "handshake-share")
			b.ReportMetric(float64(our.spent)/float64(peer.spent), "x-peer")
			b.ReportMetric(float64(bare.spent)/float64(our.spent), "of-handshakes")
			if atOnce == 1000 {
				enter(b, "boots-of-handshakes", float64(bare.spent)/float64(our.spent))
			}
			our.report(b, "")
			peer.report(b, "peer-")
			bare.report(b, "handshake-")
			b.ReportMetric(s.readUsage(b).ResidentMiB, "RSS-MiB")
		})
	}
}

// bootResults are the results of hosts that boot concurrently, and their cost for the server.
type bootResults struct {
	spent, processor time.Duration
	allocations      uint64
	dropped          atomic.Int64 // connections; the host retries, as Ignition does
	boots            []time.Duration
}

// boot boots hosts concurrently.
func (c *bootResults) boot(b *testing.B, s *served, target string, boots, atOnce int) {
	c.runConcurrently(b, s, boots, atOnce, func() error { return s.boot(target + configPath(strconv.Itoa(int(s.next.Add(1))%machines))) })
}

// requestConcurrently runs a function for hosts concurrently, and retries it after lost connections.
func (c *bootResults) runConcurrently(b *testing.B, s *served, boots, atOnce int, do func() error) {
	took := make([]time.Duration, boots)
	before, start := s.readUsage(b), time.Now()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range boots {
		group.Go(func() error {
			start := time.Now()
			err := do()
			for dropped := net.Error(nil); (errors.As(err, &dropped) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) && time.Since(start) < maxBoot; err = do() {
				c.dropped.Add(1)
			}
			took[i] = time.Since(start)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
	c.spent += time.Since(start)
	after := s.readUsage(b)
	c.processor += after.Processor - before.Processor
	c.allocations += after.Allocations - before.Allocations
	c.boots = append(c.boots, took...)
}

func (c *bootResults) report(b *testing.B, prefix string) {
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

// served is a server in its own process.
type served struct {
	announcement
	requests  *json.Encoder
	responses *json.Decoder
	verified  sync.Map // hash → the gzip file whose content has it
	next      atomic.Int64
	settings  *tls.Config // a host's
}

// startServer starts this program as a server on the first core.
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
	b.Cleanup(func() { // it stops when its input is closed
		if err := errors.Join(in.Close(), child.Wait()); err != nil {
			b.Error(err)
		}
	})
	pinToCore(b, child.Process.Pid, 0)
	s := &served{requests: json.NewEncoder(in), responses: json.NewDecoder(out)}
	if err := s.responses.Decode(&s.announcement); err != nil {
		b.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(s.CA)
	s.settings = &tls.Config{RootCAs: trusted, ServerName: "127.0.0.1"}
	return s
}

// pinToCore pins all threads of a process to a core.
func pinToCore(b *testing.B, pid, core int) {
	if out, err := exec.Command("taskset", "-acp", strconv.Itoa(core), strconv.Itoa(pid)).CombinedOutput(); err != nil {
		b.Fatalf("taskset: %v: %s", err, out)
	}
}

// readUsage requests the server's resource usage.
func (s *served) readUsage(b *testing.B) (f usage) {
	if err := errors.Join(s.requests.Encode(true), s.responses.Decode(&f)); err != nil {
		b.Fatal(err)
	}
	return f
}

// handshake connects and performs the TLS handshake.
func (s *served) handshake() error {
	connection, err := tls.Dial("tcp", s.Bare, s.settings)
	if err != nil {
		return err
	}
	return connection.Close()
}

// boot boots a host. It writes its requests directly and reads only the required part of an answer, to minimize the
// hosts' share of the measurement.
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

// pointer is the part of a configuration that a host must read.
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

// get sends a request on an open connection.
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

// verify checks the hash of a gzip file's content. Hashing takes longer than serving, therefore identical files are
// only hashed once.
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
