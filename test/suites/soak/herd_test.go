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
	// atOnce is how many hosts of the herd boot at a time.
	atOnce = 32
	// patience is how long a host may take to have its configuration before it counts as lost.
	patience = 5 * time.Minute
	// anewEvery is how often one machine's overlay is taken away, so that its next boot is prepared anew.
	anewEvery = 2 * time.Second
)

// herd is machines whose hosts boot over and over again, up to where a kubelet would start: the same machine can so be
// asked for thousands of times.
type herd struct {
	machines []*machine

	mu     sync.Mutex
	counts counts
	next   int
}

// machine is what a host has in its user data, and what must come of it.
type machine struct {
	pointer ignition.Pointer
	config  *bootstrapv1.PoolbootConfig
	role    string
}

// counts are what became of boots.
type counts struct {
	boots, refusals int
	lost, wrong     []error
}

func (c counts) String() string {
	return fmt.Sprintf("%d boots, %d answers to try again, %d lost, %d wrong", c.boots, c.refusals, len(c.lost), len(c.wrong))
}

// newHerd makes machines of two pools whose hosts never join.
func newHerd(ctx context.Context, each int) *herd {
	GinkgoHelper()
	t := tenant.New(ctx, lab, 2*each)
	h := &herd{}
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

// boot boots the herd's next host and counts what came of it.
func (h *herd) boot(ctx context.Context) {
	h.mu.Lock()
	m := h.machines[h.next%len(h.machines)]
	h.next++
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config, err := fetch.Config(ctx, m.pointer, func(code int) {
		if code != 200 {
			h.count(func(c *counts) { c.refusals++ })
		}
	})
	if err != nil {
		h.count(func(c *counts) { c.lost = append(c.lost, fmt.Errorf("%s: %w", m.config.Name, err)) })
		return
	}
	err = m.check(config)
	h.count(func(c *counts) {
		c.boots++
		if err != nil {
			c.wrong = append(c.wrong, fmt.Errorf("%s: %w", m.config.Name, err))
		}
	})
}

func (h *herd) count(do func(*counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do(&h.counts)
}

func (h *herd) result() counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

var errNotItsOwn = errors.New("not what the machine must have")

// check makes sure that a configuration is the machine's, of its pool, and whole.
func (m *machine) check(config ignition.Config) error {
	var wrong []error
	for path, want := range map[string]string{"/etc/workertest": "worker", "/etc/infratest": "infra"} {
		got, err := fetch.File(config, path)
		if absent := path == "/etc/infratest" && m.role != "infra"; absent != (err != nil) || !absent && got != want {
			wrong = append(wrong, fmt.Errorf("%s is %q: %w", path, got, errors.Join(errNotItsOwn, err)))
		}
	}
	env, err := fetch.File(config, ignition.KubeletEnvPath)
	if err != nil || !strings.Contains(env, "--hostname-override="+m.config.Name+" ") || !strings.Contains(env, "node.cluster.x-k8s.io/pool="+m.role) {
		wrong = append(wrong, fmt.Errorf("%s is %q: %w", ignition.KubeletEnvPath, env, errors.Join(errNotItsOwn, err)))
	}
	if _, err := fetch.File(config, ignition.BootstrapKubeconfigPath); err != nil {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// bootFor has hosts boot for a time, perSecond of them if that is not 0, and returns when the last of them has its
// configuration.
func (h *herd) bootFor(ctx context.Context, d time.Duration, perSecond float32) (took time.Duration) {
	began := time.Now()
	limit := flowcontrol.NewFakeAlwaysRateLimiter()
	if perSecond > 0 {
		limit = flowcontrol.NewTokenBucketRateLimiter(perSecond, 1)
	}
	var hosts sync.WaitGroup
	for range atOnce {
		hosts.Go(func() {
			for time.Since(began) < d {
				limit.Accept()
				h.boot(ctx)
			}
		})
	}
	hosts.Wait()
	return time.Since(began)
}

// renew takes overlays away until ctx ends, one machine's at a time.
func (h *herd) renew(ctx context.Context) {
	for every(ctx, anewEvery) {
		m := h.machines[rand.IntN(len(h.machines))]
		_ = lab.ManagementClient.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Namespace: "poolboot-system", Name: record.OverlayName(m.config.UID)}}, client.GracePeriodSeconds(0))
	}
}

// every waits for some time, and tells whether ctx has not ended.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
