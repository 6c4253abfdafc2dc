package update

import (
	"bytes"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/secretmetadata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;list;watch

// knownAssignment is what this process wrote to the Secret of a host, or read in it.
type knownAssignment struct {
	// config is the PoolbootConfig of the host.
	config client.ObjectKey
	// version is the resource version of the Secret, or "" if there was none, and since is when it was written or read.
	version string
	since   time.Time
	// stored is the content, without the document, or nil if there was no Secret.
	stored *target
}

func (r *Updates) secrets() assignments.Secrets {
	return assignments.Secrets{Client: r.Client, Namespace: r.OverlayNamespace}
}

// store writes the Secret from which the config server serves a host's assignment.
func (r *Updates) store(ctx context.Context, config *bootstrapv1.PoolbootConfig, t target) error {
	version, err := r.secrets().Store(ctx, config.UID, t.document, t.clientCA)
	if err == nil {
		r.remember(config, version, &t)
	}
	return err
}

func (r *Updates) remember(config *bootstrapv1.PoolbootConfig, version string, t *target) {
	if t != nil {
		known := *t
		known.document = nil // a pool can have thousands of hosts
		t = &known
	}
	r.assignments.Add(config.UID, knownAssignment{config: client.ObjectKeyFromObject(config), version: version, since: time.Now(), stored: t})
}

// storedOf returns the assignment that is stored for a host, or nil if there is none that can be read. It is read
// live: it is what the host can download now.
func (r *Updates) storedOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) (*target, error) {
	secret, err := workload.GetIfExists[corev1.Secret](ctx, r.APIReader, r.secrets().Key(config.UID))
	if err != nil {
		return nil, err
	}
	if secret == nil {
		r.remember(config, "", nil)
		return nil, nil
	}
	document := secret.Data[bootstrapv1.AssignmentKey]
	a, err := assignment.Read(document)
	if err != nil {
		return nil, nil //nolint:nilerr // what can't be read is replaced
	}
	stored := target{
		document: document, revision: assignment.Revision(document), configuration: a.Config.Name, force: a.Force,
		clientCA: secret.Data[bootstrapv1.AssignmentClientCAKey],
	}
	if a.Restart != nil {
		stored.restart = a.Restart.ID
	}
	r.remember(config, secret.ResourceVersion, &stored)
	return &stored, nil
}

// awaitStart reports whether a host booted with an agent that has not reported anything yet, and when that is to be
// reported as an error. Such a host has an assignment, which was stored before its boot, so the cache has it.
func (r *Updates) awaitStart(ctx context.Context, h *host, now time.Time) (bootedWithAgent bool, wait time.Duration, err error) {
	if h.HasAgent() || h.Node == nil || h.Config.Spec.IsInline() || record.IsAdopted(h.Config) {
		return false, 0, nil
	}
	if err := r.Secrets.Get(ctx, r.secrets().Key(h.Config.UID), secretmetadata.New()); err != nil {
		return false, 0, client.IgnoreNotFound(err)
	}
	_, wait = h.start(now)
	return true, wait, nil
}

// awaitsAgent reports whether a host was adopted, or booted from a data Secret with which it installs its agent once it
// reaches the config server, and has none yet. It can be without the config server for ever.
func (h *host) awaitsAgent() bool {
	return (h.Config.Spec.IsInline() || record.IsAdopted(h.Config)) && h.Config.Annotations[bootstrapv1.PointerIDAnnotation] != "" && !h.HasAgent() && h.Node != nil
}

