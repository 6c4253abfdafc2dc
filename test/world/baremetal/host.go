package baremetal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// HostOptions describe a host.
type HostOptions struct {
	// Name is the host's name unless /etc/hostname has another one, and the prefix of its lines in Log.
	Name string
	// Dir is the host's own directory with its disk. It is created if it is missing.
	Dir string
	// Log gets the console's output line by line, in addition to the file console.log in Dir. Optional.
	Log io.Writer
	// MetaDataID is the ID of the host in the metadata for cloud-init. Default: the ID of its hardware.
	MetaDataID string
	// Folders are folders of this machine that the host can read, by their path on the host. Optional.
	Folders map[string]string
}

// Host is a bare-metal host with the functions of its BMC. It is safe for concurrent use.
type Host struct {
	options HostOptions
	rack    *Rack
	number  int // in the rack

	mu     sync.Mutex // guards the fields below
	image  Image
	events []Event
	power  *power
	boots  int
	// hasSize reports whether the disk has a size of its own.
	hasSize bool
	// moved reports whether the host has its second address.
	moved bool

	cable     sync.Mutex // guards unplugged, and the port for a boot
	unplugged bool
}

// NewHost adds a host to the rack. It is off, and its disk is empty.
func (r *Rack) NewHost(options HostOptions) (*Host, error) {
	if options.Name == "" || options.Dir == "" {
		return nil, errors.New("options Name and Dir must be set")
	}
	var err error
	if options.Dir, err = filepath.Abs(options.Dir); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.hosts) == maxHosts {
		return nil, fmt.Errorf("the rack is full: it has %d hosts", len(r.hosts))
	}
	h := &Host{options: options, rack: r, number: len(r.hosts)}
	r.hosts = append(r.hosts, h)
	return h, os.MkdirAll(options.Dir, 0o755)
}

// Name returns the host's name.
func (h *Host) Name() string { return h.options.Name }

// PowerOn boots the host from its disk and returns when the boot has started. The host runs until ctx is done, the
// power is cut, it powers itself off or Ignition fails. A reboot that the host starts itself does not end it.
func (h *Host) PowerOn(ctx context.Context) error {
	_, err := h.powerOn(ctx, "")
	return err
}

// PowerOnUntil boots the host, cuts its power when the boot reaches a step, and waits until it is off. The boot gets no
// further than the step.
func (h *Host) PowerOnUntil(ctx context.Context, step Step) error {
	p, err := h.powerOn(ctx, step)
	if err != nil {
		return err
	}
	<-p.off
	return errors.Join(p.err, p.cleanupErr)
}

func (h *Host) powerOn(ctx context.Context, cutAt Step) (*power, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOn() {
		return nil, h.errorf("it is on already; call PowerOff or PowerCut first")
	}
	if _, err := os.Stat(filepath.Join(h.disk(), "upper")); err != nil {
		return nil, h.errorf("nothing to boot from: the disk is empty; call Deploy first")
	}
	console, err := openConsole(h.options)
	if err != nil {
		return nil, h.errorf("%w", err)
	}
	p := newPower(ctx, h, console, cutAt)
	h.power = p
	go p.run()
	return p, nil
}

// PowerOff shuts the host down gracefully, as with its power button, and waits until it is off. A host that does not
// react, for example because it runs Ignition, stays on until ctx is done. Then PowerOff returns the error of ctx.
func (h *Host) PowerOff(ctx context.Context) error {
	p := h.current()
	if p == nil {
		return nil
	}
	p.press()
	select {
	case <-p.off:
		return nil
	case <-ctx.Done():
		return h.errorf("power off: %w", ctx.Err())
	}
}

// PowerCut ends all processes of the host at once, as a power loss does, and waits until they have exited. The disk
// keeps what was written.
func (h *Host) PowerCut() error {
	p := h.current()
	if p == nil {
		return nil
	}
	p.cancel()
	<-p.off
	return p.cleanupErr
}

// Reset cuts the power and boots the host again.
func (h *Host) Reset(ctx context.Context) error {
	return errors.Join(h.PowerCut(), h.PowerOn(ctx))
}

// Off returns a channel that is closed when the host is off. Before the first PowerOn it is nil.
func (h *Host) Off() <-chan struct{} {
	if p := h.current(); p != nil {
		return p.off
	}
	return nil
}

