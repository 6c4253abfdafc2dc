package update

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// looks remembers the last look at each pool. A look lists all hosts of the pool, because a list from the cache can't
// miss an event. But what a rollout sees of a host is determined only if one of its objects has another version than
// at the last look. The zero value is ready to use.
type looks struct {
	mu    sync.Mutex
	known map[client.ObjectKey]look // by the pool
}

// look is a look at a pool.
type look struct {
	// surroundings identifies what the hosts have in common.
	surroundings string
	hosts        map[string]hostLook // by the PoolbootConfig
}

// hostLook is a host at a look, with the versions of its objects. It is not changed.
type hostLook struct {
	versions [3]version
	host     host
}

// version is the version of an object. Its content never changes. That of an object which does not exist is empty.
type version struct {
	uid     types.UID
	version string
}

func versionOf[T any, Object interface {
	*T
	client.Object
}](object Object) version {
	if object == nil {
		return version{}
	}
	return version{object.GetUID(), object.GetResourceVersion()}
}

// last returns the last look at a pool if the surroundings are the same.
func (l *looks) last(pool client.ObjectKey, surroundings string) look {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[pool]; ok && surroundings != "" && known.surroundings == surroundings {
		return known
	}
	return look{}
}

func (l *looks) remember(pool client.ObjectKey, now look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil {
		l.known = map[client.ObjectKey]look{}
	}
	if now.surroundings == "" {
		delete(l.known, pool)
		return
	}
	l.known[pool] = now
}

func (l *looks) forget(pool client.ObjectKey) { l.remember(pool, look{}) }

// cached returns the records and the Nodes of the Cluster as the cache has them.
func (r rollouts) cached(ctx context.Context, s *poolScope) ([]bootstrapv1.PoolbootConfig, []corev1.Node, error) {
	configs, nodes := &bootstrapv1.PoolbootConfigList{}, &corev1.NodeList{}
	if err := r.Client.List(ctx, configs, s.ofCluster()...); err != nil {
		return nil, nil, fmt.Errorf("read the PoolbootConfigs of Cluster %s: %w", workload.ClusterOfPool(s.pool), err)
	}
	if err := s.nodes.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("read the Nodes of Cluster %s: %w", workload.ClusterOfPool(s.pool), err)
	}
	return configs.Items, nodes.Items, nil
}

// gather reads the hosts from the cache, and determines what they should run.
func (r rollouts) gather(ctx context.Context, s *poolScope) error {
	configs, nodes, err := r.cached(ctx, s)
	if err != nil {
		return err
	}
	if err := r.gatherFrom(ctx, s, configs, nodes); err != nil {
		return err
	}
	r.usePlaces(s, r.places.get(client.ObjectKeyFromObject(s.pool)))
	return nil
}

// gatherCurrent is gather with the records and the Nodes as they are now. In an older version, a Node can have what was
// recorded for it, then another revision, and then the first one again.
func (r rollouts) gatherCurrent(ctx context.Context, s *poolScope) error {
	configs, nodes, err := r.cached(ctx, s)
	if err != nil {
		return err
	}
	cluster := workload.ClusterOfPool(s.pool)
	if configs, err = current(ctx, configs, r.APIReader, bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), s.ofCluster()...); err != nil {
		return fmt.Errorf("read the PoolbootConfigs of Cluster %s: %w", cluster, err)
	}
	if nodes, err = current(ctx, nodes, s.liveNodes, corev1.SchemeGroupVersion.WithKind("Node")); err != nil {
		return fmt.Errorf("read the Nodes of Cluster %s: %w", cluster, err)
	}
	return r.gatherFrom(ctx, s, configs, nodes)
}

func (r rollouts) gatherFrom(ctx context.Context, s *poolScope, configs []bootstrapv1.PoolbootConfig, nodes []corev1.Node) (err error) {
	if s.hosts, err = r.hostsOfPool(ctx, s, configs, nodes); err != nil {
		return err
	}
	s.notReplaced = rollout.NotReplaced(s.pool, len(s.hosts))
	s.maxUnavailable, err = rollout.MaxUnavailable(s.pool.Spec.MaxUnavailable, len(s.hosts)+len(s.notReplaced))
	return err
}

