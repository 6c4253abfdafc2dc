package storm

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
)

// restart is the time after which a host that failed to join retries, as systemd restarts a kubelet.
const restart = time.Second

// Hardware is a site's hardware in the namespaces of storms.
type Hardware struct {
	// Fallback is the optional hardware of all other namespaces.
	Fallback metal3.Hardware

	mu     sync.Mutex
	storms map[string]*hosts
}

// boot creates the kubelet of a host from its user data.
type boot func(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) (*kubelet, error)

// storm boots the hosts of a namespace simultaneously when n of them are provisioned. They stop when ctx is done.
func (h *Hardware) storm(ctx context.Context, namespace string, n int, boot boot) *hosts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.storms == nil {
		h.storms = map[string]*hosts{}
	}
	h.storms[namespace] = &hosts{ctx: ctx, namespace: namespace, boot: boot, provisioned: newMilestone("provisioned hosts", n), failed: map[string]error{}}
	return h.storms[namespace]
}

func (h *Hardware) of(host *bmov1alpha1.BareMetalHost) *hosts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.storms[host.Namespace]
}

// PowerOn makes a host of a storm wait for the others.
func (h *Hardware) PowerOn(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error {
	if hosts := h.of(host); hosts != nil {
		hosts.provision(host.DeepCopy(), userData)
		return nil
	}
	if h.Fallback == nil {
		return nil
	}
	return h.Fallback.PowerOn(ctx, host, userData)
}

// PowerOff ignores hosts of a storm, which stop at the end of the storm.
func (h *Hardware) PowerOff(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	if h.of(host) != nil || h.Fallback == nil {
		return nil
	}
	return h.Fallback.PowerOff(ctx, host)
}

// hosts are the hosts of one storm.
type hosts struct {
	ctx         context.Context
	namespace   string
	boot        boot
	provisioned *milestone
	running     sync.WaitGroup

	mu     sync.Mutex
	failed map[string]error // why a host's last try to join failed
}

// own reports whether a Node belongs to one of the hosts.
func (h *hosts) own(node string) bool { return strings.HasPrefix(node, h.namespace+"-host-") }

// provision powers on a host when all are provisioned. Without user data, after a power cycle, it does nothing.
func (h *hosts) provision(host *bmov1alpha1.BareMetalHost, userData []byte) {
	if userData == nil {
		return
	}
	h.running.Go(func() {
		if _, err := h.provisioned.wait(h.ctx); err != nil {
			return
		}
		_ = wait.PollUntilContextCancel(h.ctx, restart, true, func(ctx context.Context) (bool, error) {
			err := h.join(ctx, host, userData)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.failed[host.Name] = err
			return err == nil, nil
		})
	})
	h.provisioned.reach(host.Name, true)
}

func (h *hosts) join(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error {
	kubelet, err := h.boot(ctx, host, userData)
	if err != nil {
		return err
	}
	return kubelet.join(ctx)
}

// joinErrors returns the join errors of at most three hosts.
func (h *hosts) joinErrors() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []error
	for name, err := range h.failed {
		if err != nil && len(found) < 3 {
			found = append(found, fmt.Errorf("host %s: %w", name, err))
		}
	}
	return errors.Join(found...)
}

// wait waits until all hosts have stopped.
func (h *hosts) wait() { h.running.Wait() }
