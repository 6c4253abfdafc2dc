package update

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// placesNamespace is the namespace in the workload cluster of the ConfigMaps with the places that are taken.
	placesNamespace = metav1.NamespaceSystem
	// placesPrefix is followed by the role of the pool, a dot, and the name of the Cluster.
	placesPrefix = "poolboot-rollout-"
)

// placesKey returns the key of the ConfigMap of a pool. It contains the name of the Cluster, because several Clusters
// can share one API server, as in test suites: Nodes of another Cluster must not take places of this one.
func placesKey(p *poolv1.MachineConfigPool) client.ObjectKey {
	return client.ObjectKey{Namespace: placesNamespace, Name: placesPrefix + p.Spec.PoolRole + "." + p.Spec.ClusterName}
}

// places are the places of spec.maxUnavailable of a pool that are taken. They are in a ConfigMap in the workload
// cluster: each key is the name of a Node, and its value is the resource version of the Node at which its host can be
// told to begin an update. A host is told with a patch that is locked to this version, after the ConfigMap was written
// with a lock. So a manager that takes a place knows all others that are taken, even if its caches are late.
//
// A place is free again when the Node is seen at a later version, and its host is in no update there: either the host
// was told at the version of the place, and is done, or it can't be told at that version any more. Such a place is
// removed with the next write.
type places struct {
	// version is the resource version of the ConfigMap, or "" if it does not exist.
	version string
	// taken are the versions of the Nodes by their names. left are those Nodes that do not exist any more, or have left
	// the pool: they do not count, and the next write removes them. Neither is changed.
	taken map[string]string
	left  map[string]bool
	// binaryData is never written by a manager. A key in it can't be a place, so the next write removes all.
	binaryData map[string][]byte
}

// knownPlaces remembers the places of each pool as this process read or wrote them last. Others can have changed them:
// then a write conflicts. The zero value is ready to use.
type knownPlaces struct {
	mu    sync.Mutex
	known map[client.ObjectKey]*places
}

func (k *knownPlaces) get(pool client.ObjectKey) *places {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.known[pool]
}

// set remembers the places of a pool. Nil forgets them.
func (k *knownPlaces) set(pool client.ObjectKey, p *places) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.known == nil {
		k.known = map[client.ObjectKey]*places{}
	}
	if p == nil {
		delete(k.known, pool)
		return
	}
	k.known[pool] = p
}

// doubt is why the cache does not tell how far the host of a taken place is with its update. It counts as if it
// reported nothing.
type doubt int

const (
	// isOpen means that the host can be told at the version that the cache has: it was not told at that version.
	isOpen doubt = iota + 1
	// isBehind means that the cache has an older version.
	isBehind
	// isWritten means that this process wrote the Node, and the cache does not have that version yet.
	isWritten
)

// doubtOf returns the doubt about a host with a place, or 0.
func (r rollouts) doubtOf(h *host, place string) doubt {
	if h.Node == nil { // it is unavailable
		return 0
	}
	order, err := resourceversion.CompareResourceVersion(h.Node.ResourceVersion, place)
	switch {
	case err == nil && order > 0:
		return 0
	case r.written.IsStale(h.Node):
		return isWritten
	case err == nil && order == 0:
		return isOpen
	}
	return isBehind
}

// usePlaces sets the places that are taken, and compares them with what the cache has.
func (r rollouts) usePlaces(s *poolScope, p *places) {
	s.places, s.doubts, s.strangers = p, map[string]doubt{}, nil
	if p == nil || p.version == "" { // without a ConfigMap, no host can be told
		return
	}
	hosts := s.byNode()
	for name, version := range p.taken {
		if h := hosts[name]; p.left[name] {
			continue
		} else if h == nil {
			s.strangers = append(s.strangers, name)
		} else if d := r.doubtOf(h, version); d != 0 {
			s.doubts[h.Name()] = d
		}
	}
	slices.Sort(s.strangers)
}

// readPlaces reads the places that are taken, unless this process knows them. If the ConfigMap does not exist, all
// records and Nodes are read once: each host in an update takes a place.
func (r rollouts) readPlaces(ctx context.Context, s *poolScope) error {
	if s.places == nil {
		key := placesKey(s.pool)
		configMap, err := workload.GetIfExists[corev1.ConfigMap](ctx, s.liveNodes, key)
		switch {
		case err != nil:
			return fmt.Errorf("read ConfigMap %s in Cluster %s: %w", key, workload.ClusterOfPool(s.pool), err)
		case configMap != nil:
			r.usePlaces(s, &places{version: configMap.ResourceVersion, taken: configMap.Data, binaryData: configMap.BinaryData})
			r.places.set(client.ObjectKeyFromObject(s.pool), s.places)
		default:
			if err := r.gatherCurrent(ctx, s); err != nil {
				return err
			}
			taken := map[string]string{}
			for _, h := range s.hosts {
				if h.Node != nil && (h.see(s).IsPending || h.Progress() != rollout.Done || rollout.IsCordonedByUpdate(h.Node)) {
					taken[h.Node.Name] = h.Node.ResourceVersion
				}
			}
			r.usePlaces(s, &places{taken: taken})
			return nil
		}
	}
	return r.resolveDoubts(ctx, s)
}

