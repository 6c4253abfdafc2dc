package storm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// fleetMaxUnavailable is how many hosts of a fleet can be updated at a time.
const fleetMaxUnavailable = "10%"

// Fleet are the hosts of a storm that have joined, with simulated agents.
type Fleet struct {
	*tenant.Tenant
	// Judge watches the Nodes since before they existed.
	Judge *RolloutJudge
	// MaxUnavailable is how many hosts can be updated at a time.
	MaxUnavailable int
	// First is the name of the Machine that has booted. The others are clones of it, for example Clone.
	First, Clone string

	site    *site.Site
	size    int
	running sync.WaitGroup
	end     context.CancelFunc

	mu      sync.Mutex
	configs map[string]*bootstrapv1.PoolbootConfig // as the watch saw them last
}

// NewFleet boots a host into a custom pool of a new namespace, clones it until there are n, and waits until their
// agents have reported. hardware must be the site's hardware, and the site must have agents.
func NewFleet(ctx context.Context, s *site.Site, hardware *Hardware, n int, unkindness Unkindness) (_ *Fleet, err error) {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fleet{site: s, size: n, end: end, configs: map[string]*bootstrapv1.PoolbootConfig{}}
	defer func() {
		if err != nil {
			f.Stop()
		}
	}()
	maxUnavailable := intstr.FromString(fleetMaxUnavailable)
	if f.MaxUnavailable, err = rollout.MaxUnavailable(&maxUnavailable, n); err != nil {
		return nil, err
	}
	f.Tenant = tenant.NewPersistent(ctx, s, 1, func(p *poolv1.MachineConfigPool) {
		p.Spec.MaxUnavailable, p.Spec.Updates.MinReadySeconds = &maxUnavailable, ptr.To[int32](1)
	})
	if err := f.follow(running); err != nil {
		return nil, err
	}
	var first *kubelet
	hosts := hardware.storm(running, f.Namespace, 1, func(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) (_ *kubelet, err error) {
		first, err = bootByPointer(ctx, host, userData)
		return first, err
	})
	settle(ctx, s, f.Tenant, 1)
	if f.Judge, err = judgeRollouts(running, s.WorkloadClient, func(node *corev1.Node) bool { return hosts.own(node.Name) }); err != nil {
		return nil, err
	}
	deployment := f.Deploy(ctx, tenant.Deployment{Name: role, Replicas: 1, Labels: map[string]string{poolv1.NodeRoleLabelPrefix + role: ""}, Bootstrap: Poolboot().template()})
	boots, end := hosts.whileRunning(ctx)
	defer end()
	if err := f.waitFor(boots, 1, "have joined", func(c *bootstrapv1.PoolbootConfig) bool {
		return conditions.IsTrue(c, bootstrapv1.NodeInPoolCondition)
	}); err != nil {
		return nil, fmt.Errorf("%w; %w", err, hosts.joinErrors())
	}
	hosts.wait()
	f.First = first.settings.Name
	if err := f.runAgents(running, unkindness, first); err != nil {
		return nil, err
	}
	if err := f.waitUntilSettled(ctx); err != nil {
		return nil, err
	}
	clones, err := f.clone(ctx, deployment, first, n-1)
	if err != nil {
		return nil, err
	}
	f.Clone = clones[0].settings.Name
	if err := f.runAgents(running, unkindness, clones...); err != nil {
		return nil, err
	}
	return f, f.WaitUntilUpdated(ctx, "")
}

func (f *Fleet) runAgents(ctx context.Context, unkindness Unkindness, kubelets ...*kubelet) error {
	for _, k := range kubelets {
		a, err := newAgent(k, unkindness)
		if err != nil {
			return err
		}
		f.running.Go(func() { a.run(ctx) })
	}
	return nil
}

// waitUntilSettled waits until no controller has work with the first host.
func (f *Fleet) waitUntilSettled(ctx context.Context) error {
	for {
		m, err := readMachine(ctx, f.site, f.Namespace, f.First)
		if err == nil {
			err = m.isSettled()
		}
		if err == nil {
			return nil
		}
		if !pause(ctx, 500*time.Millisecond) {
			return err
		}
	}
}

// Stop stops the agents.
func (f *Fleet) Stop() {
	f.end()
	f.running.Wait()
}

// Configure changes the configuration of the pool, and returns the name of the rendered config.
func (f *Fleet) Configure(ctx context.Context, content string) (string, error) {
	before, err := f.rendered(ctx)
	if err != nil {
		return "", err
	}
	change := f.MachineConfig("51-infra", role, "/etc/infratest", content)
	current := &poolv1.MachineConfig{}
	if err := f.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(change), current); err != nil {
		return "", err
	}
	changed := current.DeepCopy()
	changed.Spec.Config = &runtime.RawExtension{Raw: change.Spec.Config.Raw}
	if err := f.site.ManagementClient.Patch(ctx, changed, client.MergeFrom(current)); err != nil {
		return "", err
	}
	for {
		now, err := f.rendered(ctx)
		if err == nil && now != before {
			return now, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return "", fmt.Errorf("the pool renders nothing else: %w", ctx.Err())
		}
	}
}