// hostsOfPool returns the hosts of the pool that have joined, with their targets, as rollout.HostsOfPool does. A host
// is the same as at the last look if its record, its Machine and its Node have the same versions.
func (r rollouts) hostsOfPool(ctx context.Context, s *poolScope, configs []bootstrapv1.PoolbootConfig, nodes []corev1.Node) ([]*host, error) {
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, s.ofCluster()...); err != nil {
		return nil, fmt.Errorf("read the Machines of Cluster %s: %w", workload.ClusterOfPool(s.pool), err)
	}
	machineOf, nodeOf := byName(machines.Items), byName(nodes)
	key := client.ObjectKeyFromObject(s.pool)
	now := look{hosts: make(map[string]hostLook, len(configs))}
	if s.version != "" {
		now.surroundings = fmt.Sprintf("%s %t", s.version, s.hold.Why != "")
	}
	last := r.looks.last(key, now.surroundings)
	var hosts []*host
	var claimed map[types.NamespacedName][]*corev1.Node // of no use as long as no record is lost
	for i := range configs {
		config := &configs[i]
		machine := machineOf[record.MachineName(config)]
		known, isKnown := last.hosts[config.Name]
		isSame := isKnown && known.versions[0] == versionOf(config)
		switch {
		case isSame || rollout.IsInPool(s.pool.Spec.PoolRole, config):
			node := nodeOf[config.Status.NodeRef.Name]
			versions := [3]version{versionOf(config), versionOf(machine), versionOf(node)}
			if !isKnown || known.versions != versions {
				known = hostLook{versions: versions, host: *newHost(s.pools, shallow(config), shallow(machine), shallow(node))}
				var err error
				if isKnown, err = r.lookAt(ctx, s, &known.host); err != nil {
					return nil, err
				}
			}
			if isKnown {
				now.hosts[config.Name] = known
			}
			hosts = append(hosts, &known.host)
		case rollout.IsUnrecorded(config): // not remembered: it can have any Node
			if claimed == nil {
				claimed = rollout.NodesByConfig(nodes)
			}
			h := &host{Host: rollout.Unrecorded(s.pools, config, machine, claimed[record.Key(config)])}
			if !h.CanBeIn(s.pool.Spec.PoolRole) {
				continue
			}
			if _, err := r.lookAt(ctx, s, h); err != nil {
				return nil, err
			}
			hosts = append(hosts, h)
		}
	}
	r.looks.remember(key, now)
	return hosts, nil
}

// lookAt determines the target of a host, and what a rollout sees of it. It reports whether all of that follows from
// the versions of the objects of the host.
func (r rollouts) lookAt(ctx context.Context, s *poolScope, h *host) (isComplete bool, _ error) {
	isComplete = true
	if !h.IsExcluded() && (s.hold.Why == "" || !h.hasSettled()) {
		revision, err := r.revisionOf(ctx, h, s.surroundings)
		switch {
		case workload.IsUnreachable(err):
			return false, err
		case err != nil: // the condition Updated of the host has the same error
			ctrl.LoggerFrom(ctx).V(2).Info("The target of a host can't be determined", "PoolbootConfig", h.Name(), "error", err.Error())
		default:
			h.target = revision
		}
		isComplete = err == nil && h.version(s.surroundings) != ""
		s.isIncomplete = s.isIncomplete || err != nil && !errors.Is(err, errNothingToRun)
	}
	h.see(s)
	return isComplete, nil
}

// see determines what a rollout sees of a host.
func (h *host) see(s *poolScope) *seen {
	if h.seen == nil {
		h.seen = &seen{Candidate: h.ForRollout(s.pool, h.target), isUntold: h.IsUntold(), mustBeAdopted: h.mustBeAdopted()}
	}
	return h.seen
}

// shallow returns a copy of an object of a list, so that the list is not kept as long as the object is.
func shallow[T any](object *T) *T {
	if object == nil {
		return nil
	}
	c := *object
	return &c
}

func byName[T any, Object interface {
	*T
	client.Object
}](objects []T) map[string]Object {
	named := make(map[string]Object, len(objects))
	for i := range objects {
		object := Object(&objects[i])
		named[object.GetName()] = object
	}
	return named
}

// ofCluster selects the objects of the Cluster in the management cluster, without copies: they must not be changed.
func (s *poolScope) ofCluster() []client.ListOption {
	cluster := workload.ClusterOfPool(s.pool)
	return []client.ListOption{client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name}, client.UnsafeDisableDeepCopy}
}

// current returns the objects of a kind as they are now. cached are those of the cache. It lists the metadata of the
// objects, and reads only those of which the cache has another version: whole objects are several times as large, and
// few of them differ.
func current[T any, Object interface {
	*T
	client.Object
}](ctx context.Context, cached []T, live client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) ([]T, error) {
	known := byName[T, Object](cached)
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := live.List(ctx, list, options...); err != nil {
		return nil, err
	}
	objects := make([]T, 0, len(list.Items))
	for i := range list.Items {
		metadata := &list.Items[i]
		if object := known[metadata.Name]; object != nil && versionOf(metadata) == versionOf[T, Object](object) {
			objects = append(objects, *object)
			continue
		}
		object, err := workload.GetIfExists[T, Object](ctx, live, client.ObjectKeyFromObject(metadata))
		if err != nil {
			return nil, err
		}
		if object != nil {
			objects = append(objects, *object)
		}
	}
	return objects, nil
}
