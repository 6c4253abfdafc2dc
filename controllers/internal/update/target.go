package update

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// poolContext is what the targets of all hosts of a pool depend on.
type poolContext struct {
	cluster *clusterv1.Cluster
	pool    *poolv1.MachineConfigPool
	pools   []poolv1.MachineConfigPool
	// renderer is the program for the network data of hosts, or "" if they get none.
	renderer poolv1.NetworkRenderer
	// hold is why no host of the pool begins an update, apart from exceptions.
	hold rollout.Hold

	// facts are what hosts need to join the cluster. identity is what its Nodes can't be named like. offer is the agent
	// that hosts should run.
	facts    join.Cluster
	identity access.Cluster
	offer    join.Offer
	// err is why no target can be determined, or nil.
	err error
	// version identifies all of this.
	version string
}

// poolContextOf gathers what the targets of the hosts of a pool depend on.
func (r *Updates) poolContextOf(ctx context.Context, cluster *clusterv1.Cluster, p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) poolContext {
	in := poolContext{cluster: cluster, pool: p, pools: pools, hold: rollout.HoldOf(p, r.now()), identity: workload.Identity(ctx, r.ClusterCache, cluster)}
	if in.renderer = pool.NetworkRendererOf(p, pools); in.renderer == poolv1.NetworkRendererNone {
		in.renderer = ""
	}
	if in.facts, in.err = workload.JoinCluster(ctx, r.ClusterCache, cluster); in.err != nil {
		return in
	}
	if p.Status.Configuration.Name == "" {
		in.err = errNothingToRun
		return in
	}
	if in.offer, in.err = r.Offer(); in.err != nil {
		return in
	}
	version := sha256.New()
	for i := range pools {
		fmt.Fprintf(version, "%s %d %v ", pools[i].UID, pools[i].Generation, pools[i].DeletionTimestamp)
	}
	fmt.Fprintf(version, "%s %s %x %x %x", p.UID, p.Status.Configuration.Name, in.identity, in.facts, in.offer)
	in.version = string(version.Sum(nil))
	return in
}

// target is what a host should run according to its pool.
type target struct {
	// document is the assignment. revision is its revision, and configuration its rendered config.
	document                []byte
	revision, configuration string
	// force is the value of the annotation by which a user forced the update, or "". restart is the ID of the restart
	// that was requested last for the hosts of the pool, or "".
	force, restart string
	// clientCA is the PEM bundle that verifies the client certificates of the Cluster's kubelets.
	clientCA []byte
}

// errNothingToRun means that the pool of a host hands out no configuration yet.
var errNothingToRun = errors.New("the pool has no status.configuration yet: see its conditions")

// targetOf returns what a host should run.
func (r *Updates) targetOf(ctx context.Context, h *host, in poolContext) (target, error) {
	if record.IsPreview(h.Config) {
		return r.asFoundTarget(h, in)
	}
	if in.err != nil {
		return target{}, in.err
	}
	document, err := r.document(ctx, h, in)
	if err != nil {
		return target{}, err
	}
	return target{
		document: document, revision: assignment.Revision(document), configuration: in.pool.Status.Configuration.Name, clientCA: in.facts.CA,
		force: h.Config.Annotations[bootstrapv1.ForceUpdateAnnotation], restart: in.pool.Spec.Updates.Restart.ID,
	}, nil
}

// maxRevisions limits the hosts whose revisions, and whose stored assignments, are remembered.
const maxRevisions = 20000

// maxOrigins limits the pools whose origins are remembered.
const maxOrigins = 32

// knownRevision is the revision of a host's target as long as nothing changes that it depends on.
type knownRevision struct{ version, revision string }

// revisionOf returns the revision of what a host should run. It builds the assignment only if something has changed
// that it depends on: a pool can have thousands of hosts, and each of them causes many decisions.
func (r *Updates) revisionOf(ctx context.Context, h *host, in poolContext) (string, error) {
	if in.err != nil {
		return "", in.err
	}
	network, err := r.networkOf(ctx, h, in)
	if err != nil {
		return "", err
	}
	version := h.version(in)
	if version != "" {
		version += fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%x", network)))
	}
	if known, ok := r.revisions.Get(h.Config.UID); ok && version != "" && known.(knownRevision).version == version {
		return known.(knownRevision).revision, nil
	}
	t, err := r.targetOf(ctx, h, in)
	if err == nil {
		r.revisions.Add(h.Config.UID, knownRevision{version: version, revision: t.revision})
	}
	return t.revision, err
}