// offerAgent stores what a host booted with that awaits its agent, and the agent that it should run now, and then names
// the revision of this on its Node: the host downloads both. What can't be determined is no error: the host keeps its
// configuration.
func (r *Updates) offerAgent(ctx context.Context, h *host, in poolContext) error {
	stored, err := r.storedOf(ctx, h.Config)
	if err != nil {
		return err
	}
	t, err := r.bootedTarget(ctx, h, in, stored)
	if err != nil {
		if apierrors.IsNotFound(err) || !isTransient(err) {
			return nil
		}
		return err
	}
	revision := t.revision
	if stored == nil || stored.revision != revision || !bytes.Equal(stored.clientCA, t.clientCA) {
		if err := r.store(ctx, h.Config, t); err != nil {
			return err
		}
	}
	if h.Node.Annotations[agentv1.OfferedAnnotation] == revision {
		return nil
	}
	w, err := workload.Client(ctx, r.ClusterCache, record.ClusterKey(h.Config))
	if err != nil {
		return err
	}
	node := h.Node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.OfferedAnnotation, revision)
	if err := w.Patch(ctx, node, client.MergeFrom(h.Node)); err != nil {
		return fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	r.written.Record(node)
	h.Node = node
	return nil
}

// bootedTarget returns what a host has that awaits its agent, with the agent that it should run now. stored was
// written with its data Secret, or is nil: then what an upgrade or another CA changed since differs on the host.
func (r *Updates) bootedTarget(ctx context.Context, h *host, in poolContext, stored *target) (target, error) {
	if record.IsAdopted(h.Config) {
		return r.asFoundTarget(h, in)
	}
	booted := h.Config.Status.Boot.ServedConfiguration.Name
	if in.err != nil || stored == nil || stored.configuration != booted {
		p := in.pool.DeepCopy()
		p.Status.Configuration.Name, in.pool = booted, p
		return r.targetOf(ctx, h, in)
	}
	if len(in.offer.Agent.SHA512) == 0 {
		return target{}, errNoAgent
	}
	a, err := assignment.Read(stored.document)
	if err != nil {
		return target{}, err
	}
	t := *stored
	a.Agent, t.clientCA = &in.offer.Agent, in.facts.CA
	t.document, err = assignment.Encode(a)
	t.revision = assignment.Revision(t.document)
	return t, err
}

// knownStoredOf is storedOf without the document, and without a request if the Secret has the version that this
// process wrote or read last, or still does not exist. It is read if the cache of metadata has another version, or has
// lost it: someone else wrote or deleted it. An older version in the cache is from before the own write, unless it
// stays for longer than that takes.
//
// If the cache is late, a host keeps for that long what someone else stored. The event of that write is the next
// reconcile.
func (r *Updates) knownStoredOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) (*target, error) {
	if known, ok := r.known(config.UID); ok {
		secret := secretmetadata.New()
		if err := r.Secrets.Get(ctx, r.secrets().Key(config.UID), secret); client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		if known.isStill(secret.ResourceVersion) {
			return known.stored, nil
		}
	}
	return r.storedOf(ctx, config)
}

func (r *Updates) known(config types.UID) (knownAssignment, bool) {
	known, ok := r.assignments.Get(config)
	if !ok {
		return knownAssignment{}, false
	}
	return known.(knownAssignment), true
}

// isStill reports whether the Secret has the known content, if a cache has this version of it.
func (k knownAssignment) isStill(cached string) bool {
	if k.version == "" {
		return cached == ""
	}
	order, err := resourceversion.CompareResourceVersion(cached, k.version)
	return err == nil && (order == 0 || order < 0 && time.Since(k.since) < ownwrites.MaxLag)
}

// assignmentChanged selects the events of Secrets that someone else wrote or deleted.
func (r *Updates) assignmentChanged() predicate.Predicate {
	changed := func(secret client.Object) bool {
		known, ok := r.known(types.UID(secret.GetLabels()[bootstrapv1.AssignmentLabel]))
		return ok && !known.isStill(secret.GetResourceVersion())
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return changed(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return changed(e.ObjectNew) },
	}
}

// configOfAssignment returns a request for the PoolbootConfig of an assignment. Without an assignment that is known,
// there is none: the first reconcile of a host after a start of the manager reads it.
func (r *Updates) configOfAssignment(_ context.Context, secret client.Object) []ctrl.Request {
	known, ok := r.known(types.UID(secret.GetLabels()[bootstrapv1.AssignmentLabel]))
	if !ok {
		return nil
	}
	return []ctrl.Request{{NamespacedName: known.config}}
}
