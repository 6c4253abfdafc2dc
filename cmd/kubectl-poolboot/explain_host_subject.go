package main

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// hostObjects are what files hold of hosts and what is about them.
type hostObjects struct {
	hosts     []bmov1alpha1.BareMetalHost
	hardware  []bmov1alpha1.HardwareData
	machines  []clusterv1.Machine
	clusters  []clusterv1.Cluster
	boots     []bootstrapv1.PoolbootConfig
	templates []bootstrapv1.PoolbootConfigTemplate
}

// adder returns what adds an object of a kind; nil for a kind that is not about hosts. Of other projects' kinds, fields
// that are newer than this program are passed over.
func (h *hostObjects) adder(kind schema.GroupVersionKind) func(raw []byte) error {
	switch kind {
	case bmov1alpha1.GroupVersion.WithKind("BareMetalHost"):
		return adding(&h.hosts, kjson.Unmarshal)
	case bmov1alpha1.GroupVersion.WithKind("HardwareData"):
		return adding(&h.hardware, kjson.Unmarshal)
	case clusterv1.GroupVersion.WithKind("Machine"):
		return adding(&h.machines, kjson.Unmarshal)
	case clusterv1.GroupVersion.WithKind("Cluster"):
		return adding(&h.clusters, kjson.Unmarshal)
	case bootstrapv1.GroupVersion.WithKind("PoolbootConfig"):
		return adding(&h.boots, decodeStrict(kind))
	case bootstrapv1.GroupVersion.WithKind("PoolbootConfigTemplate"):
		return adding(&h.templates, decodeStrict(kind))
	}
	return nil
}

func adding[object any](to *[]object, decode func([]byte, any) error) func([]byte) error {
	return func(raw []byte) error {
		var read object
		if err := decode(raw, &read); err != nil {
			return err
		}
		*to = append(*to, read)
		return nil
	}
}

// decodeStrict decodes an object of one of Poolboot's own kinds.
func decodeStrict(kind schema.GroupVersionKind) func([]byte, any) error {
	return func(raw []byte, into any) error {
		object, is := into.(client.Object)
		if !is {
			return errors.New("is of another kind")
		}
		_, _, err := strict.Decode(raw, &kind, object)
		return err
	}
}

// inFiles gathers the subject from files.
func (e *explainHost) inFiles(context.Context) (*subject, error) {
	found, err := e.read(append(e.files, e.rest...)...)
	if err != nil {
		return nil, err
	}
	if err := found.ofCluster(e.cluster); err != nil {
		return nil, err
	}
	s := &subject{}
	for i := range found.about.hosts {
		if found.about.hosts[i].Name == e.name {
			s.host = &found.about.hosts[i]
		}
	}
	if s.host == nil {
		return nil, fmt.Errorf("the files hold no BareMetalHost %q: correct the name, or name the file with it", e.name)
	}
	s.hardware, s.hardwareFrom = s.host.Status.HardwareDetails, ""
	if s.hardware != nil {
		s.hardwareFrom = host.HardwareFromStatus
	}
	for i := range found.about.hardware {
		if data := &found.about.hardware[i]; data.Name == e.name && data.Spec.HardwareDetails != nil {
			s.hardware, s.hardwareFrom = data.Spec.HardwareDetails, host.HardwareFromData
		}
	}
	if len(found.about.machines) == 1 {
		s.machine = &found.about.machines[0]
	}
	if len(found.about.clusters) == 1 {
		s.cluster = &found.about.clusters[0]
	}
	if s.rules, err = e.ofPools(found.pools); err != nil {
		return nil, err
	}
	for i := range found.about.boots {
		s.rules = append(s.rules, nodelabels.OfConfig(&found.about.boots[i]))
	}
	for i := range found.about.templates {
		s.rules = append(s.rules, nodelabels.OfTemplate(&found.about.templates[i]))
	}
	return s, nil
}

// ofPools are the rules of the pool that was asked for, or else of all.
func (e *explainHost) ofPools(pools []poolv1.MachineConfigPool) (rules []nodelabels.Rules, err error) {
	if e.role != "" {
		of, err := pool.OfRole(pools, e.role)
		if err != nil {
			return nil, err
		}
		return []nodelabels.Rules{nodelabels.OfPool(of)}, nil
	}
	for i := range pools {
		rules = append(rules, nodelabels.OfPool(&pools[i]))
	}
	return rules, nil
}

// live gathers the subject from a cluster.
func (e *explainHost) live(ctx context.Context) (*subject, error) {
	live, namespace, _, err := e.open()
	if err != nil {
		return nil, err
	}
	s := &subject{host: &bmov1alpha1.BareMetalHost{}}
	if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.name}, s.host); err != nil {
		return nil, fmt.Errorf("BareMetalHost %s/%s: %w", namespace, e.name, err)
	}
	if s.hardware, s.hardwareFrom, err = host.Hardware(ctx, live, s.host); err != nil {
		return nil, err
	}
	key, err := host.MachineOf(ctx, live, s.host)
	if err != nil {
		return nil, fmt.Errorf("the Machine of BareMetalHost %s/%s: %w", namespace, e.name, err)
	}
	clusterName := e.cluster
	config := &bootstrapv1.PoolbootConfig{}
	if key.Name != "" {
		s.machine = &clusterv1.Machine{}
		if err := live.Get(ctx, key, s.machine); err != nil {
			return nil, fmt.Errorf("reading Machine %s: %w", key, err)
		}
		clusterName = s.machine.Spec.ClusterName
		at := client.ObjectKey{Namespace: key.Namespace, Name: s.machine.Spec.Bootstrap.ConfigRef.Name}
		if err := live.Get(ctx, at, config); err != nil {
			return nil, fmt.Errorf("PoolbootConfig %s of Machine %s: %w", at, key, err)
		}
		s.rules = []nodelabels.Rules{nodelabels.OfConfig(config)}
	}
	pools := &poolv1.MachineConfigPoolList{}
	if err := live.List(ctx, pools, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("MachineConfigPools of namespace %s: %w", namespace, err)
	}
	found := &objects{pools: pools.Items}
	if err := found.ofCluster(clusterName); err != nil {
		return nil, err
	}
	if err := e.choosePool(s, config, found.pools); err != nil {
		return nil, err
	}
	if len(found.pools) > 0 {
		s.cluster = &clusterv1.Cluster{}
		at := client.ObjectKey{Namespace: namespace, Name: found.pools[0].Spec.ClusterName}
		if err := live.Get(ctx, at, s.cluster); err != nil {
			return nil, fmt.Errorf("reading Cluster %s: %w", at, err)
		}
	}
	return s, nil
}

// choosePool adds the rules of the pool that the Machine is in or will be in, unless another one was asked for.
func (e *explainHost) choosePool(s *subject, config *bootstrapv1.PoolbootConfig, pools []poolv1.MachineConfigPool) (err error) {
	if e.role == "" && s.machine != nil {
		assigned, err := pool.ForBoot(pool.Boot{Config: config, Machine: s.machine, Host: s.host, Pools: pools})
		if err != nil {
			return err
		}
		e.role = assigned.Role
	}
	of, err := e.ofPools(pools)
	s.rules = append(of, s.rules...)
	return err
}
