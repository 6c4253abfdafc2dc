package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/util/exec"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// PoolStatus is the state of a pool among others, as it is printed as JSON. Pool is "" for the hosts of a namespace
// that need a person and are in no pool.
type PoolStatus struct {
	Namespace string `json:"namespace"`
	Pool      string `json:"pool"`
	Cluster   string `json:"cluster"`
	Paused    bool   `json:"paused"`
	// Pinned is true if hosts are to run what spec.configurationName names instead of what the pool renders.
	Pinned bool `json:"pinned"`
	// Configuration is the rendered config that the pool hands out, and Rendered what it renders, which waits while the
	// pool is paused or pinned. target is the one that all hosts are to run.
	Configuration string `json:"configuration"`
	Rendered      string `json:"rendered"`
	target        string
	// Of the Hosts, Updated run what the pool renders, also if a paused pool holds it back, and Away are in an update
	// or have no Node that is Ready in the pool. Failed need a user to act. All but Updated count hosts that have not
	// joined.
	Hosts   int `json:"hosts"`
	Updated int `json:"updated"`
	Away    int `json:"away"`
	Failed  int `json:"failed"`
	// Since is when the pool became ready or stopped being ready.
	Since time.Time `json:"since,omitzero"`
	// Problem is what failed or holds the hosts back, or "". brief is it without what a table has twice.
	Problem string `json:"problem"`
	brief   string
	// States are those of the hosts.
	States []HostStatus `json:"-"`
}

// runFleet prints a line for each pool. The exit code is that of the pool with the worst state.
func (o *statusOptions) runFleet(ctx context.Context, to input.Connection) error {
	cluster, err := to.Open()
	if err != nil {
		return err
	}
	namespace := client.InNamespace(cluster.Namespace)
	if o.all {
		namespace = ""
	}
	pools, configs := &poolv1.MachineConfigPoolList{}, &bootstrapv1.PoolbootConfigList{}
	if err := cluster.List(ctx, pools, namespace); err != nil {
		return fmt.Errorf("list MachineConfigPools: %w", err)
	}
	if err := cluster.List(ctx, configs, namespace); err != nil {
		return fmt.Errorf("list PoolbootConfigs: %w", err)
	}
	statuses, code := Fleet(pools.Items, configs.Items)
	if len(statuses) == 0 {
		none, err := cluster.NoneIn(ctx, string(namespace), "MachineConfigPools")
		if err == nil {
			fmt.Fprintln(o.streams.ErrOut, none)
		}
		if err != nil || o.output.IsText() {
			return err
		}
	}
	view := o.view(o.fleetHeader(), 3, pools.Items...)
	if o.watch {
		all := []client.ListOption{namespace}
		return o.follow(ctx, &follower{cluster: cluster, view: view, namespace: string(namespace), poolsOf: all, hostsOf: all})
	}
	err = view.Show(o.fleetRows(statuses)...)
	o.noteCut(view)
	return errors.Join(err, fleetError(code, ""))
}

// fleetError returns an error with the exit code of Fleet, or nil for 0. The table has the problems.
func fleetError(code int, text string) error {
	if code == 0 {
		return nil
	}
	return exec.CodeExitError{Code: code, Err: errors.New(text)}
}

// Fleet returns the states of pools, each with its hosts, also those that have not joined, and the exit code of the
// worst one. Hosts without a pool that need a person have a state of their own for each namespace.
func Fleet(pools []poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig) ([]PoolStatus, int) {
	statuses, code := []PoolStatus{}, 0
	type place struct{ namespace, cluster, role string }
	placeOf := func(c *bootstrapv1.PoolbootConfig) place {
		return place{c.Namespace, record.ClusterName(c), c.Status.PoolRole}
	}
	by := map[place][]bootstrapv1.PoolbootConfig{}
	for i := range configs {
		if c := &configs[i]; c.DeletionTimestamp.IsZero() {
			by[placeOf(c)] = append(by[placeOf(c)], *c)
		}
	}
	for i := range pools {
		p := &pools[i]
		of := place{p.Namespace, p.Spec.ClusterName, p.Spec.PoolRole}
		ofPool := by[of]
		delete(by, of)
		s, joining := statesOf(p, ofPool)
		status := newPoolStatus(s)
		status.addFailed(ofPool)
		status.States = slices.Insert(s.hosts, len(s.hosts), joining.hosts...)
		statuses = append(statuses, status)
		switch {
		case s.failure() != nil || status.Failed > 0:
			code = cli.ExitFailure
		case s.held() != nil && code == 0:
			code = cli.ExitActionRequired
		}
	}
	rest := slices.DeleteFunc(slices.Clone(configs), func(c bootstrapv1.PoolbootConfig) bool {
		return !c.DeletionTimestamp.IsZero() || by[placeOf(&c)] == nil
	})
	for len(rest) > 0 {
		isHere := func(c bootstrapv1.PoolbootConfig) bool { return c.Namespace == rest[0].Namespace }
		status := PoolStatus{Namespace: rest[0].Namespace}
		status.addFailed(slices.DeleteFunc(slices.Clone(rest), func(c bootstrapv1.PoolbootConfig) bool { return !isHere(c) }))
		if status.Failed > 0 {
			statuses, code = append(statuses, status), cli.ExitFailure
		}
		rest = slices.DeleteFunc(rest, isHere)
	}
	slices.SortFunc(statuses, func(a, b PoolStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pool, b.Pool))
	})
	return statuses, code
}