// version identifies everything that the target of a host depends on. It returns "" if the target also depends on a
// host of Metal3, which is not among the arguments.
func (h *host) version(in poolContext) string {
	if in.err != nil || h.Machine != nil && (h.Node == nil || h.Node.Spec.ProviderID == "") {
		return ""
	}
	c, annotations := h.Config, h.Config.Annotations
	if _, ok := annotations[bootstrapv1.UpdateHistoryAnnotation]; ok { // no target depends on it
		annotations = maps.Clone(annotations)
		delete(annotations, bootstrapv1.UpdateHistoryAnnotation)
	}
	version := sha256.New()
	fmt.Fprintf(version, "%q %d %q %q %q %q ", in.version, c.Generation, annotations, c.Status.NodeRef.Name, c.Status.HostRef.UID, c.Status.DerivedNodeLabels)
	if h.Machine != nil {
		fmt.Fprintf(version, "%q %q %q", h.Machine.Labels, h.Machine.Spec.Taints, h.Node.Spec.ProviderID)
	}
	return string(version.Sum(nil))
}

// networkOf returns the files for the network data of a host. The error says why they are unknown: without it, they
// would be removed from the host.
func (r *Updates) networkOf(ctx context.Context, h *host, in poolContext) ([]networkdata.File, error) {
	if in.renderer == "" || h.Config.Spec.IsInline() { // the program of its image applies it: its data Secret has none
		return nil, nil
	}
	found, err := barehost.ForConfig(ctx, r.Client, h.Config, h.Machine)
	if err != nil || found == nil || found.Object == nil {
		return nil, err
	}
	return r.NetworkData.Files(ctx, r.Client, found.Object, in.pool.Name, in.renderer)
}

// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch

// errNoAgent means that the manager offers no agent, so it can't say which one hosts should run.
var errNoAgent = errors.New("the manager offers no agent: start it with --agent-directory")

// newDocument builds the assignment of a host in its pool.
func (r *Updates) newDocument(ctx context.Context, h *host, in poolContext) ([]byte, error) {
	if len(in.offer.Agent.SHA512) == 0 {
		return nil, errNoAgent
	}
	key := client.ObjectKey{Namespace: in.pool.Namespace, Name: in.pool.Status.Configuration.Name}
	rendered, err := r.rendered.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("MachineConfig %s, the rendered config of MachineConfigPool %s: %w", key, in.pool.Name, err)
	}
	sources, err := r.sourcesOf(ctx, h, in, "")
	if err != nil {
		return nil, err
	}
	registered, err := registration.Register(sources.ForOverlay())
	if err != nil {
		return nil, err
	}
	network, err := r.networkOf(ctx, h, in)
	if err != nil {
		return nil, err
	}
	return join.Document(join.Input{
		Config: h.Config, Pool: in.pool, Pools: in.pools, Rendered: rendered, Registration: registered, Cluster: in.facts, Offer: in.offer, Network: network,
	})
}

