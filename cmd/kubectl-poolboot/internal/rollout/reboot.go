package rollout

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// RebootPredictor predicts the reboots of hosts.
type RebootPredictor struct {
	Reader client.Reader
	// Pools are those of the Cluster.
	Pools []poolv1.MachineConfigPool

	configs map[string]*poolv1.MachineConfig
}

// Describe returns whether a running host reboots to run what its pool hands out, how, and because of what. What
// drifted on the host changes too. bmh is nil if the host is none of Metal3. With an error about firmware, the answer
// has the rest.
func (p *RebootPredictor) Describe(ctx context.Context, of *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, bmh *bmov1alpha1.BareMetalHost, drift string) (string, error) {
	from, err := p.config(ctx, of.Namespace, config.Status.Boot.ServedConfiguration.Name)
	if err != nil {
		return "", err
	}
	to, err := p.config(ctx, of.Namespace, of.Status.Configuration.Name)
	if err != nil {
		return "", err
	}
	parent, _ := pool.ParentOf(of, p.Pools)
	by := update.Rebooting{Method: pool.RebootMethodOf(of), Can: update.CapabilitiesWithout(config.Status.Update.UnsupportedChanges...)}
	isMoved := from.Labels[poolv1.RenderedForLabel] != of.Name
	plan, err := pool.PlanUpdate(of, parent, from.Spec, to.Spec, isMoved, pool.RestartOf(of, config, isMoved), by.Can, update.ParseDrift(drift)...)
	if err != nil {
		return "", err
	}
	if bmh != nil && plan.Reboots() {
		var firmware host.Firmware
		firmware, err = host.FirmwareOf(ctx, p.Reader, bmh)
		by.ByMetal3, by.NotApplied = firmware.IsPending, firmware.Why
	}
	return plan.DescribeReboot(by), err
}

// config reads a rendered config once.
func (p *RebootPredictor) config(ctx context.Context, namespace, name string) (*poolv1.MachineConfig, error) {
	if known := p.configs[name]; known != nil {
		return known, nil
	}
	config := &poolv1.MachineConfig{}
	if err := p.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, config); err != nil {
		return nil, fmt.Errorf("MachineConfig %s: %w", name, err)
	}
	if p.configs == nil {
		p.configs = map[string]*poolv1.MachineConfig{}
	}
	p.configs[name] = config
	return config, nil
}

// predictReboots sets whether the hosts that wait for an update reboot. It returns what could not be read.
func predictReboots(ctx context.Context, reader client.Reader, p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, hosts []HostStatus) error {
	configOf := map[string]*bootstrapv1.PoolbootConfig{}
	for i := range configs {
		configOf[configs[i].Name] = &configs[i]
	}
	waiting := map[*HostStatus]*bootstrapv1.PoolbootConfig{}
	for i := range hosts {
		if h := &hosts[i]; (!h.runsDesired() || h.awaitsRestart) && !h.IsInUpdate && h.told != "" && h.Current != "" && h.Desired != "" {
			waiting[h] = configOf[h.PoolbootConfig]
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	pools, err := poolsOfCluster(ctx, reader, p)
	if err != nil {
		return err
	}
	policies, hasPolicy := &bmov1alpha1.HostUpdatePolicyList{}, sets.New[string]()
	unread := reader.List(ctx, policies, client.InNamespace(p.Namespace))
	for i := range policies.Items {
		hasPolicy.Insert(policies.Items[i].Name)
	}
	predictor := RebootPredictor{Reader: reader, Pools: pools}
	for h, config := range waiting {
		bmh := &bmov1alpha1.BareMetalHost{}
		ref := config.Status.HostRef
		if !hasPolicy.Has(ref.Name) {
			bmh = nil
		} else if err := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, bmh); err != nil {
			bmh, unread = nil, err
		}
		if h.Reboot, err = predictor.Describe(ctx, p, config, bmh, ""); err != nil {
			unread = err
		}
	}
	if host.IsAbsent(unread) {
		return nil
	}
	return unread
}
