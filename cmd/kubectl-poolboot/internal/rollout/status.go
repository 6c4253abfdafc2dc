package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// statusOptions are those of the command line.
type statusOptions struct {
	streams genericiooptions.IOStreams
	output  cli.Output
	all     bool
	watch   bool
	timeout time.Duration
}

func newStatus(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &statusOptions{streams: streams}
	cmd := &cobra.Command{
		Use:   "status [POOL | -A] [--watch [--timeout DURATION]]",
		Short: "Show how far the hosts of pools are",
		Long: `Show each host of a pool with what it does, the rendered config that it runs, and the one that the pool hands out, and
without --watch also the hosts of the pool that do not boot until you act. SINCE is when the stage of its update began,
or else when the state began. A host that downloads what its update needs is Staging.

Without a POOL, show a line for each pool: the hosts that run what it renders, paused or not, or what rollout undo named
(pinned), those that are in an update or have no Node that is Ready in the pool (AWAY), those that need you to act, also
before they join (FAILED), and the problem. SINCE is how long the pool has been Ready or not, whatever the reasons were.
Such hosts without a pool have a line of their own. The exit code is that of the worst line.

With --watch, print every change until the pool has rendered its MachineConfigs as they were when the command started,
or later, and all hosts run what the pool hands out. Without a POOL, print the changes of all pools until that is so for
each of them, or it failed or is paused.

Exit codes: 0 if all hosts run what the pool renders, and without --watch also while hosts are being updated, or what
fails is retried. 1 if a host does not boot until you act, an update failed or is not possible, an agent does not
answer, a host was changed by hand or is in a stage of its update for too long, a Node does not exist or has not the
labels of one pool, a host without an agent runs another config, the pool cannot be rendered, an update gate cannot be
read, or --timeout expires and nothing below holds. 2 if the pool is paused and something waits, if hosts wait and the
maintenance window or an update gate is closed, an approval is missing, other pools are first, or unavailable hosts take
all places, if all hosts run it but those that spec.updates.exceptions skips, or if a drain takes longer than
spec.updates.drainTimeoutSeconds; --watch waits for all but the pause and the skipped hosts until --timeout expires. 3
with --watch and a POOL if it hands out another config before all hosts run the first.`,
		Example: `  # All pools
  kubectl poolboot rollout status -A

  # The hosts of a pool
  kubectl poolboot rollout status infra -n metal

  # Wait until all hosts are updated
  kubectl poolboot rollout status infra -n metal --watch --timeout 2h

  # Watch all pools
  kubectl poolboot rollout status -A --watch

  # Which hosts still run an earlier agent?
  kubectl poolboot rollout status infra -n metal -o wide`,
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "show all namespaces")
	cli.AddWatchFlag(cmd, &o.watch, "all hosts are updated, or nothing goes on")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "how long --watch waits, for example 30m; 0 for no limit")
	cli.AddCompletion(cmd, "timeout", cobra.NoFileCompletions)
	o.output.AddTableFlag(cmd, cli.FormatName)
	cmd = configureLive(cmd, to, o.run)
	runPool := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case o.timeout != 0 && !o.watch:
			return errors.New("--timeout needs --watch: set both, or leave out --timeout")
		case len(args) == 0:
			return o.runFleet(cmd.Context(), to)
		}
		return runPool(cmd, args)
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case o.all:
			return fmt.Errorf("--all-namespaces and POOL: leave out the flag, or %s", args[0])
		}
		return onePool(cmd, args)
	}
	return cmd
}

