package storm

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// Boots are hosts of another pool of a fleet's Cluster that are powered on simultaneously.
type Boots struct {
	fleet *Fleet
	name  string
	size  int
	hosts *hosts
	on    chan struct{}
}

// NewBoots creates n hosts and a MachineDeployment for them in the pool worker, and waits until they are provisioned.
// They wait for PowerOn. hardware must be the site's hardware.
func (f *Fleet) NewBoots(ctx context.Context, hardware *Hardware, name string, n int) (*Boots, error) {
	b := &Boots{fleet: f, name: name, size: n, on: make(chan struct{})}
	b.hosts = hardware.storm(ctx, f.Namespace, n, func(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) (*kubelet, error) {
		select {
		case <-b.on:
			return bootByPointer(ctx, host, userData)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	for i := range n {
		f.AddHost(ctx, fmt.Sprintf("%s-%s-%d", f.Namespace, name, i))
	}
	f.Deploy(ctx, tenant.Deployment{Name: name, Replicas: int32(n), Bootstrap: Poolboot().template()})
	_, err := b.hosts.provisioned.wait(ctx)
	return b, err
}

// PowerOn powers on all hosts, and waits until their Nodes are Ready in their pool. It returns how long each needed
// from its first request to the config server, without the time of hardware and firmware.
func (b *Boots) PowerOn(ctx context.Context) (took []time.Duration, err error) {
	close(b.on)
	ctx, end := b.hosts.whileRunning(ctx)
	defer end()
	isOurs := func(c *bootstrapv1.PoolbootConfig) bool {
		return c.Labels[clusterv1.MachineDeploymentNameLabel] == b.name && conditions.IsTrue(c, bootstrapv1.NodeInPoolCondition)
	}
	if err := b.fleet.waitFor(ctx, b.size, "have joined the other pool", isOurs); err != nil {
		return nil, fmt.Errorf("%w; %w", err, b.hosts.joinErrors())
	}
	for _, c := range b.fleet.current() {
		if isOurs(c) {
			took = append(took, c.Status.Boot.NodeReadyTime.Sub(c.Status.Requests.FirstRequestedTime.Time))
		}
	}
	return took, nil
}
