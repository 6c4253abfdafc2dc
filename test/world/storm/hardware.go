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

// restart is the time after which a kubelet that failed to join retries, as systemd restarts it.
const restart = time.Second

// Hardware is a site's hardware in the namespaces of storms.
type Hardware struct {
	// Fallback is the optional hardware of all other namespaces.
	Fallback metal3.Hardware

	mu     sync.Mutex
	storms map[string]*hosts
}

// boot creates the kubelet of a host from its user data. Its error is one after which Ignition ends the boot.
type boot func(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) (*kubelet, error)

// storm boots the hosts of a namespace simultaneously when n of them are provisioned. They stop when ctx is done.
func (h *Hardware) storm(ctx context.Context, namespace string, n int, boot boot) *hosts {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.storms == nil {
		h.storms = map[string]*hosts{}
	}
	h.storms[namespace] = newHosts(ctx, namespace, n, boot)
	return h.storms[namespace]
}

func newHosts(ctx context.Context, namespace string, n int, boot boot) *hosts {
	ctx, giveUp := context.WithCancelCause(ctx)
	return &hosts{ctx: ctx, giveUp: giveUp, namespace: namespace, boot: boot, join: (*kubelet).join,
		provisioned: newMilestone("provisioned hosts", n), failed: map[string]error{}}
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

// hosts are the hosts of one storm. If one of them gives up, all stop.
type hosts struct {
	ctx         context.Context
	giveUp      context.CancelCauseFunc
	namespace   string
	boot        boot
	join        func(*kubelet, context.Context) error
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
		if err := h.run(host, userData); err != nil {
			h.giveUp(fmt.Errorf("host %s gives up: %w", host.Name, err))
		}
	})
	h.provisioned.reach(host.Name, true)
}

// run boots a host, and lets its kubelet join. As on a real host, the configuration is requested until it was received
// once, and a kubelet that fails to join tries again with what it has: the host can have joined although the answer was
// lost, and its token is revoked then.
func (h *hosts) run(host *bmov1alpha1.BareMetalHost, userData []byte) error {
	k, err := h.boot(h.ctx, host, userData)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(h.ctx, patience)
	defer cancel()
	err = wait.PollUntilContextCancel(ctx, restart, true, func(ctx context.Context) (bool, error) {
		err := h.join(k, ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.failed[host.Name] = err
		return err == nil, nil
	})
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		return fmt.Errorf("its kubelet has not joined within %s: %w", patience, h.failed[host.Name])
	}
	return nil
}

// whileRunning returns a context that also ends when a host gives up, with its error as the cause.
func (h *hosts) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.ctx, func() { cancel(context.Cause(h.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
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