// Err returns the error of a boot that failed before systemd started, or nil while the host is on.
func (h *Host) Err() error {
	p := h.current()
	if p == nil {
		return nil
	}
	select {
	case <-p.off:
		return p.err
	default:
		return nil
	}
}

// Disk opens the host's root file system. While the host is on, it has everything that is mounted on the host, such as
// /run. While it is off, and before systemd starts, it has only what was written to the disk since it was deployed.
func (h *Host) Disk() (*os.Root, error) {
	if pid := h.PID(); pid != 0 {
		return os.OpenRoot(fmt.Sprintf("/proc/%d/root", pid))
	}
	return os.OpenRoot(filepath.Join(h.disk(), "upper"))
}

// ReadFile returns a file of Disk.
func (h *Host) ReadFile(path string) ([]byte, error) {
	disk, err := h.Disk()
	if err != nil {
		return nil, err
	}
	defer disk.Close()
	return disk.ReadFile(strings.TrimPrefix(path, "/"))
}

// WriteFile overwrites a file of Disk.
func (h *Host) WriteFile(path string, content []byte, mode os.FileMode) error {
	disk, err := h.Disk()
	if err != nil {
		return err
	}
	defer disk.Close()
	return disk.WriteFile(strings.TrimPrefix(path, "/"), content, mode)
}

// Remove removes a file of Disk.
func (h *Host) Remove(path string) error {
	disk, err := h.Disk()
	if err != nil {
		return err
	}
	defer disk.Close()
	return disk.Remove(strings.TrimPrefix(path, "/"))
}

// DiskUsage returns the size in bytes of what the host's disk has in addition to the shared root file system.
func (h *Host) DiskUsage() (bytes int64, err error) {
	err = filepath.WalkDir(h.disk(), func(_ string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // the host removes files
			return nil
		}
		if err != nil {
			return err
		}
		if info, err := entry.Info(); err == nil {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return bytes, err
}

// sentinel is the file with which a bootstrap provider reports success (Cluster API contract).
const sentinel = "/run/cluster-api/bootstrap-success.complete"

// BootID returns the ID of the boot that the host is in. It is empty while systemd has not started.
func (h *Host) BootID() string {
	id, _ := h.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// Joined reports whether the host is on and the sentinel file of the Cluster API contract exists.
func (h *Host) Joined() bool {
	_, err := h.ReadFile(sentinel)
	return err == nil
}

// Run runs a program on the host, as root, and returns its standard output.
func (h *Host) Run(ctx context.Context, argv ...string) (string, error) {
	pid := h.PID()
	if pid == 0 {
		return "", h.errorf("run %v: systemd has not started", argv)
	}
	// nsenter without --no-fork stops itself when its child is stopped, and systemd stops all processes for a moment
	// when the host shuts down. A shell only waits. Only its children are in the PID namespace, so it must neither exec
	// the program nor run a builtin such as kill.
	command := exec.CommandContext(ctx, "nsenter", append([]string{"--all", "--no-fork", "--target", strconv.Itoa(pid), "--",
		"/bin/sh", "-c", `/usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; exit $?`, "sh"}, argv...)...)
	// The program runs in the host's PID namespace, and ends with the host or with this process.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	output, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return string(output), h.errorf("run %v: %w", argv, err)
	}
	return string(output), nil
}

// Journal returns the host's journal of all boots, or of a unit if arguments such as --unit=kubelet.service select it.
func (h *Host) Journal(ctx context.Context, arguments ...string) (string, error) {
	return h.Run(ctx, append([]string{"journalctl", "--no-pager", "--output=short-monotonic"}, arguments...)...)
}

// Console returns what the host printed on its console in all boots, with Ignition's log.
func (h *Host) Console() (string, error) {
	text, err := os.ReadFile(consolePath(h.options))
	return string(text), err
}

func (h *Host) current() *power {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.power
}

// isOn reports whether the host is on. The caller holds the lock.
func (h *Host) isOn() bool {
	if h.power == nil {
		return false
	}
	select {
	case <-h.power.off:
		return false
	default:
		return true
	}
}

// PID returns the process ID of the host's systemd on this machine, or 0 before it starts and while the host is off.
// nsenter --all --target PID runs a shell on the host.
func (h *Host) PID() int {
	if p := h.current(); p != nil {
		return p.pid()
	}
	return 0
}

func (h *Host) errorf(format string, arguments ...any) error {
	return fmt.Errorf("host %s: %w", h.options.Name, fmt.Errorf(format, arguments...))
}