// sourcesOf returns what the Node of a host is registered with in its pool: what the host has recorded, and what its
// pool and its Machine declare now.
func (r *Updates) sourcesOf(ctx context.Context, h *host, in poolContext, cloudProviderSource string) (registration.Sources, error) {
	input := registration.Sources{
		NodeName:       h.Config.Status.NodeRef.Name,
		Cluster:        in.identity,
		HostUID:        h.Config.Status.HostRef.UID,
		Pool:           *in.pool,
		Pools:          in.pools,
		Machine:        h.Machine,
		Config:         h.Config,
		RenderedConfig: cmp.Or(h.Config.Status.Boot.ServedConfiguration.Name, in.pool.Status.Configuration.Name),
		SyncedLabels:   r.SyncedLabels,

		CloudProviderSource: cloudProviderSource,
	}
	if name := record.MachineName(h.Config); name != "" && h.Machine == nil {
		return registration.Sources{}, fmt.Errorf("the Machine %s/%s does not exist, and it owns PoolbootConfig %s: the Node has labels and taints of the Machine",
			h.Config.Namespace, name, h.Config.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(h.Config.Status.DerivedNodeLabels)) {
		input.DerivedLabels = append(input.DerivedLabels, registration.DerivedLabel{
			Key: key, Value: h.Config.Status.DerivedNodeLabels[key], Source: "the derivedNodeLabels in the status of PoolbootConfig " + h.Config.Name,
		})
	}
	found, err := barehost.ForConfig(ctx, r.Client, h.Config, h.Machine)
	_, isNotReady := errors.AsType[*barehost.NotReadyError](err)
	switch {
	case err != nil && !isNotReady:
		return registration.Sources{}, err
	case found != nil:
		input.ProviderID = found.ProviderID
		input.HostUID = cmp.Or(input.HostUID, found.UID) // clusterctl move drops the record
	}
	if (found != nil || isNotReady) && h.Machine != nil && h.Node != nil && h.Node.Spec.ProviderID != "" {
		input.ProviderID = h.Node.Spec.ProviderID // it never changes, and the kubelet was started with it
	}
	return input, nil
}

// predicted returns what was predicted for the update that a host has just completed. It returns "" if there was none,
// if the agent does not say what it did, or if one of the rendered configs does not exist any more. It is called before
// the record says that the host runs the second one, so it is called once for each update.
func (r *Updates) predicted(ctx context.Context, h *host, in poolContext) update.Effect {
	before, after := h.Config.Status.Boot.ServedConfiguration.Name, h.Config.Status.Update.Desired.Name
	if !h.runsDesired() || h.Report.Effect == "" || before == "" || before == after {
		return ""
	}
	var specs []poolv1.MachineConfigSpec
	isMoved := false
	for _, name := range []string{before, after} {
		config, err := workload.GetIfExists[poolv1.MachineConfig](ctx, r.Client, client.ObjectKey{Namespace: h.Config.Namespace, Name: name})
		if err != nil || config == nil {
			return ""
		}
		specs = append(specs, config.Spec)
		isMoved = isMoved || config.Labels[poolv1.RenderedForLabel] != in.pool.Name
	}
	parent, _ := pool.ParentOf(in.pool, in.pools)
	var effects []update.Effect
	restarts := []update.RestartKind{update.RestartNothing, pool.RestartKindOf(in.pool)} // whether it was told before is not known any more
	if in.pool.Spec.Updates.RebootsIfRequired() {
		restarts = append(restarts, update.RestartKernel)
	}
	for _, restart := range restarts {
		plan, err := pool.PlanUpdate(in.pool, parent, specs[0], specs[1], isMoved, restart, update.CapabilitiesWithout(h.Config.Status.Update.UnsupportedChanges...))
		if err != nil {
			ctrl.LoggerFrom(ctx).V(2).Info("The effect of an update can't be predicted", "error", err.Error())
			return ""
		}
		effects = append(effects, plan.Effect())
	}
	if slices.Contains(effects, h.Report.Effect) {
		return h.Report.Effect
	}
	return effects[0]
}

// originsOf says which MachineConfigs brought the entries of a host's configuration that a text of the agent names.
// It returns "" if the pool does not render this configuration any more.
func (r *Updates) originsOf(ctx context.Context, h *host, in poolContext, text string) string {
	configs := &poolv1.MachineConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(h.Config.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ""
	}
	inputs, err := pool.InputsHash(in.pool.Spec.PoolRole, in.pools, configs.Items)
	if err != nil {
		return ""
	}
	known, ok := r.origins.Get(inputs)
	if !ok {
		kept := pool.Rendered{} // also if it can't be rendered: each host would try it again
		if rendered, err := pool.Render(in.pool.Spec.PoolRole, in.pools, configs.Items); err == nil {
			kept.Name, kept.Origins = rendered.Name, rendered.Origins
		}
		known = kept
		r.origins.Add(inputs, known)
	}
	if rendered := known.(pool.Rendered); pool.HasSameContent(rendered.Name, h.Config.Status.Update.Desired.Name) {
		return pool.DescribeOrigins(rendered.Origins, text)
	}
	return ""
}

// comparePrediction compares what the agent of a host says that it did with what was predicted.
func (r *Updates) comparePrediction(h *host, predicted update.Effect) {
	if predicted == "" || predicted == h.Report.Effect {
		return
	}
	metrics.PredictionDiffers(h.Config)
	r.Recorder.Eventf(h.Config, nil, corev1.EventTypeWarning, bootstrapv1.EventPredictionDiffers, action,
		"the effect of the update of Node %s to %s was %s, and %s was predicted: see the actions in the journal of poolboot-agent.service on the host",
		h.Node.Name, h.Config.Status.Update.Desired.Name, h.Report.Effect, predicted)
}
