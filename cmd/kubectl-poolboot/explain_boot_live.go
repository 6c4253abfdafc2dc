package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// ofMachine gathers what there is about a Machine.
func (e *explainBoot) ofMachine(ctx context.Context) (*bootSubject, error) {
	if len(e.files)+len(e.rest) > 0 {
		return e.inFiles(false)
	}
	live, namespace, _, err := e.open()
	if err != nil {
		return nil, err
	}
	s := &bootSubject{machine: &clusterv1.Machine{}, config: &bootstrapv1.PoolbootConfig{}}
	if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: e.name}, s.machine); err != nil {
		return nil, fmt.Errorf("reading Machine %s/%s: %w", namespace, e.name, err)
	}
	ref := s.machine.Spec.Bootstrap.ConfigRef
	if ref.Kind != "PoolbootConfig" {
		return nil, fmt.Errorf("the bootstrap.configRef of Machine %s/%s names a %q: Poolboot has no part in its boot", namespace, e.name, ref.Kind)
	}
	if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ref.Name}, s.config); err != nil {
		return nil, fmt.Errorf("PoolbootConfig %s/%s of Machine %s: %w", namespace, ref.Name, e.name, err)
	}
	return s, e.around(ctx, live, s)
}

// ofNode gathers what there is about a Node: by the record that names it or, when none does, by the Node's own
// annotation.
func (e *explainBoot) ofNode(ctx context.Context) (*bootSubject, error) {
	if len(e.files)+len(e.rest) > 0 {
		return e.inFiles(true)
	}
	live, namespace, _, err := e.open()
	if err != nil {
		return nil, err
	}
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := live.List(ctx, configs, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("PoolbootConfigs of namespace %s: %w", namespace, err)
	}
	s, err := e.recorded(configs.Items)
	if err != nil {
		return nil, err
	}
	if s.config == nil {
		if err := e.byAnnotation(ctx, live, namespace, s); err != nil {
			return nil, err
		}
		if s.config == nil {
			return s, nil
		}
	}
	if s.machine, err = util.GetOwnerMachine(ctx, live, s.config.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("the Machine of PoolbootConfig %s/%s: %w", s.config.Namespace, s.config.Name, err)
	}
	return s, e.around(ctx, live, s)
}

// recorded is the subject of the record that names the Node or, while none does, of the one whose host is to have a
// Node of that name.
func (e *explainBoot) recorded(configs []bootstrapv1.PoolbootConfig) (*bootSubject, error) {
	has := func(config *bootstrapv1.PoolbootConfig) bool {
		return config.Status.NodeRef.IsDefined() && config.Status.NodeRef.Name == e.name
	}
	willHave := func(config *bootstrapv1.PoolbootConfig) bool {
		return !config.Status.NodeRef.IsDefined() && registration.Name(registration.Naming{Config: config}) == e.name
	}
	s := &bootSubject{}
	for _, isOne := range []func(*bootstrapv1.PoolbootConfig) bool{has, willHave} {
		for i := range configs {
			config := &configs[i]
			if !isOne(config) || e.cluster != "" && config.Labels[clusterv1.ClusterNameLabel] != e.cluster {
				continue
			}
			if s.config != nil {
				return nil, fmt.Errorf("PoolbootConfigs %s and %s both have a Node %s: choose the Cluster with --cluster", s.config.Name, config.Name, e.name)
			}
			s.config = config
		}
		if s.config != nil {
			break
		}
	}
	return s, nil
}

// found notes the Node of the subject's name. Before a Node is on record that may be another host's, which says nothing
// about this one.
func (s *bootSubject) found(n *corev1.Node) {
	made, is := madeFor(n)
	if s.config != nil && !s.config.Status.NodeRef.IsDefined() && (!is || made != client.ObjectKeyFromObject(s.config)) {
		s.unseen = append(s.unseen, fmt.Sprintf("Node %s: it exists and was not pre-registered for PoolbootConfig %s", n.Name, s.config.Name))
		return
	}
	s.node = n
}

// byAnnotation finds the record of a Node that no record names, if it has one.
func (e *explainBoot) byAnnotation(ctx context.Context, live client.Reader, namespace string, s *bootSubject) error {
	pools := &poolv1.MachineConfigPoolList{}
	if err := live.List(ctx, pools, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("MachineConfigPools of namespace %s: %w", namespace, err)
	}
	if err := s.settle(namespace, e.cluster, pools.Items); err != nil {
		return err
	}
	reader, err := e.workload(ctx, live, s.cluster)
	if err != nil {
		return fmt.Errorf("no PoolbootConfig in namespace %s has a Node %s, and the Node can't be looked at: %w", namespace, e.name, err)
	}
	s.node = &corev1.Node{}
	if err := reader.Get(ctx, client.ObjectKey{Name: e.name}, s.node); err != nil {
		return fmt.Errorf("no PoolbootConfig in namespace %s has a Node %s, and in Cluster %s: %w", namespace, e.name, s.cluster.Name, err)
	}
	key, made := madeFor(s.node)
	if !made {
		return nil
	}
	config := &bootstrapv1.PoolbootConfig{}
	if err := live.Get(ctx, key, config); err != nil {
		return fmt.Errorf("PoolbootConfig %s, for which Node %s was made: %w", key, e.name, err)
	}
	s.config, s.pools = config, nil
	return nil
}

