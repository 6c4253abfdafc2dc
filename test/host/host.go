// Package host simulates one bare-metal host, with as little simulation as possible: the disk is a folder, power is a
// set of processes, and all between is real. The real Ignition fetches and writes the configuration, the units that it
// wrote are run as systemd would run them, and the real kubelet and kubeadm run inside the host's root, where every path
// is the one that Ignition wrote. Only the hardware, the boot loader, systemd and the container runtime are stand-ins.
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
	// Name is the host's name until /etc/hostname says otherwise; also the prefix of its log lines.
	Name string

	// Dir holds the host's disk and firmware files; it is made if it is missing and is the host's alone.
	Dir string

	// BinDir holds ignition, kubelet and kubeadm. Empty: what BinDir returns.
	BinDir string

	// Image is what is on the disk besides the user data's files. Empty: KubeletImage.
	Image Image

	// KubeletPort is the port of the kubelet's API, HealthzPort the one of its health check: hosts share the machine's
	// network, so every host has its own. 0: a free one.
	KubeletPort, HealthzPort int

	// NodeIP is the address that the kubelet reports. Empty: the kubelet's own choice.
	NodeIP string

	// Log gets what Ignition, the kubelet and the other units print, one line at a time. Nil: nowhere but to
	// Dir/console.log.
	Log io.Writer
}

// Host is a simulated bare-metal host. Its methods may be called from any goroutine.
type Host struct {
	options Options

	mu     sync.Mutex
	events []Event
	boot   *boot
}

// New describes a host; nothing happens before PowerOn.
func New(options Options) *Host {
	return &Host{options: options}
}

// Name is the host's name.
func (h *Host) Name() string { return h.options.Name }

// Root is the folder that is the host's file system, complete once Ignition has written the files.
func (h *Host) Root() string { return filepath.Join(h.options.Dir, "root") }

// PowerOn puts a fresh image on the disk and boots it for the first time, with the user data as Ignition's
// configuration. It returns once the host is on its way; Ignition asks for what it can't get yet until it gets it. The
// host runs until ctx ends, PowerOff is called or something fails: see Done. A host that is on is an error.
func (h *Host) PowerOn(ctx context.Context, userData []byte) error { return nil }

// Reboot boots the host again with the disk it has: no Ignition, an empty /run. A host that is on is switched off first.
func (h *Host) Reboot(ctx context.Context) error { return nil }

// PowerOff ends all processes of the host at once and returns when they are gone. The disk stays as it is.
func (h *Host) PowerOff() {}

// Done is closed when the host is off: after PowerOff, or when Ignition or a unit failed.
func (h *Host) Done() <-chan struct{} { return nil }

// Err says why the host went off by itself; nil while it is on and after PowerOff.
func (h *Host) Err() error { return nil }

// Joined says whether the sentinel file /run/cluster-api/bootstrap-success.complete stands.
func (h *Host) Joined() bool {
	_, err := os.Stat(filepath.Join(h.Root(), sentinel))
	return err == nil
}
