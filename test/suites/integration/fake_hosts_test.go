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

// fakeHosts are hosts that fetch their configuration with retries, as Ignition does, and then do nothing: their
// kubelets never register.
type fakeHosts struct {
	mu    sync.Mutex
	hosts map[client.ObjectKey]*fakeHost
}

// fakeHost is one of the fakeHosts.
type fakeHost struct {
	mu       sync.Mutex
	cancel   context.CancelFunc
	userData []byte
	codes    []int           // the config server's answers, in order
	config   ignition.Config // the merged configuration
	done     bool
}

func newFakeHosts() *fakeHosts {
	return &fakeHosts{hosts: map[client.ObjectKey]*fakeHost{}}
}

func (h *fakeHosts) get(key client.ObjectKey) *fakeHost {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.hosts[key] == nil {
		h.hosts[key] = &fakeHost{}
	}
	return h.hosts[key]
}

// PowerOn starts fetching with the user data, if it has changed.
func (h *fakeHosts) PowerOn(_ context.Context, bmh *bmov1alpha1.BareMetalHost, userData []byte) error {
	host := h.get(client.ObjectKeyFromObject(bmh))
	host.mu.Lock()
	defer host.mu.Unlock()
	if userData == nil || bytes.Equal(userData, host.userData) {
		return nil
	}
	if host.cancel != nil {
		host.cancel() // the host boots with new user data
	}
	ctx, cancel := context.WithCancel(context.Background())
	host.cancel, host.userData, host.codes, host.done = cancel, userData, nil, false
	go host.fetch(ctx, userData)
	return nil
}

// PowerOff stops fetching.
func (h *fakeHosts) PowerOff(_ context.Context, bmh *bmov1alpha1.BareMetalHost) error {
	host := h.get(client.ObjectKeyFromObject(bmh))
	host.mu.Lock()
	defer host.mu.Unlock()
	if host.cancel != nil {
		host.cancel()
	}
	host.userData = nil
	return nil
}

// statusCodes returns the status codes of all answers so far.
func (h *fakeHost) statusCodes() []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]int(nil), h.codes...)
}

// configuration returns the merged configuration, or an error while the host does not have it.
func (h *fakeHost) configuration() (ignition.Config, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.done {
		return ignition.Config{}, fmt.Errorf("the host has no configuration yet; answers so far: %v", h.codes)
	}
	return h.config, nil
}

// readFile returns the content of a file of the configuration.
func (h *fakeHost) readFile(path string) (string, error) {
	config, err := h.configuration()
	if err != nil {
		return "", err
	}
	return fetch.File(config, path)
}

// fetch fetches the configuration of a pointer until it is complete or the config server refuses permanently.
func (h *fakeHost) fetch(ctx context.Context, userData []byte) {
	pointer, err := ignition.ParsePointer(userData)
	if err != nil {
		return // configSource.type Inline has no pointer
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

// getURL sends one request with a pointer's token and CA.
var getURL = fetch.Get