// resolveDoubts reads the Nodes of the places of which the cache has an older version, or no host of the pool. Usually
// there is none.
func (r rollouts) resolveDoubts(ctx context.Context, s *poolScope) error {
	behind := s.which(func(h *host) bool { return s.doubts[h.Name()] == isBehind })
	nodes := make([]*corev1.Node, len(behind))
	err := inParallel(indexes(behind), r.parallel, func(i int) (err error) {
		nodes[i], err = workload.GetIfExists[corev1.Node](ctx, s.liveNodes, client.ObjectKeyFromObject(behind[i].Node))
		return err
	})
	if err != nil {
		return fmt.Errorf("read the Nodes of taken places: %w", err)
	}
	for i, h := range behind {
		place := s.places.taken[h.Node.Name]
		isUnrecorded := h.IsUnrecorded
		h.Host, h.seen = rollout.HostOf(s.pools, h.Config, h.Machine, nodes[i]), nil
		h.IsUnrecorded = isUnrecorded
		delete(s.doubts, h.Name())
		if h.Node != nil && h.Node.ResourceVersion == place {
			s.doubts[h.Name()] = isOpen
		}
	}
	return r.resolveStrangers(ctx, s)
}

func indexes[Item any](items []Item) []int {
	all := make([]int, len(items))
	for i := range all {
		all[i] = i
	}
	return all
}

// withdraw makes it impossible to tell a host at the version of its place: it changes the Node. Another manager that
// has taken the place could have stopped just before it told the host.
func (r rollouts) withdraw(ctx context.Context, s *poolScope, node client.Object) error {
	changed := node.DeepCopyObject().(client.Object)
	annotations.AddAnnotations(changed, map[string]string{agentv1.WithdrawnAnnotation: node.GetResourceVersion()})
	if err := s.nodes.Patch(ctx, changed, status.Locked(node)); err != nil {
		return fmt.Errorf("withdraw the place of Node %s: %w", node.GetName(), err)
	}
	r.written.Record(changed)
	return nil
}

// takePlaces writes that these hosts take places, at the versions of their Nodes that the manager has. It removes the
// places of hosts that are in no update any more. A host whose update failed keeps its place. Without hosts, it only
// writes the places that were not in a ConfigMap, so that they are not gathered again. The error is a conflict if
// another manager has written in the meantime: then the places are read again.
func (r rollouts) takePlaces(ctx context.Context, s *poolScope, hosts []*host) error {
	if len(hosts) == 0 && s.places.version != "" {
		return nil
	}
	known := s.byNode()
	taken := make(map[string]string, len(s.places.taken)+len(hosts))
	maps.Copy(taken, s.places.taken)
	maps.DeleteFunc(taken, func(name, _ string) bool {
		h := known[name]
		if s.places.left[name] {
			return true
		}
		if h == nil || s.doubts[h.Name()] != 0 {
			return false
		}
		seen := h.see(s)
		return !seen.IsActive() && seen.Progress != rollout.Failed
	})
	for _, h := range hosts {
		taken[h.Node.Name] = h.Node.ResourceVersion
	}
	if s.places.version != "" && maps.Equal(taken, s.places.taken) {
		return nil
	}
	name := placesKey(s.pool)
	before := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name, ResourceVersion: s.places.version}}
	before.Data, before.BinaryData = s.places.taken, s.places.binaryData
	after := before.DeepCopy()
	after.Data, after.BinaryData = taken, nil
	var err error
	if s.places.version == "" {
		err = s.nodes.Create(ctx, after)
	} else {
		err = s.nodes.Patch(ctx, after, status.Locked(before))
	}
	key := client.ObjectKeyFromObject(s.pool)
	if err != nil { // also if it is unknown whether the write took effect
		r.places.set(key, nil)
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			err = apierrors.NewConflict(corev1.Resource("configmaps"), before.Name, err)
		}
		return fmt.Errorf("write ConfigMap %s/%s in Cluster %s: %w", before.Namespace, before.Name, workload.ClusterOfPool(s.pool), err)
	}
	s.places = &places{version: after.ResourceVersion, taken: after.Data}
	r.places.set(key, s.places)
	return nil
}