func (f *Fleet) rendered(ctx context.Context) (string, error) {
	p := f.Pool(role)
	err := f.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)
	return p.Status.Configuration.Name, err
}

// WaitUntilUpdated waits until all hosts run a rendered config, or any if it is "". A host whose update failed is told
// to try again, as a user does.
func (f *Fleet) WaitUntilUpdated(ctx context.Context, rendered string) error {
	return f.wait(ctx, "are updated", func(c *bootstrapv1.PoolbootConfig) bool {
		f.retry(ctx, c)
		return conditions.IsTrue(c, bootstrapv1.UpdatedCondition) && (rendered == "" || c.Status.Boot.ServedConfiguration.Name == rendered)
	})
}

// WaitForShare waits until a share of the hosts run a rendered config, with retries as WaitUntilUpdated.
func (f *Fleet) WaitForShare(ctx context.Context, rendered string, share float64) error {
	return f.waitFor(ctx, int(share*float64(f.size)), "are updated", func(c *bootstrapv1.PoolbootConfig) bool {
		f.retry(ctx, c)
		return c.Status.Boot.ServedConfiguration.Name == rendered
	})
}

// Size returns the number of hosts.
func (f *Fleet) Size() int { return f.size }

// Updated returns how many hosts run a rendered config.
func (f *Fleet) Updated(rendered string) (updated int) {
	for _, c := range f.current() {
		if c.Status.Boot.ServedConfiguration.Name == rendered {
			updated++
		}
	}
	return updated
}

// retry tells a host whose update failed to try again. If the API server does not answer, it is called again.
func (f *Fleet) retry(ctx context.Context, c *bootstrapv1.PoolbootConfig) {
	updated, value := conditions.Get(c, bootstrapv1.UpdatedCondition), c.Status.Update.DesiredRevision
	if updated == nil || updated.Reason != bootstrapv1.UpdateDegradedReason || c.Annotations[bootstrapv1.ForceUpdateAnnotation] == value {
		return
	}
	forced := c.DeepCopy()
	metav1.SetMetaDataAnnotation(&forced.ObjectMeta, bootstrapv1.ForceUpdateAnnotation, value)
	_ = f.site.ManagementClient.Patch(ctx, forced, client.MergeFrom(c))
}

func (f *Fleet) wait(ctx context.Context, what string, is func(*bootstrapv1.PoolbootConfig) bool) error {
	return f.waitFor(ctx, f.size, what, is)
}

// waitFor waits until a number of PoolbootConfigs are as expected. It fails if their number stays the same for as long
// as patience.
func (f *Fleet) waitFor(ctx context.Context, want int, what string, is func(*bootstrapv1.PoolbootConfig) bool) error {
	last, since := -1, time.Now()
	for {
		count, example := 0, ""
		for _, c := range f.current() {
			if is(c) {
				count++
			} else if updated := conditions.Get(c, bootstrapv1.UpdatedCondition); updated != nil {
				example = updated.Message
			}
		}
		if count >= want {
			return nil
		}
		if count != last {
			last, since = count, time.Now()
		}
		if time.Since(since) > patience {
			return fmt.Errorf("%d of %d hosts %s, and their number has not changed in %s; for example: %s", count, want, what, patience, example)
		}
		if !pause(ctx, 500*time.Millisecond) {
			return fmt.Errorf("%d of %d hosts %s: %w; for example: %s", count, want, what, context.Cause(ctx), example)
		}
	}
}

// follow watches the PoolbootConfigs, because lists of all of them would keep the API server busy.
func (f *Fleet) follow(ctx context.Context) error {
	return site.Follow(ctx, f.site.ManagementClient, &bootstrapv1.PoolbootConfigList{}, func(kind watch.EventType, c *bootstrapv1.PoolbootConfig) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch {
		case c.Namespace != f.Namespace:
		case kind == watch.Deleted:
			delete(f.configs, c.Name)
		default:
			f.configs[c.Name] = c
		}
	})
}

// current returns the PoolbootConfigs as they are known.
func (f *Fleet) current() []*bootstrapv1.PoolbootConfig {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.configs))
}

// Limit describes how many hosts can be updated at a time.
func (f *Fleet) Limit() string {
	return fmt.Sprintf("%d (%s of %d hosts)", f.MaxUnavailable, fleetMaxUnavailable, f.size)
}
