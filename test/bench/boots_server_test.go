package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// serverPools and serverSize are environment variables. They make this program a server of a number of pools of a size.
const (
	serverPools = "POOLBOOT_BENCH_SERVER_POOLS"
	serverSize  = "POOLBOOT_BENCH_SERVER_SIZE"
)

// machines is the number of Machines of all pools.
const machines = 5000

// serverProfile is an environment variable with the name of a file for the server's CPU profile.
const serverProfile = "POOLBOOT_BENCH_SERVER_PROFILE"

// announcement is the first line of a server's output.
type announcement struct {
	// Ours and Peer are URLs of a Machine's configuration without its configPath.
	Ours, Peer string
	// Bare is the address of a server that closes connections after the TLS handshake.
	Bare string
	// Plain is the address of our server without TLS, and Rendered the path of a pool's configuration for Machine 0.
	Plain, Rendered string
	CA              []byte
}

// usage is a server's answer to each line of input: its resource usage since the start, and its memory.
type usage struct {
	Processor   time.Duration
	Allocations uint64
	ResidentMiB float64
}

func TestMain(m *testing.M) {
	run := serveBoots
	switch cores := os.Getenv(coresToUse); {
	case cores != "":
		run = func() error { return useCores(cores) }
	case os.Getenv(serverPools) == "":
		os.Exit(m.Run())
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serveBoots serves until its input is closed.
func serveBoots() error {
	f, err := newMachineFleet()
	if err != nil {
		return err
	}
	metrics := server.NewMetrics(prometheus.NewRegistry())
	ours, peer := newUnstartedServer(), newUnstartedServer()
	handler := server.New(server.Options{
		ExternalURL: &url.URL{Scheme: "https", Host: ours.Listener.Addr().String()},
		Sources:     server.Sources{Records: f, Overlays: fleetOverlays{f}}, Rendered: fleetConfigs{f}, Boots: f,
		Metrics: metrics, Log: logr.Discard(), Ready: func() error { return nil },
	})
	ours.Listener = server.NewListener(ours.Listener, server.DefaultLimits, metrics)
	ours.Config = server.NewHTTPServer(handler, log.New(io.Discard, "", 0))
	ours.StartTLS()
	plain := httptest.NewUnstartedServer(nil)
	plain.Listener = server.NewListener(plain.Listener, server.DefaultLimits, metrics)
	plain.Config = server.NewHTTPServer(handler, nil)
	plain.Start()
	bare, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go serveHandshakes(bare, ours.TLS)
	files, err := f.files(ours.URL, peer.Listener.Addr().String())
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	peer.Config = server.NewHTTPServer(http.FileServer(http.Dir(files)), log.New(io.Discard, "", 0))
	peer.StartTLS()
	debug.FreeOSMemory()
	if path := os.Getenv(serverProfile); path != "" {
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	out := json.NewEncoder(os.Stdout)
	err = out.Encode(announcement{
		Ours: ours.URL, Peer: peer.URL + "/config?", Bare: bare.Addr().String(),
		Plain: plain.Listener.Addr().String(), Rendered: renderedPath(f.names[0], "0"), CA: authority().PEM(),
	})
	for in := bufio.NewScanner(os.Stdin); err == nil && in.Scan(); {
		var current usage
		if current, err = readUsage(); err == nil {
			err = out.Encode(current)
		}
	}
	handler.WaitForWrites()
	return err
}

// serveHandshakes closes each connection after the TLS handshake.
func serveHandshakes(on net.Listener, settings *tls.Config) {
	for {
		connection, err := on.Accept()
		if err != nil {
			return
		}
		go func() {
			_ = tls.Server(connection, settings).Handshake()
			_ = connection.Close()
		}()
	}
}

func newUnstartedServer() *httptest.Server {
	s := httptest.NewUnstartedServer(nil)
	s.TLS = server.TLSConfig(nil)
	s.TLS.Certificates = []tls.Certificate{certificate()}
	return s
}

func readUsage() (usage, error) {
	var rusage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &rusage); err != nil {
		return usage{}, err
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	pages, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return usage{}, err
	}
	resident, err := strconv.Atoi(strings.Fields(string(pages))[1])
	return usage{
		Processor:   time.Duration(rusage.Utime.Nano() + rusage.Stime.Nano()),
		Allocations: memory.Mallocs,
		ResidentMiB: float64(resident*os.Getpagesize()) / (1 << 20),
	}, err
}

// machineFleet is a management cluster with Machines that can boot. A Machine's number is its pointer ID and its UID.
type machineFleet struct {
	*machine
	asked   atomic.Int64
	names   []string
	configs map[string]*server.PoolBytes
}

// newMachineFleet creates the number of rendered configs in the environment, each with different content.
func newMachineFleet() (*machineFleet, error) {
	pools, err := strconv.Atoi(os.Getenv(serverPools))
	size, sizeErr := strconv.Atoi(os.Getenv(serverSize))
	if err = errors.Join(err, sizeErr); err != nil {
		return nil, err
	}
	one, err := newMachine(load{configs: 200, filesEach: 5, bytes: size})
	if err != nil {
		return nil, err
	}
	f := &machineFleet{machine: one, configs: map[string]*server.PoolBytes{}}
	for i := range pools {
		config := one.rendered.DeepCopy()
		config.Spec.KernelArguments = append(config.Spec.KernelArguments, "bench.pool="+strconv.Itoa(i))
		if config.Name, err = pool.NameFor("infra", config.Spec); err != nil {
			return nil, err
		}
		if f.configs[config.Name], err = server.PackRendered(config); err != nil {
			return nil, err
		}
		f.names = append(f.names, config.Name)
	}
	return f, nil
}

// files writes the answers to a host of the first pool to a directory, and returns its path.
func (f *machineFleet) files(ours, peer string) (string, error) {
	host := newHostClient(false, authority().PEM())
	config, err := request(host, ours+configPath("0"))
	if err != nil {
		return "", err
	}
	from := ours + renderedPath(f.names[0], "0")
	rendered, err := request(host, from)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "bench-server")
	if err != nil {
		return "", err
	}
	quoted, err := json.Marshal(from) // JSON escapes &
	if err != nil {
		return "", err
	}
	if config = bytes.Replace(config, quoted, []byte(`"https://`+peer+`/rendered"`), 1); !bytes.Contains(config, []byte(peer)) {
		return "", fmt.Errorf("the configuration does not point at %s: %s", from, config)
	}
	return dir, errors.Join(os.WriteFile(filepath.Join(dir, "config"), config, 0o600), os.WriteFile(filepath.Join(dir, "rendered"), rendered, 0o600))
}

// fleetOverlays creates a Machine's overlay for each request, because each boot is a first boot.
type fleetOverlays struct{ *machineFleet }

func (f fleetOverlays) Get(_ context.Context, config types.UID) (*server.Overlay, error) {
	number, err := strconv.Atoi(string(config))
	overlay := f.overlay
	overlay.Version = strconv.FormatInt(f.asked.Add(1), 10)
	overlay.Configuration = f.names[number%len(f.names)]
	return &overlay, err
}

type fleetConfigs struct{ *machineFleet }

func (f fleetConfigs) Get(_ context.Context, name types.NamespacedName) (*server.PoolBytes, error) {
	return f.configs[name.Name], nil
}
