package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
	status "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/rollout"
)

// gatherer reads what there is about a Machine or a Node, from files or from a cluster.
type gatherer struct {
	source *input.Source
	// name is that of the Machine or Node, cluster the value of --cluster.
	name, cluster string
}

// machine gathers what there is about a Machine.
func (g *gatherer) machine(ctx context.Context) (*subject, error) {
	s := &subject{machine: &clusterv1.Machine{}, config: &bootstrapv1.PoolbootConfig{}}
	if err := g.source.GetNamed(ctx, g.name, s.machine); err != nil {
		return nil, err
	}
	ref := s.machine.Spec.Bootstrap.ConfigRef
	if ref.Kind != "PoolbootConfig" {
		return nil, fmt.Errorf("the Machine %s: spec.bootstrap.configRef: the kind is %q: Poolboot boots Machines with a PoolbootConfig only", g.name, ref.Kind)
	}
	if err := g.source.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: ref.Name}, s.config); err != nil {
		return nil, fmt.Errorf("the Machine %s: spec.bootstrap.configRef: %w", g.name, err)
	}
	return s, g.gatherAround(ctx, s)
}

// node gathers what there is about a Node: by the PoolbootConfig that names it or, when none does, by the Node's own
// annotation.
func (g *gatherer) node(ctx context.Context) (*subject, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := g.source.List(ctx, configs, client.InNamespace(g.source.Namespace)); err != nil {
		return nil, fmt.Errorf("list PoolbootConfigs of namespace %s: %w", g.source.Namespace, err)
	}
	s := &subject{}
	var err error
	if s.config, err = g.findConfig(configs.Items); err != nil {
		return nil, err
	}
	if s.config == nil {
		if err := g.findNode(ctx, s); err != nil || s.config == nil {
			return s, err
		}
	}
	if name := record.MachineName(s.config); name != "" {
		machine := &clusterv1.Machine{}
		if err := g.source.Get(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: name}, machine); err == nil {
			s.machine = machine
		} else if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("PoolbootConfig %s: metadata.ownerReferences: %w", s.config.Name, err)
		}
	}
	return s, g.gatherAround(ctx, s)
}

// findConfig returns the PoolbootConfig whose status names the Node or, when none does, the one whose host will get a
// Node of that name, or that has this name or host; nil without any.
func (g *gatherer) findConfig(configs []bootstrapv1.PoolbootConfig) (*bootstrapv1.PoolbootConfig, error) {
	hasNode := func(config *bootstrapv1.PoolbootConfig) bool { return config.Status.NodeRef.Name == g.name }
	willHaveNode := func(config *bootstrapv1.PoolbootConfig) bool {
		return !record.HasNode(config) && registration.Name(registration.Naming{Config: config}) == g.name
	}
	isNamed := func(config *bootstrapv1.PoolbootConfig) bool {
		return slices.Contains([]string{config.Name, config.Status.HostRef.Name}, g.name)
	}
	for _, matches := range []func(*bootstrapv1.PoolbootConfig) bool{hasNode, willHaveNode, isNamed} {
		found := slices.DeleteFunc(slices.Clone(configs), func(c bootstrapv1.PoolbootConfig) bool {
			return !matches(&c) || g.cluster != "" && record.ClusterName(&c) != g.cluster
		})
		switch len(found) {
		case 0:
		case 1:
			return &found[0], nil
		default:
			return nil, fmt.Errorf("PoolbootConfigs %s and %s both have a Node %s: choose the Cluster with --cluster", found[0].Name, found[1].Name, g.name)
		}
	}
	return nil, nil
}

