// Package host simulates a bare-metal host with as many real parts as possible. The disk is a directory, and a running
// host is a set of processes. The real Ignition fetches and writes the configuration, its units run as in systemd, and
// the real kubelet and kubeadm run inside the host's root with the paths that Ignition wrote. Simulated are the
// hardware, the boot loader, systemd and the container runtime.
//
// The package is independent of Poolboot: a host boots with user data, as from any provisioner.
package host

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Image is the operating system on a host's disk.
type Image string

const (
	// KubeletImage has the kubelet's binary but no unit for it: the user data must bring one.
	KubeletImage Image = "kubelet"
	// KubeadmImage has kubelet, kubeadm and the kubelet unit that Kubernetes' own packages install with kubeadm.
	KubeadmImage Image = "kubeadm"
)

// sentinel is the file with which a bootstrap provider reports success (Cluster API contract).
const sentinel = "run/cluster-api/bootstrap-success.complete"

// Options describe a host.
type Options struct {
	// Name is the host's name unless /etc/hostname has another one, and the prefix of its lines in Log.
	Name string

	// Dir is the host's own directory with its disk. It is created if it is missing.
	Dir string

	// BinDir has the real ignition, kubelet and kubeadm. Default: process.BinDir.
	BinDir string

	// Image is the image on the disk. Default: KubeletImage.
	Image Image

	// KubeletPort is the port of the kubelet's API, HealthzPort the port of its health check. They must be unique,
	// because hosts share the machine's network. Default: free ports. With KubeadmImage the health check has port
	// 10248, which kubeadm requires, therefore only one such host can join at a time.
	KubeletPort, HealthzPort int

	// Log gets the output of Ignition and the units line by line, in addition to the file console.log in Dir. Optional.
	Log io.Writer
}

// Host is a simulated bare-metal host. It is safe for concurrent use.
type Host struct {
	options Options

	mu     sync.Mutex // guards the fields below
	events []Event
	boot   *boot
}

// New returns a host that is off.
func New(options Options) *Host {
	if options.Image == "" {
		options.Image = KubeletImage
	}
	return &Host{options: options}
}

// Name returns the host's name.
func (h *Host) Name() string { return h.options.Name }

// Root returns the directory with the host's file system. It is complete when Ignition has written the files.
func (h *Host) Root() string { return filepath.Join(h.options.Dir, "root") }

// PowerOn writes a new image to the disk and boots it for the first time, with the user data as Ignition's
// configuration. It returns when the boot has started. Ignition retries until it gets its configuration. The host runs
// until ctx is done, PowerOff is called or the boot fails, see Done. It is an error if the host is on.
func (h *Host) PowerOn(ctx context.Context, userData []byte) error {
	return h.powerOn(ctx, func() error { return h.deploy(userData) }, true)
}

// Reboot boots the host from its current disk, without Ignition and with an empty /run. It powers off a host that is
// on.
func (h *Host) Reboot(ctx context.Context) error {
	h.PowerOff()
	return h.powerOn(ctx, h.emptyRun, false)
}

// PowerOff kills all processes of the host and waits until they have exited. It keeps the disk.
func (h *Host) PowerOff() {
	if b := h.current(); b != nil {
		b.cancel()
		<-b.done
	}
}

// Done returns a channel that is closed when the host is off: after PowerOff, or when Ignition fails or a unit is not
// supported. A failed unit does not power off a host, and is in Events. Before the first PowerOn it is nil.
func (h *Host) Done() <-chan struct{} {
	if b := h.current(); b != nil {
		return b.done
	}
	return nil
}

// Err returns the error of the boot, or nil while the host is on and after PowerOff.
func (h *Host) Err() error {
	b := h.current()
	if b == nil {
		return nil
	}
	select {
	case <-b.done:
		return b.err
	default:
		return nil
	}
}

// Joined reports whether the sentinel file /run/cluster-api/bootstrap-success.complete exists.
func (h *Host) Joined() bool {
	_, err := os.Stat(filepath.Join(h.Root(), sentinel))
	return err == nil
}

func (h *Host) current() *boot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot
}
