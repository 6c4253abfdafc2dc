package site

import (
	"context"
	"io"
	"path/filepath"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
)

// URLs of the images that a Metal3Machine can have.
const (
	KubeletImageURL = "http://images.example.com/kubelet.qcow2"
	KubeadmImageURL = "http://images.example.com/kubeadm.qcow2"
)

// Hardware has a simulated host for each BareMetalHost. A host is created when it is first powered on.
type Hardware struct {
	ctx    context.Context
	dir    string
	binDir string
	log    io.Writer

	mu    sync.Mutex
	hosts map[string]*host.Host
	// decommissioned are the names of hosts that stay off.
	decommissioned map[string]bool
}

// Host returns the simulated host of a BareMetalHost, or nil if it was never powered on.
func (h *Hardware) Host(name string) *host.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hosts[name]
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
		return machine.Reboot(h.ctx)
	case machine != nil:
		machine.PowerOff()
	}
	image := host.KubeletImage
	if bmh.Spec.Image != nil && bmh.Spec.Image.URL == KubeadmImageURL {
		image = host.KubeadmImage
	}
	machine = host.New(host.Options{Name: bmh.Name, Dir: filepath.Join(h.dir, bmh.Name), BinDir: h.binDir, Image: image, Log: h.log})
	h.hosts[bmh.Name] = machine
	return machine.PowerOn(h.ctx, userData)
}

// PowerOff powers off the host of a BareMetalHost.
func (h *Hardware) PowerOff(_ context.Context, bmh *bmov1alpha1.BareMetalHost) error {
	if machine := h.Host(bmh.Name); machine != nil {
		machine.PowerOff()
	}
	return nil
}

// Decommission powers off a host permanently. Otherwise unused kubelets exhaust shared resources of the machine,
// inotify instances first.
func (h *Hardware) Decommission(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.decommissioned[name] = true
	if machine := h.hosts[name]; machine != nil {
		machine.PowerOff()
	}
}

func (h *Hardware) powerOffAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, machine := range h.hosts {
		machine.PowerOff()
	}
}
