package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/faults"
)

// URLs of the images that a Metal3Machine can have.
const (
	KubeletImageURL = "http://images.example.com/kubelet.qcow2"
	KubeadmImageURL = "http://images.example.com/kubeadm.qcow2"
	// ControlPlaneImageURL is the image with cloud-init.
	ControlPlaneImageURL = "http://images.example.com/control-plane.qcow2"
)

var imagesByURL = map[string]baremetal.Image{KubeadmImageURL: baremetal.KubeadmImage, ControlPlaneImageURL: baremetal.ControlPlaneImage}

// Hardware has a host for each BareMetalHost. A host is created when it is first powered on.
type Hardware struct {
	ctx  context.Context
	dir  string
	log  io.Writer
	rack *baremetal.Rack

	mu    sync.Mutex
	hosts map[string]*baremetal.Host
	// diskSizes are the sizes of disks in bytes, by host. The others are as large as this machine's disk.
	diskSizes map[string]int64
	// decommissioned are the names of hosts that stay off.
	decommissioned map[string]bool
	// balancer is the load balancer in front of the API servers of hosts. It is nil if the workload cluster has none.
	balancer *faults.Service
}

func newHardware(ctx context.Context, dir string, options Options) (*Hardware, error) {
	var rack *baremetal.Rack
	if options.Installed != nil {
		rack = options.Installed.Rack
	} else {
		var err error
		if rack, err = baremetal.NewRack(ctx); err != nil {
			return nil, err
		}
	}
	return &Hardware{ctx: ctx, dir: dir, log: options.Consoles, rack: rack, hosts: map[string]*baremetal.Host{}, diskSizes: map[string]int64{}, decommissioned: map[string]bool{}}, nil
}

// Host returns the host of a BareMetalHost, or nil if it was never powered on.
func (h *Hardware) Host(name string) *baremetal.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hosts[name]
}

// Boot boots a host without BareMetalHost from a new image with user data.
func (h *Hardware) Boot(name string, userData []byte) (*baremetal.Host, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boot(baremetal.HostOptions{Name: name}, baremetal.KubeletImage, userData)
}

// SetDiskSize sets the size in bytes of the disk that the host of a BareMetalHost has from its next deployment on.
func (h *Hardware) SetDiskSize(name string, size int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.diskSizes[name] = size
}

// PowerOn boots the host of a BareMetalHost: from a new image with user data, or from its current disk without.
func (h *Hardware) PowerOn(_ context.Context, bmh *bmov1alpha1.BareMetalHost, userData []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	machine := h.hosts[bmh.Name]
	switch {
	case h.decommissioned[bmh.Name]:
		return nil
	case machine == nil && userData == nil:
		return nil // never deployed: there is no disk to boot from
	case userData == nil:
		return machine.Reset(h.ctx)
	}
	image := baremetal.KubeletImage
	if bmh.Spec.Image != nil {
		image = cmp.Or(imagesByURL[bmh.Spec.Image.URL], image)
	}
	_, err := h.boot(baremetal.HostOptions{Name: bmh.Name, MetaDataID: string(bmh.UID)}, image, userData)
	return err
}

// boot deploys and boots a host. The caller holds the lock.
func (h *Hardware) boot(options baremetal.HostOptions, image baremetal.Image, userData []byte) (*baremetal.Host, error) {
	name := options.Name
	machine := h.hosts[name]
	if machine == nil {
		var err error
		options.Dir, options.Log = filepath.Join(h.dir, name), h.log
		if machine, err = h.rack.NewHost(options); err != nil {
			return nil, fmt.Errorf("host %s: %w", name, err)
		}
		h.hosts[name] = machine
		if h.balancer != nil {
			h.balancer.Add(machine.Address()+":"+apiServerPort, "https://"+machine.Address()+":"+apiServerPort+"/readyz")
		}
	}
	if err := machine.PowerCut(); err != nil {
		return nil, err
	}
	if size, ok := h.diskSizes[name]; ok {
		if err := machine.ReplaceDisk(h.ctx, size); err != nil {
			return nil, err
		}
	}
	if err := machine.Deploy(image, userData); err != nil {
		return nil, err
	}
	return machine, machine.PowerOn(h.ctx)
}

// PowerOff cuts the power of the host of a BareMetalHost.
func (h *Hardware) PowerOff(_ context.Context, bmh *bmov1alpha1.BareMetalHost) error {
	if machine := h.Host(bmh.Name); machine != nil {
		return machine.PowerCut()
	}
	return nil
}

// Decommission powers off a host permanently. Otherwise unused kubelets exhaust shared resources of the machine,
// inotify instances first.
func (h *Hardware) Decommission(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decommissioned[name] = true
	if machine := h.hosts[name]; machine != nil {
		return machine.PowerCut()
	}
	return nil
}

func (h *Hardware) powerOffAll() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for _, machine := range h.hosts {
		errs = append(errs, machine.PowerCut())
	}
	return errors.Join(errs...)
}
