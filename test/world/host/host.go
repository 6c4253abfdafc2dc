// Package host simulates one bare-metal host, with as little simulation as possible: the disk is a folder, power is a
// set of processes, and all between is real. The real Ignition fetches and writes the configuration, the units that it
// wrote are run as systemd would run them, and the real kubelet and kubeadm run inside the host's root, where every
// path is the one that Ignition wrote. Only the hardware, the boot loader, systemd and the container runtime are
// stand-ins.
//
// The package knows nothing of Poolboot: a host gets user data, as from any provisioner, and does what it says.
package host

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Image is what the operating system on a host's disk brings along.
type Image string

const (
	// KubeletImage has the kubelet's binary but no unit for it: the user data must bring one.
	KubeletImage Image = "kubelet"
	// KubeadmImage has kubelet, kubeadm and the kubelet unit that Kubernetes' own packages install with kubeadm.
	KubeadmImage Image = "kubeadm"
)

// sentinel is the file by which a bootstrap provider says that its part is done (Cluster API contract).
const sentinel = "run/cluster-api/bootstrap-success.complete"

// Options describe a host.
type Options struct {
	// Name is the host's name until /etc/hostname says otherwise; also the prefix of its lines in Log.
	Name string

	// Dir holds the host's disk and everything else of it; it is made if it is missing and is the host's alone.
	Dir string

	// BinDir holds the real ignition, kubelet and kubeadm. Empty: what process.BinDir finds.
	BinDir string

	// Image is what is on the disk besides what the user data brings. Empty: KubeletImage.
	Image Image

	// KubeletPort is the port of the kubelet's API and HealthzPort the one of its health check. Hosts share the
	// machine's network, so every host needs its own. 0: a free one; with KubeadmImage the health check's is 10248,
	// where kubeadm looks for it, so that only one such host can join at a time.
	KubeletPort, HealthzPort int

	// Log gets what Ignition and the units print, line by line, beside the file console.log in Dir. Nil: only the file.
	Log io.Writer
}

// Host is a simulated bare-metal host. Its methods may be called from any goroutine.
type Host struct {
	options Options

	mu     sync.Mutex // guards what follows
	events []Event
	boot   *boot
}

// New describes a host; nothing happens before PowerOn.
func New(options Options) *Host {
	if options.Image == "" {
		options.Image = KubeletImage
	}
	return &Host{options: options}
}

// Name is the host's name.
func (h *Host) Name() string { return h.options.Name }

// Root is the folder that is the host's file system, complete once Ignition has written the files.
func (h *Host) Root() string { return filepath.Join(h.options.Dir, "root") }

// PowerOn puts a fresh image on the disk and boots it for the first time, with the user data as Ignition's
// configuration. It returns once the host is on its way; Ignition asks for what it can't get yet until it gets it. The
// host runs until ctx ends, PowerOff is called or the boot fails: see Done. A host that is on is an error.
func (h *Host) PowerOn(ctx context.Context, userData []byte) error {
	return h.powerOn(ctx, func() error { return h.deploy(userData) }, true)
}

// Reboot boots the host again with the disk as it is: no Ignition, an empty /run. A host that is on loses its power
// first.
func (h *Host) Reboot(ctx context.Context) error {
	h.PowerOff()
	return h.powerOn(ctx, h.emptyRun, false)
}

// PowerOff ends all processes of the host at once, as pulling the plug does, and returns when they are gone. The disk
// stays as it is.
func (h *Host) PowerOff() {
	if b := h.current(); b != nil {
		b.cancel()
		<-b.done
	}
}

// Done is closed when the host goes off: after PowerOff, or when Ignition failed or a unit is not understood. A unit
// that fails does not switch a host off; Events tell of it. Before the first PowerOn it is nil.
func (h *Host) Done() <-chan struct{} {
	if b := h.current(); b != nil {
		return b.done
	}
	return nil
}

// Err says why the boot failed; nil while the host is on and after PowerOff.
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

// Joined says whether the sentinel file /run/cluster-api/bootstrap-success.complete stands.
func (h *Host) Joined() bool {
	_, err := os.Stat(filepath.Join(h.Root(), sentinel))
	return err == nil
}

func (h *Host) current() *boot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot
}