// around gathers what is about a config: pools, Cluster, host and Node. What may not be read is left out and said.
func (e *explainBoot) around(ctx context.Context, live client.Reader, s *bootSubject) error {
	pools := &poolv1.MachineConfigPoolList{}
	if err := live.List(ctx, pools, client.InNamespace(s.config.Namespace)); err != nil {
		return fmt.Errorf("MachineConfigPools of namespace %s: %w", s.config.Namespace, err)
	}
	if err := s.settle(s.config.Namespace, e.cluster, pools.Items); err != nil {
		return err
	}
	unseen := func(what string, err error) { s.unseen = append(s.unseen, what+": "+err.Error()) }
	cluster := &clusterv1.Cluster{}
	if err := live.Get(ctx, s.cluster, cluster); err != nil {
		unseen("Cluster "+s.cluster.Name, err)
	} else {
		s.clusterObject = cluster
	}
	if s.machine != nil || s.config.Spec.Host.IsDefined() {
		found, err := host.ForConfig(ctx, live, s.config, s.machine)
		if err == nil && found != nil {
			s.bmh = found.Object
			s.hardware, s.hardwareFrom, err = host.Hardware(ctx, live, s.bmh)
		}
		if notReady := (*host.NotReadyError)(nil); err != nil && !errors.As(err, &notReady) {
			unseen("host", err)
		}
	}
	name := s.nodeName()
	if name == "" || s.node != nil {
		return nil
	}
	reader, err := e.workload(ctx, live, s.cluster)
	if err != nil {
		unseen("Node "+name, err)
		return nil
	}
	found := &corev1.Node{}
	switch err := reader.Get(ctx, client.ObjectKey{Name: name}, found); {
	case err == nil:
		s.found(found)
	case apierrors.IsNotFound(err):
		unseen("Node "+name, errors.New("it does not exist"))
	default:
		unseen("Node "+name, err)
	}
	return nil
}

// inFiles gathers the subject from files.
func (e *explainBoot) inFiles(byNode bool) (*bootSubject, error) {
	found, err := e.read(append(e.files, e.rest...)...)
	if err != nil {
		return nil, err
	}
	s := &bootSubject{}
	named := e.name
	if byNode {
		if s, err = e.recorded(found.about.boots); err != nil {
			return nil, err
		}
	}
	for i := range found.nodes {
		n := &found.nodes[i]
		if key, made := madeFor(n); byNode && n.Name == e.name {
			if s.config == nil {
				s.node = n
			}
			for j := range found.about.boots {
				if boot := &found.about.boots[j]; made && s.config == nil && boot.Name == key.Name && (boot.Namespace == "" || boot.Namespace == key.Namespace) {
					s.config = boot
				}
			}
		}
	}
	if byNode && s.config != nil {
		for _, owner := range s.config.OwnerReferences {
			if owner.Kind == "Machine" {
				named = owner.Name
			}
		}
	}
	for i := range found.about.machines {
		if m := &found.about.machines[i]; m.Name == named && (!byNode || s.config != nil) {
			s.machine = m
		}
	}
	switch {
	case !byNode && s.machine == nil:
		return nil, fmt.Errorf("the files hold no Machine %q: correct the name, or name the file with it", e.name)
	case byNode && s.config == nil && s.node == nil:
		return nil, fmt.Errorf("the files hold no Node %q and no PoolbootConfig with one of that name: correct the name, or name the file with it", e.name)
	}
	if s.machine != nil && s.config == nil {
		for i := range found.about.boots {
			if found.about.boots[i].Name == s.machine.Spec.Bootstrap.ConfigRef.Name {
				s.config = &found.about.boots[i]
			}
		}
		if s.config == nil {
			return nil, fmt.Errorf("the files hold no PoolbootConfig %q, which Machine %s names: name the file with it", s.machine.Spec.Bootstrap.ConfigRef.Name, s.machine.Name)
		}
	}
	return s, found.about.around(s, found, e.cluster)
}

// around adds what files hold about a config: pools, Cluster, host and Node.
func (h *hostObjects) around(s *bootSubject, found *objects, cluster string) error {
	namespace := ""
	if s.config != nil {
		namespace = s.config.Namespace
	}
	if err := s.settle(namespace, cluster, found.pools); err != nil {
		return err
	}
	for i := range h.clusters {
		if h.clusters[i].Name == s.cluster.Name {
			s.clusterObject = &h.clusters[i]
		}
	}
	for i := range h.hosts {
		bmh := &h.hosts[i]
		consumes := s.machine != nil && bmh.Spec.ConsumerRef != nil && bmh.Spec.ConsumerRef.Name == s.machine.Spec.InfrastructureRef.Name
		if consumes || s.config != nil && s.config.Status.HostRef.IsDefined() && s.config.Status.HostRef.Name == bmh.Name {
			s.bmh, s.hardware, s.hardwareFrom = bmh, bmh.Status.HardwareDetails, host.HardwareFromStatus
		}
	}
	for i := range h.hardware {
		if data := &h.hardware[i]; s.bmh != nil && data.Name == s.bmh.Name && data.Spec.HardwareDetails != nil {
			s.hardware, s.hardwareFrom = data.Spec.HardwareDetails, host.HardwareFromData
		}
	}
	isThere := s.node != nil
	for i := range found.nodes {
		if !isThere && s.config != nil && found.nodes[i].Name == s.nodeName() {
			isThere = true
			s.found(&found.nodes[i])
		}
	}
	if !isThere {
		s.unseen = append(s.unseen, "Node "+s.nodeName()+": the files don't hold it")
	}
	return nil
}