func (o *statusOptions) run(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
	view := o.view(o.hostHeader(), 2, *p)
	if o.watch {
		return o.follow(ctx, &follower{cluster: cluster, view: view, only: p, namespace: p.Namespace, poolsOf: []client.ListOption{
			&client.ListOptions{Namespace: p.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", p.Name)}}, hostsOf: configsOf(p)})
	}
	configs, err := listConfigs(ctx, cluster, p)
	if err != nil {
		return err
	}
	s, joining := statesOf(p, configs.Items)
	if err := predictReboots(ctx, cluster, p, configs.Items, s.hosts); err != nil {
		fmt.Fprintln(o.streams.ErrOut, "note: not all reboots are predicted:", err)
	}
	shown := slices.Insert(s.hosts, len(s.hosts), joining.hosts...)
	failure, held := cmp.Or(s.failure(), joining.failure()), s.held()
	if len(shown) > 0 || !o.output.IsText() {
		err = view.Show(o.hostRows(shown)...)
		o.noteCut(view)
	}
	if o.output.IsText() && (failure != nil || held == nil) {
		fmt.Fprintln(o.streams.ErrOut, s)
	}
	return errors.Join(err, cmp.Or(failure, held))
}

func (o *statusOptions) view(header []string, maxLines int, pools ...poolv1.MachineConfigPool) *cli.View {
	const state = len(bootstrapv1.AgentNotAnsweringReason)
	config := 0 // the rendered configs of the pools, also before they have one
	for i := range pools {
		config = max(config, len(pools[i].Name+"@01234567"))
	}
	return &cli.View{Out: o.streams.Out, Output: &o.output, Watch: o.watch, Header: header, MaxLines: maxLines,
		MinWidths: map[string]int{"STATE": len(bootstrapv1.CertificateNotAcceptedReason), "CURRENT": config, "DESIRED": config, "CONFIG": config, "UPDATED": len("100/100, paused"), "SINCE": len(cli.None)},
		MaxWidths: map[string]int{"STATE": state}}
}

// noteCut says how to see what was cut.
func (o *statusOptions) noteCut(view *cli.View) {
	if view.IsCut {
		fmt.Fprintln(o.streams.ErrOut, "Texts that end with … are longer: to see all of them, add -o wide")
	}
}

// statesOf returns the states of the hosts of a pool, and of those that have not joined yet.
func statesOf(p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig) (s, joining summary) {
	joining = summary{pool: p, hosts: newJoiningStatuses(p, configs)}
	s = newSummary(p, newHostStatuses(p, slices.DeleteFunc(slices.Clone(configs), func(c bootstrapv1.PoolbootConfig) bool { return !isIn(p, &c) })))
	nameHolders(p, s.hosts) // --watch would print every host that waits whenever another one is done
	s.joining = len(joining.hosts)
	return s, joining
}

// summary is the state of a rollout.
type summary struct {
	pool  *poolv1.MachineConfigPool
	hosts []HostStatus
	// running hosts run what the pool hands out. updated ones are complete, too. staging ones download it.
	running, updated, staging int
	// joining hosts have not joined yet, and are not among hosts.
	joining int
}

func newSummary(p *poolv1.MachineConfigPool, hosts []HostStatus) summary {
	s := summary{pool: p, hosts: hosts}
	for _, h := range hosts {
		if h.runsDesired() {
			s.running++
		}
		if h.IsUpdated {
			s.updated++
		}
		if h.State == staging {
			s.staging++
		}
	}
	return s
}

func (s summary) String() string {
	text := fmt.Sprintf("%s: %d of %d hosts run %s", describe(s.pool), s.running, len(s.hosts)+s.joining, s.pool.Status.Configuration.Name)
	if s.staging > 0 || s.pool.Status.StagedHostCount > 0 {
		text += fmt.Sprintf("; %d stage their update, %d have staged it", s.staging, s.pool.Status.StagedHostCount)
	}
	switch {
	case !s.pool.Status.Configuration.IsDefined():
		text = describe(s.pool) + ": it hands out no rendered config yet"
	case s.hold() != "":
		text += "; " + s.hold()
	case s.pool.Spec.IsPaused():
		text += "; the pool is paused"
	}
	if pin := rollout.DescribePin(s.pool); pin != "" {
		text += "; " + pin
	}
	return text
}

// isComplete reports whether all hosts run what the pool renders.
func (s summary) isComplete() bool {
	return s.pool.Status.Configuration.IsDefined() && s.updated == len(s.hosts) && waitsInPause(s.pool) == ""
}

// hold returns why no host begins an update, or "" if nothing waits.
func (s summary) hold() string {
	if why := waitsInPause(s.pool); why != "" || !s.isWaiting() {
		return cmp.Or(why, s.describeSkipped())
	}
	blocked := "" // by hosts that are unavailable now, too: the pool follows them
	isUnavailable := func(h HostStatus) bool { return h.isAway || h.IsWrong || h.unavailable != "" }
	if c := conditions.Get(s.pool, poolv1.UpdatedCondition); c != nil && c.Reason == poolv1.RolloutBlockedReason &&
		(slices.ContainsFunc(s.hosts, isUnavailable) || int(s.pool.Status.CapacityHostCount) > len(s.hosts)) {
		blocked = c.Message
	}
	hold := rollout.HoldOf(s.pool, time.Now())
	if slices.ContainsFunc(s.hosts, func(h HostStatus) bool { return h.isWaiting() && hold.Of(h.Node).Why == "" }) { // also if its window is closed
		return cmp.Or(rollout.HoldOfGates(s.pool), blocked)
	}
	return cmp.Or(holdOf(s.pool), blocked)
}

// describeSkipped names the hosts that are skipped, each until when and why, or returns "".
func (s summary) describeSkipped() string {
	var skipped []string
	for _, h := range s.hosts {
		if h.isSkipped {
			skipped = append(skipped, h.name+" is "+h.Exception)
		}
	}
	return excerpt.List(maxOthers, skipped)
}

// isDoneButSkipped reports whether all hosts are updated but those that are skipped, and there are some. The pool shows
// it, too.
func (s summary) isDoneButSkipped() bool {
	return conditions.GetReason(s.pool, poolv1.UpdatedCondition) == poolv1.HostsSkippedReason && s.updated < len(s.hosts) &&
		!slices.ContainsFunc(s.hosts, func(h HostStatus) bool { return !h.IsUpdated && !h.isSkipped })
}

// isWaiting reports whether a host is to be updated, and not skipped.
func (s summary) isWaiting() bool { return slices.ContainsFunc(s.hosts, HostStatus.isWaiting) }

// isWaiting reports whether the host is to be updated, and not skipped.
func (h HostStatus) isWaiting() bool {
	return !h.IsUpdated && !h.isSkipped && (!h.IsWrong && !h.isRetrying || !h.runsDesired())
}

// failure returns what a user must correct, or nil.
func (s summary) failure() error {
	return s.failureOf(func(h HostStatus) bool { return h.IsWrong })
}

// failureOf returns what a user must correct in the pool, or in the first of some of its hosts, or nil.
func (s summary) failureOf(isFailed func(HostStatus) bool) error {
	if c := conditions.Get(s.pool, poolv1.RenderDegradedCondition); c != nil && c.Status == metav1.ConditionTrue {
		return fmt.Errorf("%s: %s", describe(s.pool), c.Message)
	}
	if c := conditions.Get(s.pool, poolv1.UpdateGatesOpenCondition); c != nil && c.Reason == poolv1.GateUnreadableReason && rollout.HoldOfGates(s.pool) != "" && s.isWaiting() {
		return fmt.Errorf("%s: %s", describe(s.pool), c.Message)
	}
	return s.first(isFailed)
}

// ToDo returns what a person must do for a host that is in a pool, as status says it. A pause, a closed window, a
// closed gate, a drain and what is retried require nothing.
func ToDo(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig) (tasks []string) {
	if !isIn(p, config) {
		return nil
	}
	h := newHostStatus(p, config)
	if err := newSummary(p, []HostStatus{h}).failureOf(func(HostStatus) bool { return false }); err != nil {
		tasks = append(tasks, err.Error())
	}
	if h.IsWrong {
		tasks = append(tasks, h.Message)
	}
	return tasks
}

// first returns what the first of some hosts does, or nil.
func (s summary) first(isOne func(HostStatus) bool) error {
	if i := slices.IndexFunc(s.hosts, isOne); i >= 0 {
		return hostError{s.hosts[i], s.pool.Namespace}
	}
	return nil
}

// hostError is what a host does that a user must correct or wait for.
type hostError struct {
	HostStatus
	namespace string
}

// Error says where the message is: it can have many lines, and the table has its beginning.
func (e hostError) Error() string {
	command := "kubectl poolboot boots -n " + e.namespace
	if e.Node != "" {
		command = fmt.Sprintf("kubectl poolboot explain node %s -n %s", e.Node, e.namespace)
	}
	return fmt.Sprintf("host %s: %s: see %s", e.name, e.State, command)
}

// text returns a message, too.
func (e hostError) text(message string) string {
	return fmt.Sprintf("host %s: %s: %s", e.name, e.State, message)
}

// held returns what holds the hosts back: a drain that takes too long, or while no host is being updated, a pause, the
// maintenance window or a gate. It returns nil if nothing does.
func (s summary) held() error {
	switch late := s.lateDrain(); {
	case late != nil:
		return cli.ActionRequired(late)
	case s.hold() == "" || s.isUpdating():
		return nil
	}
	return cli.ActionRequired(errors.New(s.String()))
}

// lateDrain returns the first drain that takes longer than the pool allows, or nil.
func (s summary) lateDrain() error {
	return s.first(func(h HostStatus) bool { return h.isDrainLate })
}

// retry returns what the first host does whose update fails and is retried, or nil.
func (s summary) retry() error {
	return s.first(func(h HostStatus) bool { return h.isRetrying })
}

// isUpdating reports whether a host is being updated.
func (s summary) isUpdating() bool {
	return slices.ContainsFunc(s.hosts, func(h HostStatus) bool { return h.IsInUpdate })
}
