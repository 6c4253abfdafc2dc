package site

import (
	"context"
	"io"
	"path/filepath"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
)

// URLs of the images that a Metal3Machine can ask for, and what the hosts then find on their disks.
const (
	KubeletImageURL = "http://images.example.com/kubelet.qcow2"
	KubeadmImageURL = "http://images.example.com/kubeadm.qcow2"
)

// Hardware is the site's machines: a simulated host behind each BareMetalHost, made when it is first switched on.
type Hardware struct {
	ctx    context.Context
	dir    string
	binDir string
	log    io.Writer

	mu    sync.Mutex
	hosts map[string]*host.Host
	// scrapped are the names of those that are gone for good.
	scrapped map[string]bool
}

// Host is the simulated host behind a BareMetalHost; nil while it was never on.
func (h *Hardware) Host(name string) *host.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hosts[name]
}

// PowerOn boots the host behind a BareMetalHost: a fresh image with user data, the disk it had without.
func (h *Hardware) PowerOn(_ context.Context, bmh *bmov1alpha1.BareMetalHost, userData []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	machine := h.hosts[bmh.Name]
	switch {
	case h.scrapped[bmh.Name]:
		return nil
	case machine == nil && userData == nil:
		return nil // Nothing was ever deployed: there is no disk to boot from.
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

// PowerOff pulls the plug of the host behind a BareMetalHost.
func (h *Hardware) PowerOff(_ context.Context, bmh *bmov1alpha1.BareMetalHost) error {
	if machine := h.Host(bmh.Name); machine != nil {
		machine.PowerOff()
	}
	return nil
}

// Scrap takes a host away for good: it is off, and stays off whatever its BareMetalHost asks for. A kubelet that nobody
// looks at any more still takes its share of what a machine has for all, of which inotify instances end first.
func (h *Hardware) Scrap(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.scrapped[name] = true
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
