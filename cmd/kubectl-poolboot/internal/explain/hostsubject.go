package explain

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// hostSubject is a host, what is known of it, and the rules that apply to it.
type hostSubject struct {
	host         *bmov1alpha1.BareMetalHost
	hardware     *bmov1alpha1.HardwareDetails
	hardwareFrom string
	// machine and cluster are nil when the host serves none.
	machine *clusterv1.Machine
	cluster *clusterv1.Cluster
	// configs are the PoolbootConfigs whose rules apply.
	configs []bootstrapv1.PoolbootConfig
	rules   []nodelabels.Rules
}

// gatherHost reads a host and the objects around it.
func (o *options) gatherHost(ctx context.Context, source *input.Source, name string) (*hostSubject, error) {
	s := &hostSubject{host: &bmov1alpha1.BareMetalHost{}}
	err := source.GetNamed(ctx, name, s.host)
	if err != nil {
		return nil, err
	}
	if s.hardware, s.hardwareFrom, err = host.Hardware(ctx, source, s.host); err != nil {
		return nil, err
	}
	cluster := o.cluster
	if source.InFiles {
		err = s.readFromFiles(ctx, source)
	} else if err = s.readMachine(ctx, source); s.machine != nil {
		cluster = s.machine.Spec.ClusterName
	}
	if err != nil {
		return nil, err
	}
	pools, err := source.Pools(ctx, source.Namespace, cluster)
	if err != nil {
		return nil, err
	}
	ofPools, err := o.poolRules(source, s, pools.Items)
	if err != nil {
		return nil, err
	}
	for i := range s.configs {
		ofPools = append(ofPools, nodelabels.OfConfig(&s.configs[i]))
	}
	s.rules = append(ofPools, s.rules...)
	if name := pools.Cluster.Name; name != "" && !source.InFiles {
		s.cluster = &clusterv1.Cluster{}
		err = source.Get(ctx, client.ObjectKey{Namespace: source.Namespace, Name: name}, s.cluster)
	}
	return s, err
}

// readMachine reads the Machine that the host serves, if it serves one, and its PoolbootConfig.
func (s *hostSubject) readMachine(ctx context.Context, source *input.Source) error {
	key, err := host.MachineOf(ctx, source, s.host)
	if err != nil {
		return fmt.Errorf("find the Machine of BareMetalHost %s: %w", klog.KObj(s.host), err)
	}
	if key.Name == "" {
		return nil
	}
	machine, config := &clusterv1.Machine{}, bootstrapv1.PoolbootConfig{}
	if err := source.Get(ctx, key, machine); err != nil {
		return err
	}
	if err := source.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: machine.Spec.Bootstrap.ConfigRef.Name}, &config); err != nil {
		return fmt.Errorf("bootstrap.configRef of Machine %s: %w", key, err)
	}
	s.machine, s.configs = machine, []bootstrapv1.PoolbootConfig{config}
	return nil
}

// readFromFiles reads the Machine and the Cluster of which the files contain only one, and the rules of all
// PoolbootConfigs and templates.
func (s *hostSubject) readFromFiles(ctx context.Context, files client.Reader) error {
	var machines clusterv1.MachineList
	var clusters clusterv1.ClusterList
	var configs bootstrapv1.PoolbootConfigList
	var templates bootstrapv1.PoolbootConfigTemplateList
	for _, list := range []client.ObjectList{&machines, &clusters, &configs, &templates} {
		if err := files.List(ctx, list); err != nil {
			return err
		}
	}
	if len(machines.Items) == 1 {
		s.machine = &machines.Items[0]
	}
	if len(clusters.Items) == 1 {
		s.cluster = &clusters.Items[0]
	}
	s.configs = configs.Items
	for i := range templates.Items {
		s.rules = append(s.rules, nodelabels.OfTemplate(&templates.Items[i]))
	}
	return nil
}

// poolRules returns the rules of the pool that the command line names, else of the pool of the host's Machine, else of
// all pools. In files, which can contain rules to try, it is all pools too.
func (o *options) poolRules(source *input.Source, s *hostSubject, pools []poolv1.MachineConfigPool) (rules []nodelabels.Rules, err error) {
	role := o.role
	if role == "" && s.machine != nil && !source.InFiles {
		assigned, err := pool.ForBoot(pool.Boot{Config: &s.configs[0], Machine: s.machine, Host: s.host, Pools: pools})
		if err != nil {
			return nil, err
		}
		role = assigned.Role
	}
	if role != "" {
		of, err := pool.OfRole(pools, role)
		if err != nil {
			return nil, source.ExplainMissing(err, role)
		}
		return []nodelabels.Rules{nodelabels.OfPool(of)}, nil
	}
	for i := range pools {
		rules = append(rules, nodelabels.OfPool(&pools[i]))
	}
	return rules, nil
}
