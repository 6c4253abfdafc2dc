package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// follower prints the hosts of a pool whenever they change. It keeps them as it last printed them.
type follower struct {
	*statusOptions
	cluster *input.Cluster
	pool    *poolv1.MachineConfigPool
	configs map[string]bootstrapv1.PoolbootConfig
	printed map[string]HostStatus
	table   *cli.Table
	// hasRendered is true once the pool has rendered what existed when the command started. Before that, its hosts say
	// nothing about it.
	hasRendered bool
	// target is what the pool handed out then.
	target string
	// told is what was seen of each host when it was told what to run now. again fires when a failure from before that
	// counts anyway.
	told  map[string]toldHost
	again <-chan time.Time
}

// toldHost is a host when it was told what to run. time is 0 for one that had answered before the command started.
type toldHost struct {
	revision, message string
	time              time.Time
}

// answerPatience is how long what failed before a host was told to run something else does not end a watch. The agent
// answers within seconds if it runs.
var answerPatience = time.Minute

// exitSuperseded is the exit code of a watch if the pool hands out another config than the one that it waits for.
const exitSuperseded = 3

// errComplete ends a watch: all hosts are updated.
var errComplete = errors.New("complete")

// follow prints the hosts of a pool and their changes until all hosts run what the pool hands out.
func (o *statusOptions) follow(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	f := &follower{statusOptions: o, cluster: cluster, pool: p, printed: map[string]HostStatus{}, told: map[string]toldHost{}, table: o.newTable()}
	for {
		err := f.watch(ctx)
		switch {
		case errors.Is(err, errComplete):
			_, err := fmt.Fprintln(o.streams.ErrOut, f.summary())
			return err
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			s := f.summary()
			err := fmt.Errorf("--timeout %s expired: %s", o.timeout, s)
			if failure := s.failure(); failure != nil {
				return fmt.Errorf("%w; %w", err, failure)
			}
			if s.held() != nil {
				err = cli.ActionRequired(err)
			}
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

// watch lists the pool and its hosts, and follows them. It returns nil if a watch ends, for example because its
// resource version is too old.
func (f *follower) watch(ctx context.Context) error {
	pools := &poolv1.MachineConfigPoolList{}
	only := &client.ListOptions{Namespace: f.pool.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", f.pool.Name)}
	if err := f.cluster.List(ctx, pools, only); err != nil {
		return fmt.Errorf("list MachineConfigPools: %w", err)
	}
	at := slices.IndexFunc(pools.Items, func(p poolv1.MachineConfigPool) bool { return p.Name == f.pool.Name })
	if at < 0 {
		return f.deleted()
	}
	f.pool = &pools.Items[at]
	configs, version, err := listHosts(ctx, f.cluster, f.pool)
	if err != nil {
		return err
	}
	f.configs = map[string]bootstrapv1.PoolbootConfig{}
	for _, c := range configs {
		f.configs[c.Name] = c
	}
	if err := f.show(ctx); err != nil {
		return err
	}
	poolChanges, err := f.changes(ctx, pools.ResourceVersion, &poolv1.MachineConfigPoolList{}, only)
	if err != nil {
		return err
	}
	defer poolChanges.Stop()
	hostChanges, err := f.changes(ctx, version, &bootstrapv1.PoolbootConfigList{}, configsOf(f.pool)...)
	if err != nil {
		return err
	}
	defer hostChanges.Stop()
	for {
		var event watch.Event
		var open bool
		select {
		case event, open = <-poolChanges.ResultChan():
		case event, open = <-hostChanges.ResultChan():
		case <-f.again:
			if err := f.show(ctx); err != nil {
				return err
			}
			continue
		}
		if !open {
			return nil
		}
		if isOver, err := f.apply(event); err != nil || isOver {
			return err
		}
		if err := f.show(ctx); err != nil {
			return err
		}
	}
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
		if event.Type == watch.Deleted {
			return false, f.deleted()
		}
		f.pool = object
	case *bootstrapv1.PoolbootConfig:
		if event.Type == watch.Deleted || !isIn(f.pool, object) {
			delete(f.configs, object.Name)
		} else {
			f.configs[object.Name] = *object
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
	return fmt.Errorf("%s was deleted", describe(f.pool))
}

func (f *follower) summary() summary {
	configs := make([]bootstrapv1.PoolbootConfig, 0, len(f.configs))
	for _, c := range f.configs {
		configs = append(configs, c)
	}
	return newSummary(f.pool, newHostStatuses(f.pool, configs))
}

// show prints the hosts that have changed. Its error is errComplete, or why the rollout does not go on.
func (f *follower) show(ctx context.Context) error {
	s := f.summary()
	var changed []HostStatus
	for _, h := range s.hosts {
		f.observe(h)
		if last, ok := f.printed[h.PoolbootConfig]; !ok || !last.isSame(h) {
			f.printed[h.PoolbootConfig] = h
			changed = append(changed, h)
		}
	}
	if len(changed) > 0 {
		if err := printHosts(f.table, changed, true); err != nil {
			return err
		}
	}
	if !f.hasRendered {
		var err error
		if f.hasRendered, err = hasRendered(ctx, f.cluster, f.pool); err != nil || !f.hasRendered {
			return err
		}
		f.target = f.pool.Status.Configuration.Name
	}
	switch err := s.failureOf(f.isStuck); {
	case err != nil:
		return err
	case s.isComplete() && int(ptr.Deref(f.pool.Status.UpdatedHostCount, int32(len(s.hosts)))) >= len(s.hosts): // the pool shows it, too
		return errComplete
	case f.pool.Status.Configuration.Name != f.target:
		return exec.CodeExitError{Code: exitSuperseded, Err: fmt.Errorf("%s hands out %s in place of %s: run the command again to follow it",
			describe(f.pool), f.pool.Status.Configuration.Name, f.target)}
	case f.pool.Spec.IsPaused() && !s.isUpdating():
		return s.held()
	}
	return nil
}

// observe notes when a host is told to run something else.
func (f *follower) observe(h HostStatus) {
	last, known := f.told[h.PoolbootConfig]
	if known && last.revision == h.told {
		return
	}
	told := toldHost{revision: h.told, message: h.Message}
	if known || h.isUnanswered {
		told.time = time.Now()
	}
	f.told[h.PoolbootConfig] = told
}

// isStuck reports whether a host needs a user to act before it is updated. A Node that is not Ready can become Ready,
// and what failed before the host is told to run something else can work with that.
func (f *follower) isStuck(h HostStatus) bool {
	if !h.IsWrong || h.State == bootstrapv1.NodeNotReadyReason || h.State == bootstrapv1.UnitsFailingReason && !h.runsDesired() {
		return false
	}
	told := f.told[h.PoolbootConfig]
	left := answerPatience - time.Since(told.time)
	if left <= 0 || h.Message != told.message && !h.isUnanswered {
		return true
	}
	f.again = time.After(left)
	return false
}

// hasRendered reports whether the status of a pool describes its spec and the MachineConfigs as they are now. It reads
// what exists, so it also knows of a change a moment ago. Of a pool whose manager does not record what it rendered, or
// can't find it, nothing better is known.
func hasRendered(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) (bool, error) {
	if p.Status.ObservedGeneration < p.Generation {
		return false, nil
	}
	if p.Status.InputsHash == "" {
		return true, nil
	}
	pools, err := poolsOfCluster(ctx, from, p)
	if err != nil {
		return false, err
	}
	configs := &poolv1.MachineConfigList{}
	if err := from.List(ctx, configs, client.InNamespace(p.Namespace)); err != nil {
		return false, fmt.Errorf("list MachineConfigs: %w", err)
	}
	id, err := pool.InputsID(p.Spec.PoolRole, pools, configs.Items)
	return err == nil && id == p.Status.InputsHash, nil
}