// addFailed adds the hosts that do not boot until a person acts, and those that are in no pool, which have no line of
// their own.
func (s *PoolStatus) addFailed(configs []bootstrapv1.PoolbootConfig) {
	failed := 0
	for i := range configs {
		if c := &configs[i]; outlook.FindNeedsPerson(c) != nil && (s.Pool == "" || !record.HasJoined(c)) {
			failed++
		}
	}
	if failed == 0 {
		return
	}
	s.Failed += failed
	what := "do not boot"
	if s.Pool == "" {
		what += " or are in no pool"
	}
	if s.Problem != "" {
		s.Problem, s.brief = s.Problem+"; ", s.brief+"; "
	}
	hosts := fmt.Sprintf("hosts that %s: %d, see kubectl poolboot boots -n %s", what, failed, s.Namespace)
	s.Problem, s.brief = s.Problem+hosts, s.brief+hosts
}

func newPoolStatus(s summary) PoolStatus {
	p := s.pool
	status := PoolStatus{Namespace: p.Namespace, Pool: p.Name, Cluster: p.Spec.ClusterName, Paused: p.Spec.IsPaused(), Pinned: p.Spec.ConfigurationName != "", target: rollout.TargetOf(p), Configuration: p.Status.Configuration.Name,
		Rendered: cmp.Or(p.Status.RenderedConfiguration, p.Status.Configuration.Name), Hosts: len(s.hosts) + s.joining, Updated: s.running, Away: s.joining}
	if waitsInPause(p) != "" {
		status.Updated = int(ptr.Deref(p.Status.UpdatedHostCount, 0))
	}
	for _, h := range s.hosts {
		if h.isAway {
			status.Away++
		}
		if h.IsWrong {
			status.Failed++
		}
	}
	if ready := conditions.Get(p, poolv1.ReadyCondition); ready != nil {
		status.Since = ready.LastTransitionTime.Time
	}
	problem := cmp.Or(s.failure(), textError(s.hold()), s.lateDrain(), s.retry()) // what the hosts say now, and not the pool a moment ago
	if host, ok := errors.AsType[hostError](problem); ok {
		status.Problem, status.brief = host.text(host.Message), host.text(host.brief())
	} else if problem != nil {
		status.Problem = strings.TrimPrefix(problem.Error(), describe(p)+": ")
		status.brief = status.Problem
	}
	return status
}

// textError returns an error with a text, or nil without one.
func textError(text string) error {
	if text == "" {
		return nil
	}
	return errors.New(text)
}

// fleetHeader are the columns of the table of pools.
func (o *statusOptions) fleetHeader() []string {
	header := []string{"POOL", "CONFIG", "UPDATED", "AWAY", "FAILED", "SINCE"}
	if o.all {
		header = slices.Insert(header, 0, "NAMESPACE")
	}
	if o.output.Format == cli.FormatWide {
		header = append(header, "CLUSTER")
	}
	return append(header, "PROBLEM")
}

// fleetRows returns the rows of pools.
func (o *statusOptions) fleetRows(statuses []PoolStatus) []cli.Row {
	rows := make([]cli.Row, len(statuses))
	for i, s := range statuses {
		since := ""
		if !s.Since.IsZero() {
			since = duration.HumanDuration(time.Since(s.Since))
		}
		updated := fmt.Sprintf("%d/%d", s.Updated, s.Hosts)
		if s.Paused {
			updated += ", paused"
		}
		if s.Pinned {
			updated += ", pinned"
		}
		cells := []string{s.Pool, s.target, updated, strconv.Itoa(s.Away), strconv.Itoa(s.Failed), since}
		if o.all {
			cells = slices.Insert(cells, 0, s.Namespace)
		}
		if o.output.Format == cli.FormatWide {
			cells = append(cells, s.Cluster)
		}
		problem := s.brief
		if o.output.Format == cli.FormatWide {
			problem = s.Problem
		}
		colors, name := map[string]cli.Color{}, ""
		if s.Pool != "" {
			name = "machineconfigpool." + poolv1.GroupVersion.Group + "/" + s.Pool
		}
		if s.Failed > 0 {
			colors["FAILED"] = cli.Red
		}
		if s.Hosts > 0 && s.Updated == s.Hosts {
			colors["UPDATED"] = cli.Green
		}
		rows[i] = cli.Row{Key: s.Namespace + "\x00" + s.Pool, Object: s, Name: name, Cells: append(cells, problem), Colors: colors}
	}
	return rows
}
