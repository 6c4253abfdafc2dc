package update

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// poolContext is what the targets of all hosts of a pool depend on.
type poolContext struct {
	cluster *clusterv1.Cluster
	pool    *poolv1.MachineConfigPool
	pools   []poolv1.MachineConfigPool
	// hold is why no host of the pool begins an update.
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
	in := poolContext{cluster: cluster, pool: p, pools: pools, hold: rollout.HoldOfWindow(p, time.Now()), identity: workload.Identity(ctx, r.ClusterCache, cluster)}
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
	// force is the value of the annotation by which a user forced the update, or "".
	force string
	// clientCA is the PEM bundle that verifies the client certificates of the Cluster's kubelets.
	clientCA []byte
}

// errNothingToRun means that the pool of a host hands out no configuration yet.
var errNothingToRun = errors.New("the pool has no status.configuration yet: see its conditions")

// targetOf returns what a host should run.
func (r *Updates) targetOf(ctx context.Context, h *host, in poolContext) (target, error) {
	if in.err != nil {
		return target{}, in.err
	}
	document, err := r.document(ctx, h, in)
	if err != nil {
		return target{}, err
	}
	return target{
		document: document, revision: assignment.Revision(document), configuration: in.pool.Status.Configuration.Name, clientCA: in.facts.CA,
		force: h.Config.Annotations[bootstrapv1.ForceUpdateAnnotation],
	}, nil
}

// maxRevisions limits the hosts whose revisions, and whose stored assignments, are remembered.
const maxRevisions = 20000

// knownRevision is the revision of a host's target as long as nothing changes that it depends on.
type knownRevision struct{ version, revision string }

// revisionOf returns the revision of what a host should run. It builds the assignment only if something has changed
// that it depends on: a pool can have thousands of hosts, and each of them causes many decisions.
func (r *Updates) revisionOf(ctx context.Context, h *host, in poolContext) (string, error) {
	version := h.version(in)
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
	c := h.Config
	version := sha256.New()
	fmt.Fprintf(version, "%q %d %q %q %q %q ", in.version, c.Generation, c.Annotations, c.Status.NodeRef.Name, c.Status.HostRef.UID, c.Status.DerivedNodeLabels)
	if h.Machine != nil {
		fmt.Fprintf(version, "%q %q", h.Machine.Labels, h.Node.Spec.ProviderID)
	}
	return string(version.Sum(nil))
}
