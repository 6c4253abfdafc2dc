package join

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Input is everything that an assignment depends on.
type Input struct {
	// Config is the PoolbootConfig of the host. Its join, extraConfig and annotations count.
	Config *bootstrapv1.PoolbootConfig

	// Pool is the pool that the host is in, and Pools are all pools of its cluster.
	Pool  *poolv1.MachineConfigPool
	Pools []poolv1.MachineConfigPool

	// Rendered is the rendered config that the host should run, from RenderedOf.
	Rendered assignment.RenderedConfig

	// Registration is what the host's Node is registered with, in that pool.
	Registration registration.Registration

	// Cluster is the cluster that the host joined.
	Cluster Cluster

	// Offer is the agent that the config server offers.
	Offer Offer

	// Network are the files that configure the network of the host.
	Network []networkdata.File
}

// Offer is the agent that the config server offers to hosts.
type Offer struct {
	// Agent is its version. Its hashes are never empty.
	Agent assignment.Agent
	// ServerURL is the external URL of the config server.
	ServerURL string
	// ServerCA is the PEM bundle that verifies the certificate of the config server. If it is empty, the host's does.
	ServerCA []byte
}

// RenderedOf returns the reference to a rendered config, with the hash of the bytes that the config server serves.
func RenderedOf(rendered *poolv1.MachineConfig) (assignment.RenderedConfig, error) {
	served, err := pool.Served(rendered.Name, rendered.Spec)
	if err != nil {
		return assignment.RenderedConfig{}, err
	}
	return assignment.RenderedConfig{Name: rendered.Name, SHA512: pool.ServedHash(served)}, nil
}

// Assignment returns what the host should run. The error is a *join.ExtraConfigError if the extraConfig cannot be used.
func Assignment(in Input) (assignment.Assignment, error) {
	parent, err := pool.ParentOf(in.Pool, in.Pools)
	if _, isMissing := errors.AsType[*pool.NotFoundError](err); err != nil && !isMissing {
		return assignment.Assignment{}, err
	}
	agent, err := in.Offer.agentOf(in.Config, "")
	if err != nil {
		return assignment.Assignment{}, err
	}
	part, err := in.machine(agent).Lasting()
	if err != nil {
		return assignment.Assignment{}, err
	}
	machine, err := ignition.Marshal(part)
	if err != nil {
		return assignment.Assignment{}, err
	}
	offered := in.Offer.Agent
	return assignment.Assignment{
		Node:                 in.Registration.Name,
		Pool:                 in.Pool.Spec.PoolRole,
		Config:               in.Rendered,
		Machine:              machine,
		Policy:               policyOf(in.Pool, parent),
		MinReadySeconds:      in.Pool.Spec.Updates.MinReady(),
		ReadyDeadlineSeconds: in.Pool.Spec.Updates.ReadyDeadline(),
		RepairsDrift:         in.Pool.Spec.Updates.RepairsDrift(),
		RebootMethod:         pool.RebootMethodOf(in.Pool),
		Force:                in.Config.Annotations[bootstrapv1.ForceUpdateAnnotation],
		Restart:              restartOf(in.Pool),
		RebootFrom:           rebootFrom(in),
		Staging:              stagingOf(in.Pool),
		Agent:                &offered,
	}, nil
}

// AsFoundDocument returns the document of the assignment of an adopted host that is to be as it was found: it names the
// agent, and nothing else that the host has.
func AsFoundDocument(node string, p *poolv1.MachineConfigPool, offer Offer) ([]byte, error) {
	machine, err := ignition.Marshal(ignition.New())
	if err != nil {
		return nil, err
	}
	return assignment.Encode(assignment.Assignment{
		Node: node, Config: assignment.AsFound(), Machine: machine, Policy: update.DefaultPolicy(),
		MinReadySeconds: p.Spec.Updates.MinReady(), ReadyDeadlineSeconds: p.Spec.Updates.ReadyDeadline(), RebootMethod: pool.RebootMethodOf(p), Agent: &offer.Agent,
	})
}

// restartOf returns the last restart that was requested for the hosts of a pool, or nil.
func restartOf(p *poolv1.MachineConfigPool) *assignment.Restart {
	if !p.Spec.Updates.Restart.IsRequested() {
		return nil
	}
	return &assignment.Restart{ID: p.Spec.Updates.Restart.ID, Kind: pool.RestartKindOf(p)}
}

// rebootFrom returns the boot that the host is to leave, or left, because its operating system needed that, or "".
func rebootFrom(in Input) string {
	if !in.Pool.Spec.Updates.RebootsIfRequired() {
		return ""
	}
	return record.RebootRequestOf(in.Config).Boot
}

