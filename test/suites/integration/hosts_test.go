package integration

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
)

// askingHosts are servers that ask for their configuration as Ignition does, again and again until they have it, and
// then do nothing: their kubelets never come.
type askingHosts struct {
	mu    sync.Mutex
	hosts map[client.ObjectKey]*askingHost
}

// askingHost is one of them.
type askingHost struct {
	mu       sync.Mutex
	cancel   context.CancelFunc
	userData []byte
	codes    []int           // what the config server answered, in order
	config   ignition.Config // the whole configuration, merged
	done     bool
}

func newAskingHosts() *askingHosts {
	return &askingHosts{hosts: map[client.ObjectKey]*askingHost{}}
}

func (h *askingHosts) of(key client.ObjectKey) *askingHost {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hosts[key] == nil {
		h.hosts[key] = &askingHost{}
	}
	return h.hosts[key]
}

// PowerOn lets the host behind a BareMetalHost ask.
func (h *askingHosts) PowerOn(_ context.Context, bmh *bmov1alpha1.BareMetalHost, userData []byte) error {
	host := h.of(client.ObjectKeyFromObject(bmh))
	host.mu.Lock()
	defer host.mu.Unlock()
	if userData == nil || bytes.Equal(userData, host.userData) {
		return nil
	}
	if host.cancel != nil {
		host.cancel() // it boots from another disk now
	}
	ctx, cancel := context.WithCancel(context.Background())
	host.cancel, host.userData, host.codes, host.done = cancel, userData, nil, false
	go host.ask(ctx, userData)
	return nil
}

// PowerOff silences the host behind a BareMetalHost.
func (h *askingHosts) PowerOff(_ context.Context, bmh *bmov1alpha1.BareMetalHost) error {
	host := h.of(client.ObjectKeyFromObject(bmh))
	host.mu.Lock()
	defer host.mu.Unlock()
	if host.cancel != nil {
		host.cancel()
	}
	host.userData = nil
	return nil
}

// answered returns every status code so far.
func (h *askingHost) answered() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]int(nil), h.codes...)
}

// got returns the whole configuration once the host has it.
func (h *askingHost) got() (ignition.Config, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.done {
		return ignition.Config{}, fmt.Errorf("the host has no configuration yet; answers so far: %v", h.codes)
	}
	return h.config, nil
}

// file returns a file of the configuration as it would be on disk.
func (h *askingHost) file(path string) (string, error) {
	config, err := h.got()
	if err != nil {
		return "", err
	}
	return fetch.File(config, path)
}

// ask follows a pointer until the host has everything or is told that it never will.
func (h *askingHost) ask(ctx context.Context, userData []byte) {
	pointer, err := ignition.ParsePointer(userData)
	if err != nil {
		return // configSource.type: Inline: nothing to ask for.
	}
	config, err := fetch.Config(ctx, pointer, func(code int) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if ctx.Err() == nil {
			h.codes = append(h.codes, code)
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && ctx.Err() == nil {
		h.config, h.done = config, true
	}
}

// get asks for a URL with a pointer's token and its CA.
var get = fetch.Get
