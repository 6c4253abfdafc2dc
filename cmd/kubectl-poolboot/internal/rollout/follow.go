package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// follower prints the pools of a namespace or of all, or the hosts of one pool, whenever they change.
type follower struct {
	*statusOptions
	cluster *input.Cluster
	view    *cli.View
	// only is the pool whose hosts are printed, or nil.
	only *poolv1.MachineConfigPool
	// namespace is that of the pools, or "" for all. poolsOf selects them, and hostsOf their PoolbootConfigs.
	namespace        string
	poolsOf, hostsOf []client.ListOption

	pools   map[client.ObjectKey]*followedPool
	configs map[client.ObjectKey]*bootstrapv1.PoolbootConfig
	// keys are those of the rows that are printed.
	keys sets.Set[string]
	// again fires when a failure counts that did not count yet.
	again <-chan time.Time
}

// fleetInterval is the shortest time between two looks at all pools.
const fleetInterval = time.Second

// follow prints states and their changes until all hosts run what their pools hand out, or no pool goes on.
func (o *statusOptions) follow(ctx context.Context, f *follower) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	f.statusOptions = o
	for {
		err := f.watch(ctx)
		if err != nil || ctx.Err() != nil {
			o.noteCut(f.view)
		}
		switch {
		case errors.Is(err, errComplete):
			if f.only == nil {
				return nil
			}
			_, err := fmt.Fprintln(o.streams.ErrOut, f.summary(f.pools[client.ObjectKeyFromObject(f.only)]))
			return err
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return f.expired()
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// expired returns the error of a watch that --timeout ended.
func (f *follower) expired() error {
	var left []string
	for key, p := range f.pools {
		s := f.summary(p)
		if !s.isComplete() {
			left = append(left, key.String())
		}
		if f.only == nil {
			continue
		}
		err := fmt.Errorf("--timeout %s expired: %s", f.timeout, s)
		if failure := cmp.Or(s.failure(), s.retry()); failure != nil {
			return fmt.Errorf("%w; %w", err, failure)
		}
		if s.held() != nil {
			err = cli.ActionRequired(err)
		}
		return err
	}
	slices.Sort(left)
	_, code := f.fleet()
	return fleetError(cmp.Or(code, cli.ExitFailure), fmt.Sprintf("--timeout %s expired: %d of %d pools are not updated: %s",
		f.timeout, len(left), len(f.pools), excerpt.List(maxOthers, left)))
}

// watch lists the pools and their hosts, and follows them. It returns nil if a watch ends, for example because its
// resource version is too old.
func (f *follower) watch(ctx context.Context) error {
	pools, configs := &poolv1.MachineConfigPoolList{}, &bootstrapv1.PoolbootConfigList{}
	if err := f.cluster.List(ctx, pools, f.poolsOf...); err != nil {
		return fmt.Errorf("list MachineConfigPools: %w", err)
	}
	if err := f.cluster.List(ctx, configs, f.hostsOf...); err != nil {
		return fmt.Errorf("list PoolbootConfigs: %w", err)
	}
	known := f.pools
	f.pools, f.configs = map[client.ObjectKey]*followedPool{}, map[client.ObjectKey]*bootstrapv1.PoolbootConfig{}
	for i := range pools.Items {
		f.add(&pools.Items[i], known)
	}
	if f.only != nil && len(f.pools) == 0 {
		return f.deleted()
	}
	for i := range configs.Items {
		f.configs[client.ObjectKeyFromObject(&configs.Items[i])] = &configs.Items[i]
	}
	if err := f.show(ctx); err != nil {
		return err
	}
	poolChanges, err := f.changes(ctx, pools.ResourceVersion, &poolv1.MachineConfigPoolList{}, f.poolsOf...)
	if err != nil {
		return err
	}
	defer poolChanges.Stop()
	hostChanges, err := f.changes(ctx, configs.ResourceVersion, &bootstrapv1.PoolbootConfigList{}, f.hostsOf...)
	if err != nil {
		return err
	}
	defer hostChanges.Stop()
	var due <-chan time.Time
	for {
		event, open := watch.Event{}, true
		select {
		case event, open = <-poolChanges.ResultChan():
		case event, open = <-hostChanges.ResultChan():
		case <-due:
			due = nil
		case <-f.again:
		case <-f.view.Refresh():
		}
		if !open {
			return nil
		}
		if event.Type != "" {
			if isOver, err := f.apply(event); err != nil || isOver {
				return err
			}
			if f.only == nil { // many hosts change together
				if due == nil {
					due = time.After(fleetInterval)
				}
				continue
			}
		}
		if err := f.show(ctx); err != nil {
			return err
		}
	}
}

// add adds a pool, or what a known one is now.
func (f *follower) add(p *poolv1.MachineConfigPool, known map[client.ObjectKey]*followedPool) {
	key := client.ObjectKeyFromObject(p)
	if f.only != nil && key != client.ObjectKeyFromObject(f.only) {
		return
	}
	if f.pools[key] = known[key]; f.pools[key] == nil {
		f.pools[key] = &followedPool{told: map[string]toldHost{}}
	}
	f.pools[key].MachineConfigPool = p
}

// changes watches the objects of a list.
func (f *follower) changes(ctx context.Context, version string, list client.ObjectList, selection ...client.ListOption) (*watchtools.RetryWatcher, error) {
	return watchtools.NewRetryWatcherWithContext(ctx, version, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return f.cluster.Watch(ctx, list, append(slices.Clone(selection), &client.ListOptions{Raw: &options})...)
		},
	})
}