// stagingOf returns how the hosts of a pool download what an update needs, or nil without limit and images.
func stagingOf(p *poolv1.MachineConfigPool) *assignment.Staging {
	s := &p.Spec.Updates.Staging
	if s.BandwidthPerHost == nil && len(s.Prefetch) == 0 {
		return nil
	}
	bandwidth := ptr.Deref(s.BandwidthPerHost, resource.Quantity{})
	return &assignment.Staging{BytesPerSecond: bandwidth.Value(), Images: s.Prefetch}
}

// Document returns the document of an assignment. Errors name the PoolbootConfig.
func Document(in Input) ([]byte, error) {
	a, err := Assignment(in)
	if err != nil {
		return nil, err
	}
	document, err := assignment.Encode(a)
	if err != nil {
		return nil, fmt.Errorf("PoolbootConfig %s: %w", klog.KObj(in.Config), err)
	}
	return document, nil
}

// MachineOf returns what the overlay of the host's first boot is built from. architecture is that of the host, as Go
// names it. The host gets no agent if none is offered for its architecture.
func MachineOf(in Input, architecture string) (Machine, error) {
	agent, err := in.Offer.agentOf(in.Config, in.Offer.Agent.SHA512[architecture])
	if err != nil {
		return Machine{}, err
	}
	machine := in.machine(agent)
	machine.Reports = agent.Settings
	if agent.Program.URL == "" {
		machine.Agent = nil
	}
	return machine, nil
}

// InlineAgent returns the agent of a host whose configuration is in its data Secret. That is written before the host
// and its architecture are known, and an upgrade can replace the program before the host boots, so it has no program.
// It returns nil if no agent is offered. The annotation with the pointer ID is written after the data Secret.
func (o Offer) InlineAgent(config *bootstrapv1.PoolbootConfig, pointerID string) *Agent {
	if len(o.Agent.SHA512) == 0 {
		return nil
	}
	return &Agent{Settings: o.settings(config, pointerID), IsLate: true}
}

func (o Offer) settings(config *bootstrapv1.PoolbootConfig, pointerID string) assignment.Settings {
	return assignment.Settings{Server: o.ServerURL, CA: string(o.ServerCA), Namespace: config.Namespace, Name: config.Name, PointerID: pointerID}
}

func (in Input) machine(agent *Agent) Machine {
	return Machine{Config: in.Config, Registration: in.Registration, Cluster: in.Cluster, Agent: agent, Network: in.Network}
}

// errNoPointer means that a host has no URL at the config server yet.
var errNoPointer = errors.New("the annotation " + bootstrapv1.PointerIDAnnotation + " is missing: it is set with the data Secret")

// agentOf returns the agent of a host. hash is that of the program that the host installs at its first boot. Without a
// hash, it has no program.
func (o Offer) agentOf(config *bootstrapv1.PoolbootConfig, hash string) (agent *Agent, err error) {
	agent = &Agent{Settings: o.settings(config, config.Annotations[bootstrapv1.PointerIDAnnotation]), IsLate: config.Spec.IsInline()}
	if agent.Settings.PointerID == "" {
		return nil, fmt.Errorf("PoolbootConfig %s: %w", klog.KObj(config), errNoPointer)
	}
	if hash != "" {
		agent.Program.SHA512 = hash
		agent.Program.URL, err = assignment.AgentURL(o.ServerURL, hash)
	}
	return agent, err
}

// policyOf returns the disruption policy of a host: that of its pool, and rules for the machine's own part. Users
// cannot configure what these rules are about, so they replace rules of the pool.
func policyOf(p, parent *poolv1.MachineConfigPool) update.Policy {
	policy := pool.UpdatePolicyOf(p, parent)
	rule := func(actions ...update.Action) update.Rule {
		return update.Rule{Actions: actions, Reason: "the default for what Poolboot writes for this machine"}
	}
	restartKubelet := rule(update.Action{Type: update.Restart, Unit: ignition.KubeletUnit, IfExists: true})
	// With kubeadm, the flags of the kubelet come from KubeadmJoinPath.
	for _, name := range []string{ignition.KubeletEnvPath, ignition.KubeadmJoinPath, ignition.KubeletConfigPath, ignition.ClusterCAPath} {
		policy.Paths[name] = restartKubelet
	}
	// The agent reads its settings before each request.
	policy.Paths[assignment.SettingsPath] = rule(update.Action{Type: update.None})
	for _, name := range []string{checkScriptPath, checkSumsPath, versionsScriptPath} {
		policy.Paths[name] = rule(update.Action{Type: update.None})
	}
	// These units do their work when the host starts. A new unit of the agent applies when the agent restarts.
	for _, name := range append([]string{ignition.DependenciesTarget}, ignition.OwnUnits...) {
		policy.Units[name] = rule(update.Action{Type: update.DaemonReload})
	}
	return policy
}
