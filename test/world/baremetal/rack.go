// Package baremetal runs bare-metal hosts in Linux namespaces. The firmware, the BMC and the kernel are simulated.
// Everything else is real: Ignition writes the disk from user data, systemd boots from it, and containerd, runc, the
// kubelet and kubeadm run on it, with control groups and a network of their own.
//
// A host ends with the process that created it, however that process ends: the kernel kills the host's first process,
// and with it all other processes, mounts and interfaces. Control groups are removed by a keeper process, which notices
// the end of this process.
//
// The package requires root. It is independent of Poolboot: a host boots with user data, as from any provisioner.
package baremetal

import (
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// Rack is a network with hosts, and this machine in it. It is safe for concurrent use.
type Rack struct {
	binDir           string
	rootfs           string
	all              []hierarchy
	number           int // of the rack's network
	keeper           *exec.Cmd
	stdin            io.WriteCloser // of the keeper
	networkInterface string         // of this machine in the rack's network

	mu    sync.Mutex // guards the fields below
	hosts []*Host
}

// keeperScript is a shell script that removes control groups and disks when this process exits.
//
//go:embed keeper.sh
var keeperScript string

// The networks of racks are in a range for benchmarks of network devices (RFC 2544), 198.18.0.0/15, which no network
// uses. Each rack has a /20 with this machine and hosts, which can have two addresses.
const (
	firstNetwork = 198<<24 | 18<<16
	networks     = 32
	networkSize  = 1 << 12
	networkBits  = "/20"
	thisMachine  = 1
	firstHost    = 16
	maxHosts     = networkSize/2 - firstHost
)

// NewRack creates an empty rack. On error it removes everything that it has created.
func NewRack(ctx context.Context) (_ *Rack, err error) {
	r := &Rack{}
	if r.binDir, err = process.BinDir(); err != nil {
		return nil, err
	}
	if err := r.checkRequirements(ctx); err != nil {
		return nil, err
	}
	if r.all, err = hierarchies(); err != nil {
		return nil, err
	}
	raiseLimits()
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("create a rack: %w", err), r.Close())
		}
	}()
	if err := r.startKeeper(); err != nil {
		return nil, err
	}
	return r, r.connect(ctx)
}

// Address returns the IP address of this machine in the rack's network. Hosts reach servers at this address.
func (r *Rack) Address() string { return r.address(thisMachine) }

// address returns an IP address in the rack's network.
func (r *Rack) address(number int) string {
	var address [4]byte
	binary.BigEndian.PutUint32(address[:], uint32(firstNetwork+r.number*networkSize+number))
	return netip.AddrFrom4(address).String()
}

// Close cuts the power of all hosts, and removes the network and the disks that have a size.
func (r *Rack) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, h := range r.hosts {
		errs = append(errs, h.PowerCut())
	}
	if r.networkInterface != "" { // the kernel removes it with the switch, but later
		errs = append(errs, r.ip(context.Background(), "link del "+r.networkInterface))
		r.networkInterface = ""
	}
	if r.stdin != nil {
		_ = r.stdin.Close()
		errs = append(errs, r.keeper.Wait())
		r.stdin = nil
	}
	return errors.Join(errs...)
}

// ControlGroupPrefix returns the start of the names of this rack's control groups.
func (r *Rack) ControlGroupPrefix() string { return fmt.Sprintf("poolboot-%d-", r.keeper.Process.Pid) }

// startKeeper starts the keeper in a new network namespace, which is the rack's switch.
func (r *Rack) startKeeper() error {
	var patterns []string
	for _, h := range r.all {
		patterns = append(patterns, h.path+"/poolboot-$$-*")
	}
	script := `set -- ` + strings.Join(patterns, " ") + "\n" + keeperScript
	r.keeper = exec.Command("/bin/sh", "-c", script)
	// In a session of its own, no Ctrl-C and no signal to the process group ends the keeper.
	r.keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWNET}
	var err error
	if r.stdin, err = r.keeper.StdinPipe(); err != nil {
		return err
	}
	if err := r.keeper.Start(); err != nil {
		r.stdin = nil
		return fmt.Errorf("start the keeper: %w", err)
	}
	return nil
}

// connect connects this machine with the switch, in the first network that no other rack uses.
func (r *Rack) connect(ctx context.Context) error {
	pid := strconv.Itoa(r.keeper.Process.Pid)
	for r.number = 0; ; r.number++ {
		if r.number == networks {
			return fmt.Errorf("all %d networks are in use: ip link shows the interfaces poolboot<number>", networks)
		}
		name := "poolboot" + strconv.Itoa(r.number)
		err := r.ip(ctx, "link add "+name+" type veth peer name uplink netns "+pid)
		if err == nil {
			r.networkInterface = name
			break
		}
		if !strings.Contains(err.Error(), "File exists") {
			return err
		}
	}
	if err := r.inSwitch(ctx, "link set lo up", "link add switch type bridge", "link set switch up", "link set uplink master switch up"); err != nil {
		return err
	}
	return r.ip(ctx, "address add "+r.Address()+networkBits+" dev "+r.networkInterface, "link set "+r.networkInterface+" up")
}

// ip runs commands of ip.
func (r *Rack) ip(ctx context.Context, commands ...string) error {
	return run(ctx, strings.Join(commands, "\n"), "ip", "-batch", "-")
}

// inSwitch runs commands of ip in the switch.
func (r *Rack) inSwitch(ctx context.Context, commands ...string) error {
	return run(ctx, strings.Join(commands, "\n"), "nsenter", "--net", "--target", strconv.Itoa(r.keeper.Process.Pid), "ip", "-batch", "-")
}

func run(ctx context.Context, input string, argv ...string) error {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	command.Stdin = strings.NewReader(input)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s%s", strings.Join(argv, " "), err, output, input)
	}
	return nil
}

// checkRequirements returns an error that says what to do if this machine cannot run hosts.
func (r *Rack) checkRequirements(ctx context.Context) error {
	r.rootfs = filepath.Join(r.binDir, "rootfs")
	if err := check(ctx, sourcetree.Path("hack", "namespaces.sh")); err != nil {
		return err
	}
	if err := r.checkProgram("ignition"); err != nil {
		return err
	}
	return check(ctx, sourcetree.Path("hack", "rootfs", "rootfs.sh"), "check", r.rootfs)
}

func (r *Rack) checkProgram(name string) error {
	if _, err := os.Stat(filepath.Join(r.binDir, name)); err != nil {
		return fmt.Errorf("%w. What to do: run make binaries", err)
	}
	return nil
}

// check runs a script and returns its message as error if it fails.
func check(ctx context.Context, argv ...string) error {
	output, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if message := strings.TrimSpace(string(output)); err != nil && message != "" {
		return errors.New(message)
	}
	return err
}