// apply records a change. It returns true if the watch is over and everything must be listed again.
func (f *follower) apply(event watch.Event) (isOver bool, err error) {
	switch object := event.Object.(type) {
	case *poolv1.MachineConfigPool:
		switch {
		case event.Type != watch.Deleted:
			f.add(object, f.pools)
		case f.only != nil:
			return false, f.deleted()
		default:
			delete(f.pools, client.ObjectKeyFromObject(object))
		}
	case *bootstrapv1.PoolbootConfig:
		if f.configs[client.ObjectKeyFromObject(object)] = object; event.Type == watch.Deleted {
			delete(f.configs, client.ObjectKeyFromObject(object))
		}
	default:
		if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return false, err
		}
		return true, nil
	}
	return false, nil
}

func (f *follower) deleted() error {
	return fmt.Errorf("%s was deleted", describe(f.only))
}

// summary returns the state of a pool.
func (f *follower) summary(p *followedPool) summary {
	var configs []bootstrapv1.PoolbootConfig
	for _, c := range f.configs {
		if c.Namespace == p.Namespace && record.ClusterName(c) == p.Spec.ClusterName && isIn(p.MachineConfigPool, c) {
			configs = append(configs, *c)
		}
	}
	return newSummary(p.MachineConfigPool, newHostStatuses(p.MachineConfigPool, configs))
}

// fleet returns the states of the pools, and the exit code of the worst one.
func (f *follower) fleet() ([]PoolStatus, int) {
	pools, configs := make([]poolv1.MachineConfigPool, 0, len(f.pools)), make([]bootstrapv1.PoolbootConfig, 0, len(f.configs))
	for _, p := range f.pools {
		pools = append(pools, *p.MachineConfigPool)
	}
	for _, c := range f.configs {
		configs = append(configs, *c)
	}
	return Fleet(pools, configs)
}

// show prints what has changed. Its error is errComplete, or why nothing goes on.
func (f *follower) show(ctx context.Context) error {
	summaries := map[*followedPool]summary{}
	var rows []cli.Row
	for _, p := range f.pools {
		s := f.summary(p)
		for _, h := range s.hosts {
			p.observe(h)
		}
		summaries[p], rows = s, f.hostRows(s.hosts)
	}
	code := 0
	if f.only == nil {
		var statuses []PoolStatus
		statuses, code = f.fleet()
		rows = f.fleetRows(statuses)
	}
	if err := f.print(rows); err != nil {
		return err
	}
	if err := f.noteRendered(ctx); err != nil {
		return err
	}
	var end error
	goesOn, left := false, time.Duration(0)
	for p, s := range summaries {
		if f.only == nil {
			p.target = p.Status.Configuration.Name
		}
		end = p.end(s)
		goesOn = goesOn || end == nil
		if left == 0 || p.left > 0 && p.left < left {
			left = p.left
		}
	}
	if f.again = nil; left > 0 {
		f.again = time.After(left)
	}
	switch {
	case goesOn:
		return nil
	case f.only != nil:
		return end
	case code == 0:
		return errComplete
	}
	return fleetError(code, "")
}

// print prints the rows that have changed, and forgets those that are gone.
func (f *follower) print(rows []cli.Row) error {
	keys := sets.New[string]()
	for _, r := range rows {
		keys.Insert(r.Key)
	}
	for gone := range f.keys.Difference(keys) {
		f.view.Forget(gone)
	}
	f.keys = keys
	return f.view.Show(rows...)
}

// noteRendered finds the pools whose status describes their spec and the MachineConfigs as they are now. It reads what
// exists, so it also knows of a change a moment ago. A pool without a Cluster never describes them.
func (f *follower) noteRendered(ctx context.Context) error {
	pools, configs := &poolv1.MachineConfigPoolList{}, &poolv1.MachineConfigList{}
	for _, p := range f.pools {
		if p.hasRendered || p.isBehind() {
			continue
		}
		if conditions.GetReason(p.MachineConfigPool, poolv1.RenderDegradedCondition) != poolv1.ClusterNotFoundReason {
			if len(pools.Items) == 0 {
				if err := f.cluster.List(ctx, pools, client.InNamespace(f.namespace)); err != nil {
					return fmt.Errorf("list MachineConfigPools: %w", err)
				}
				if err := f.cluster.List(ctx, configs, client.InNamespace(f.namespace)); err != nil {
					return fmt.Errorf("list MachineConfigs: %w", err)
				}
			}
			ofCluster := slices.DeleteFunc(slices.Clone(pools.Items), func(other poolv1.MachineConfigPool) bool {
				return other.Namespace != p.Namespace || other.Spec.ClusterName != p.Spec.ClusterName
			})
			inNamespace := slices.DeleteFunc(slices.Clone(configs.Items), func(c poolv1.MachineConfig) bool { return c.Namespace != p.Namespace })
			if id, _ := pool.InputsID(p.Spec.PoolRole, ofCluster, inNamespace); id != p.Status.InputsHash { // "" if they can't be found
				continue
			}
		}
		p.hasRendered, p.target = true, p.Status.Configuration.Name
	}
	return nil
}