// findNode reads a Node that no PoolbootConfig names, and the PoolbootConfig in its annotation, if it has one.
func (g *gatherer) findNode(ctx context.Context, s *subject) error {
	if err := g.readPools(ctx, s, g.source.Namespace); err != nil {
		return err
	}
	noConfig := fmt.Sprintf("no PoolbootConfig has a Node %s", g.name)
	if !g.source.InFiles {
		noConfig = fmt.Sprintf("no PoolbootConfig in namespace %s has a Node %s", g.source.Namespace, g.name)
	}
	workload, err := g.source.Workload(ctx, s.cluster)
	if err != nil {
		return fmt.Errorf("%s, and the Node can't be read: %w", noConfig, err)
	}
	s.node = &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: g.name}, s.node); err != nil {
		err = fmt.Errorf("%s, and in Cluster %s: %w", noConfig, s.cluster.Name, err)
		if apierrors.IsNotFound(err) && !g.source.InFiles {
			err = &cli.UnknownName{Name: g.name, Err: fmt.Errorf("%w: correct the name, or set --namespace or --cluster", err)}
		}
		return err
	}
	key, ok := record.ConfigOfNode(s.node)
	if !ok {
		return nil
	}
	config := &bootstrapv1.PoolbootConfig{}
	if err := g.source.Get(ctx, key, config); err != nil {
		return fmt.Errorf("the Node %s was pre-registered for PoolbootConfig %s: %w", g.name, key, err)
	}
	s.config = config
	return nil
}

// gatherAround reads what there is about a PoolbootConfig: pools, Cluster, host and Node. What can't be read is left
// out and noted.
func (g *gatherer) gatherAround(ctx context.Context, s *subject) error {
	if err := g.readPools(ctx, s, s.config.Namespace); err != nil {
		return err
	}
	cluster := &clusterv1.Cluster{}
	if err := g.source.Reader.Get(ctx, s.cluster, cluster); err == nil {
		s.clusterObject = cluster
	} else if !g.source.InFiles || !apierrors.IsNotFound(err) {
		s.addUnseen("Cluster "+s.cluster.Name, err)
	}
	notReady := (*host.NotReadyError)(nil)
	if err := g.readHost(ctx, s); err != nil && !errors.As(err, &notReady) {
		s.addUnseen("host", err)
	}
	g.readMetal3(ctx, s)
	g.readNode(ctx, s)
	g.planUpdate(ctx, s)
	return nil
}

// planUpdate plans the update of a running host that does not run what its pool hands out, or was changed by hand.
func (g *gatherer) planUpdate(ctx context.Context, s *subject) {
	runs := s.config.Status.Boot.ServedConfiguration.Name
	of, err := pool.OfRole(s.pools, s.config.Status.PoolRole)
	drift := rollout.ReportOf(s.node).Drift
	if err != nil || !of.Status.Configuration.IsDefined() || s.config.Status.Update.DesiredRevision == "" || runs == "" || runs == agentv1.AsFoundConfig {
		return
	}
	if !pool.HasSameContent(runs, of.Status.Configuration.Name) {
		drift = "" // an update leaves it as it is
	} else if drift == "" {
		return
	}
	predictor := status.RebootPredictor{Reader: g.source.Reader, Pools: s.pools}
	if s.reboot, err = predictor.Describe(ctx, of, s.config, s.bmh, drift); err != nil {
		s.addUnseen("effect of the update", err)
	}
}

// readPools finds the Cluster of a subject, and reads the pools of that Cluster.
func (g *gatherer) readPools(ctx context.Context, s *subject, namespace string) error {
	name := g.cluster
	switch {
	case s.machine != nil:
		name = s.machine.Spec.ClusterName
	case s.config != nil:
		name = record.ClusterName(s.config)
	}
	pools, err := g.source.Pools(ctx, namespace, name)
	if err != nil {
		return err
	}
	if name = cmp.Or(name, pools.Cluster.Name); name == "" {
		return errors.New("there is no pool: name the Cluster with --cluster, or the namespace of its pools with --namespace")
	}
	s.pools, s.cluster = pools.Items, client.ObjectKey{Namespace: namespace, Name: name}
	return nil
}

// readHost reads the BareMetalHost, if there is one, and its hardware.
func (g *gatherer) readHost(ctx context.Context, s *subject) (err error) {
	if g.source.InFiles {
		err = g.findHost(ctx, s)
	} else if found, hostErr := host.ForConfig(ctx, g.source, s.config, s.machine); found != nil {
		s.bmh = found.Object
	} else {
		err = hostErr
	}
	if s.bmh != nil {
		s.hardware, s.hardwareFrom, err = host.Hardware(ctx, g.source, s.bmh)
	}
	return err
}

