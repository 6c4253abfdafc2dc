package machine

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Address is the address of this machine at which machines in QEMU reach servers. QEMU's user networking connects to
// every address that this machine can connect to, except loopback. The address is in a network for benchmarks of
// network devices (RFC 2544).
const Address = "198.19.255.1"

// Rack has a machine for each BareMetalHost of a Metal3 simulator.
type Rack struct {
	ctx     context.Context
	dir     string
	options Options

	mu       sync.Mutex
	machines map[string]*Machine
}

// NewRack adds Address to this machine, for which it requires root. Machines have the options unless Add is called for
// them.
func NewRack(ctx context.Context, dir string, options Options) (*Rack, error) {
	if output, err := exec.CommandContext(ctx, "ip", "address", "replace", Address+"/32", "dev", "lo").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("add the address %s to this machine: %w: %s What to do: run the same command as root", Address, err, output)
	}
	return &Rack{ctx: ctx, dir: dir, options: options, machines: map[string]*Machine{}}, nil
}

// Close cuts the power of all machines, and removes Address.
func (r *Rack) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, m := range r.machines {
		errs = append(errs, m.PowerCut())
	}
	if output, err := exec.Command("ip", "address", "delete", Address+"/32", "dev", "lo").CombinedOutput(); err != nil {
		errs = append(errs, fmt.Errorf("remove the address %s: %w: %s", Address, err, output))
	}
	return errors.Join(errs...)
}

// Machine returns the machine of a BareMetalHost, or nil if it was neither added nor powered on.
func (r *Rack) Machine(name string) *Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machines[name]
}

// Options returns the options of machines for which Add is not called.
func (r *Rack) Options() Options { return r.options }

// Add adds the machine of a BareMetalHost, which is off, with options of its own.
func (r *Rack) Add(name string, options Options) (*Machine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.add(name, options)
}

// add adds a machine. The caller holds the lock.
func (r *Rack) add(name string, options Options) (*Machine, error) {
	m, err := New(name, filepath.Join(r.dir, name), options)
	if err == nil {
		r.machines[name] = m
	}
	return m, err
}

// PowerOn boots the machine of a BareMetalHost: from a new image with user data, or from its current disk without.
func (r *Rack) PowerOn(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.machines[host.Name]
	if m == nil && userData == nil {
		return nil // never deployed: there is no disk to boot from
	}
	if m == nil {
		var err error
		if m, err = r.add(host.Name, r.options); err != nil {
			return err
		}
	}
	if userData != nil {
		if err := errors.Join(m.PowerCut(), m.Deploy(ctx, userData)); err != nil {
			return err
		}
	}
	if m.IsOn() {
		return nil
	}
	return m.PowerOn(r.ctx)
}

// PowerOff cuts the power of the machine of a BareMetalHost.
func (r *Rack) PowerOff(_ context.Context, host *bmov1alpha1.BareMetalHost) error {
	if m := r.Machine(host.Name); m != nil {
		return m.PowerCut()
	}
	return nil
}
