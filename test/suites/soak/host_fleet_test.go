package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const (
	// concurrentBoots is the number of hosts that boot simultaneously.
	concurrentBoots = 32
	// bootTimeout is the time in which a host must get its configuration. Otherwise its boot counts as lost.
	bootTimeout = 5 * time.Minute
	// overlayDeletionInterval is the interval of deleting a Machine's overlay. The Machine's next boot is then prepared
	// again.
	overlayDeletionInterval = 2 * time.Second
)

// hostFleet is a set of Machines whose hosts boot repeatedly, up to the start of the kubelet. Therefore a host can
// request the configuration of the same Machine thousands of times.
type hostFleet struct {
	machines []*machine

	mu     sync.Mutex
	counts counts
	next   int
}

// machine is the pointer in a host's user data, and the expected configuration.
type machine struct {
	pointer ignition.Pointer
	config  *bootstrapv1.PoolbootConfig
	role    string
}

// counts are the results of boots.
type counts struct {
	boots, refusals int
	lost, wrong     []error
}

func (c counts) String() string {
	return fmt.Sprintf("%d boots, %d answers to try again, %d lost, %d wrong", c.boots, c.refusals, len(c.lost), len(c.wrong))
}

// newHostFleet creates Machines of two pools. Their hosts never join.
func newHostFleet(ctx context.Context, each int) *hostFleet {
	GinkgoHelper()
	t := tenant.New(ctx, lab, 2*each)
	h := &hostFleet{}
	for role, labels := range map[string]map[string]string{"infra": {"node-role.kubernetes.io/infra": ""}, "worker": nil} {
		t.Deploy(ctx, tenant.Deployment{Name: role, Replicas: int32(each), Labels: labels})
	}
	for _, role := range []string{"infra", "worker"} {
		var configs []bootstrapv1.PoolbootConfig
		Eventually(ctx, func() bool {
			configs = t.Configs(ctx, role)
			chosen := 0
			for i := range configs {
				if configs[i].Status.Boot.HostChosenTime != nil {
					chosen++
				}
			}
			return chosen == each
		}).Should(BeTrue(), "hosts are chosen")
		for i := range configs {
			h.machines = append(h.machines, &machine{pointer: t.Pointer(ctx, &configs[i]), config: &configs[i], role: role})
		}
	}
	return h
}

// boot boots the next host and counts the result.
func (h *hostFleet) boot(ctx context.Context) {
	h.mu.Lock()
	m := h.machines[h.next%len(h.machines)]
	h.next++
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	config, err := fetch.Config(ctx, m.pointer, func(code int) {
		if code != 200 {
			h.updateCounts(func(c *counts) { c.refusals++ })
		}
	})
	if err != nil {
		h.updateCounts(func(c *counts) { c.lost = append(c.lost, fmt.Errorf("%s: %w", m.config.Name, err)) })
		return
	}
	err = m.check(config)
	h.updateCounts(func(c *counts) {
		c.boots++
		if err != nil {
			c.wrong = append(c.wrong, fmt.Errorf("%s: %w", m.config.Name, err))
		}
	})
}

func (h *hostFleet) updateCounts(update func(*counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	update(&h.counts)
}

func (h *hostFleet) getCounts() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

var errUnexpectedContent = errors.New("unexpected content")

// check checks that a configuration is for the Machine and its pool, and complete.
func (m *machine) check(config ignition.Config) error {
	var wrong []error
	for path, want := range map[string]string{"/etc/workertest": "worker", "/etc/infratest": "infra"} {
		got, err := fetch.File(config, path)
		if absent := path == "/etc/infratest" && m.role != "infra"; absent != (err != nil) || !absent && got != want {
			wrong = append(wrong, fmt.Errorf("%s is %q: %w", path, got, errors.Join(errUnexpectedContent, err)))
		}
	}
	env, err := fetch.File(config, ignition.KubeletEnvPath)
	if err != nil || !strings.Contains(env, "--hostname-override="+m.config.Name+" ") || !strings.Contains(env, "poolboot.io/pool="+m.role) {
		wrong = append(wrong, fmt.Errorf("%s is %q: %w", ignition.KubeletEnvPath, env, errors.Join(errUnexpectedContent, err)))
	}
	if _, err := fetch.File(config, ignition.BootstrapKubeconfigPath); err != nil {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// bootFor boots hosts for a duration, at a rate of perSecond if it is not 0, waits for the last host's configuration,
// and returns the elapsed time.
func (h *hostFleet) bootFor(ctx context.Context, d time.Duration, perSecond float32) (took time.Duration) {
	start := time.Now()
	limit := flowcontrol.NewFakeAlwaysRateLimiter()
	if perSecond > 0 {
		limit = flowcontrol.NewTokenBucketRateLimiter(perSecond, 1)
	}
	var hosts sync.WaitGroup
	for range concurrentBoots {
		hosts.Go(func() {
			for time.Since(start) < d {
				limit.Accept()
				h.boot(ctx)
			}
		})
	}
	hosts.Wait()
	return time.Since(start)
}

// deleteOverlays deletes the overlay of a random Machine at intervals until ctx is done.
func (h *hostFleet) deleteOverlays(ctx context.Context) {
	for sleep(ctx, overlayDeletionInterval) {
		m := h.machines[rand.IntN(len(h.machines))]
		_ = lab.ManagementClient.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "poolboot-system", Name: record.OverlayName(m.config.UID)}}, client.GracePeriodSeconds(0))
	}
}

// sleep waits for a duration. It returns false if ctx is done.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