// readMetal3 reads the trouble of Metal3 with the host, and what else Metal3 depends on, which files do not contain.
func (g *gatherer) readMetal3(ctx context.Context, s *subject) {
	var err error
	if s.bmh != nil {
		s.trouble = host.Trouble(s.bmh)
	}
	switch {
	case g.source.InFiles:
		return
	case s.bmh != nil:
	case record.HostKindOf(s.config) == record.BareMetalHost: // it is not being provisioned
		bmh := &bmov1alpha1.BareMetalHost{}
		key := client.ObjectKey{Namespace: s.config.Namespace, Name: s.config.Spec.Host.BareMetalHostName}
		if err = g.source.Get(ctx, key, bmh); err == nil {
			s.trouble = host.Trouble(bmh)
		} else if !apierrors.IsNotFound(err) {
			s.addUnseen("BareMetalHost "+key.Name, err)
		}
		return
	default:
		return
	}
	if s.missingSecrets, _, err = host.MissingSecrets(ctx, g.source, s.bmh, s.config.Status.DataSecretName); err != nil {
		s.addUnseen("Secrets of BareMetalHost "+s.bmh.Name, err)
	}
	found, err := host.ForConfig(ctx, g.source, s.config, s.machine)
	if err == nil && found != nil {
		waits := ""
		if waits, err = host.DataTrouble(ctx, g.source, g.source, found); waits != "" {
			s.missingSecrets = append(s.missingSecrets, waits)
		}
	}
	if err != nil {
		s.addUnseen("data of Metal3 for BareMetalHost "+s.bmh.Name, err)
	}
	if s.clusterObject == nil {
		return
	}
	if s.labelSync, err = host.LabelSyncOf(ctx, g.source, s.clusterObject); err != nil && !host.IsAbsent(err) {
		s.addUnseen("label sync of Metal3", err)
	}
}

// findHost finds the BareMetalHost among files, which do not need to contain the Metal3Machine.
func (g *gatherer) findHost(ctx context.Context, s *subject) error {
	var hosts bmov1alpha1.BareMetalHostList
	if err := g.source.List(ctx, &hosts, client.InNamespace(s.config.Namespace)); err != nil {
		return err
	}
	for i := range hosts.Items {
		bmh := &hosts.Items[i]
		consumer := bmh.Spec.ConsumerRef
		if s.machine != nil && consumer != nil && consumer.Name == s.machine.Spec.InfrastructureRef.Name ||
			s.config.Status.HostRef.IsDefined() && s.config.Status.HostRef.Name == bmh.Name {
			s.bmh = bmh
		}
	}
	return nil
}

// readNode reads the Node, unless that was done, or its name depends on a host that is not chosen.
func (g *gatherer) readNode(ctx context.Context, s *subject) {
	name := s.nodeName()
	if name == "" || s.node != nil {
		return
	}
	workload, err := g.source.Workload(ctx, s.cluster)
	if err != nil {
		s.addUnseen("Node "+name, err)
		return
	}
	node := &corev1.Node{}
	err = workload.Get(ctx, client.ObjectKey{Name: name}, node)
	switch config, ok := record.ConfigOfNode(node); {
	case apierrors.IsNotFound(err) && g.source.InFiles:
		s.addUnseen("Node "+name, errors.New("the files do not contain it"))
	case apierrors.IsNotFound(err):
		s.addUnseen("Node "+name, errors.New("it does not exist"))
	case err != nil:
		s.addUnseen("Node "+name, err)
	// Until the status names a Node, one of this name may be another host's.
	case !record.HasNode(s.config) && (!ok || config != client.ObjectKeyFromObject(s.config)):
		s.addUnseen("Node "+name, fmt.Errorf("it exists and was not pre-registered for PoolbootConfig %s", s.config.Name))
	default:
		s.node = node
	}
}
