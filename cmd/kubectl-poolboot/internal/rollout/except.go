package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// exceptOptions are those of the command line.
type exceptOptions struct {
	skip, ignoreWindow, remove bool
	until, reason              string
}

func newExcept(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &exceptOptions{}
	cmd := &cobra.Command{
		Use:   "except POOL NODE (--skip | --ignore-window) --until TIME --reason TEXT | --remove",
		Short: "Make an exception in the updates of a pool for one host",
		Long: `Make an exception in the updates of a pool for one host, by its entry in spec.updates.exceptions of the pool. An entry
that exists is replaced, and those of other hosts stay.

With --skip, the host begins no update before the time, and others do not wait for it. With --ignore-window, it can
begin updates while the maintenance window is closed, under all other limits. A host that has begun an update completes
it. After the time, the entry does nothing.

Where files in Git are applied to the cluster, set spec.updates.exceptions there instead.`,
		Example: `  # Leave out a host until its part was replaced
  kubectl poolboot rollout except infra rack1-u12 -n metal --skip --until 2026-12-24T06:00:00Z --reason broken-disk

  # Update one host now, although the window is closed
  kubectl poolboot rollout except infra rack1-u12 -n metal --ignore-window --until 4h --reason trial

  # Remove the exception
  kubectl poolboot rollout except infra rack1-u12 -n metal --remove`,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completePoolAndNode(to),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return errors.New("the arguments are a MachineConfigPool and a Node of it: name both, as kubectl poolboot rollout status POOL lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			exception, err := o.exception(args[1], time.Now())
			if err != nil {
				return err
			}
			cluster, p, err := openPool(cmd.Context(), to, args[0])
			if err != nil {
				return err
			}
			if o.remove {
				return removeException(cmd.Context(), streams, cluster, p, args[1])
			}
			return setException(cmd.Context(), streams, cluster, p, exception)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.skip, "skip", false, "begin no update of the host, and let no other one wait for it")
	flags.BoolVar(&o.ignoreWindow, "ignore-window", false, "let the host begin updates while the maintenance window is closed")
	flags.BoolVar(&o.remove, "remove", false, "remove the exception")
	flags.StringVar(&o.until, "until", "", "end of the exception: a duration such as 4h, or a time such as 2026-12-24T06:00:00Z")
	flags.StringVar(&o.reason, "reason", "", "reason of the exception, for everyone who can read the pool")
	for _, name := range []string{"until", "reason"} {
		cli.AddCompletion(cmd, name, cobra.NoFileCompletions)
	}
	cmd.MarkFlagsMutuallyExclusive("skip", "ignore-window", "remove")
	cmd.MarkFlagsOneRequired("skip", "ignore-window", "remove")
	cmd.MarkFlagsMutuallyExclusive("remove", "until")
	cmd.MarkFlagsMutuallyExclusive("remove", "reason")
	input.AddConnectionFlags(cmd, to)
	return cmd
}

// exception returns the exception that the command line describes for a Node. It is empty if one is to be removed.
func (o *exceptOptions) exception(node string, now time.Time) (e poolv1.UpdateException, err error) {
	if o.remove {
		return e, nil
	}
	if strings.TrimSpace(o.reason) == "" {
		return e, errors.New("--reason: others see why the exception exists until it ends: set it")
	}
	until, err := parseUntil(o.until, now)
	if err != nil {
		return e, err
	}
	e = poolv1.UpdateException{Node: node, Action: poolv1.ExceptionSkip, Until: &metav1.Time{Time: until}, Reason: o.reason}
	if o.ignoreWindow {
		e.Action = poolv1.ExceptionIgnoreWindow
	}
	return e, nil
}

// untilRemedy says what --until can be.
const untilRemedy = "set a duration such as 4h, or a time in the format of RFC 3339"

// parseUntil returns a time from now on, in whole seconds.
func parseUntil(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, errors.New("--until: an exception must have an end: " + untilRemedy)
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		left, err := time.ParseDuration(text)
		if err != nil {
			return time.Time{}, fmt.Errorf("--until %s: it is neither a duration nor a time: %s", text, untilRemedy)
		}
		until = now.Add(left)
	}
	until = until.UTC().Truncate(time.Second)
	if !until.After(now) {
		return time.Time{}, fmt.Errorf("--until %s: it is in the past, so the exception would do nothing: choose a later time", text)
	}
	return until, nil
}

// changeExceptions changes the exceptions of a pool. It repeats that with the current ones if somebody else has changed
// the pool meanwhile. change returns false if there is nothing to write.
func changeExceptions(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool, change func(*poolv1.UpdateSettings) bool) error {
	isFirst := true
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if !isFirst {
			if err := cluster.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
		}
		isFirst = false
		before := p.DeepCopy()
		if !change(&p.Spec.Updates) {
			return nil
		}
		return cluster.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("kubectl-poolboot"))
	})
	if err != nil {
		return fmt.Errorf("patch spec.updates.exceptions of %s: %w", describe(p), err)
	}
	return nil
}

func setException(ctx context.Context, streams genericiooptions.IOStreams, cluster *input.Cluster, p *poolv1.MachineConfigPool, e poolv1.UpdateException) error {
	err := changeExceptions(ctx, cluster, p, func(s *poolv1.UpdateSettings) bool {
		if i := slices.IndexFunc(s.Exceptions, func(other poolv1.UpdateException) bool { return other.Node == e.Node }); i >= 0 {
			s.Exceptions[i] = e
		} else {
			s.Exceptions = append(s.Exceptions, e)
		}
		return true
	})
	if err != nil {
		return err
	}
	configs, err := listHosts(ctx, cluster, p)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(configs, func(c bootstrapv1.PoolbootConfig) bool { return c.Status.NodeRef.Name == e.Node })
	text := fmt.Sprintf("host %s of %s: %s", e.Node, describe(p), rollout.DescribeException(&e))
	switch {
	case i < 0:
		if err := cli.Say(streams.ErrOut, "note: %s has no running host with the Node %s now: the exception does nothing before it has one", describe(p), e.Node); err != nil {
			return err
		}
	case configs[i].Status.Update.Stage != "":
		text += ". It completes the update that it has begun"
	case e.Action == poolv1.ExceptionIgnoreWindow:
		if why := holdOn(p, e.Node, rollout.HoldOf(p, time.Now())); why != "" {
			text += ". It begins no update yet: " + why
		}
	}
	return cli.Say(streams.Out, "%s", text)
}

func removeException(ctx context.Context, streams genericiooptions.IOStreams, cluster *input.Cluster, p *poolv1.MachineConfigPool, node string) error {
	var had bool
	err := changeExceptions(ctx, cluster, p, func(s *poolv1.UpdateSettings) bool {
		n := len(s.Exceptions)
		s.Exceptions = slices.DeleteFunc(s.Exceptions, func(e poolv1.UpdateException) bool { return e.Node == node })
		had = len(s.Exceptions) < n
		return had
	})
	switch {
	case err != nil:
		return err
	case !had:
		return cli.Say(streams.Out, "%s has no exception for the Node %s", describe(p), node)
	}
	return cli.Say(streams.Out, "host %s of %s is updated as the others", node, describe(p))
}

// completePoolAndNode completes a pool, and then the Nodes of its hosts.
func completePoolAndNode(to input.Connection) cobra.CompletionFunc {
	pools := input.CompleteFromCluster(to, input.PoolNames)
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return pools(cmd, args, typed)
		case 1:
			return input.CompleteFromCluster(to, func(ctx context.Context, from client.Reader, namespace string) (names []string, err error) {
				p := &poolv1.MachineConfigPool{}
				if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: args[0]}, p); err != nil {
					return nil, err
				}
				return nodesOfHosts(ctx, from, p)
			})(cmd, args, typed)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// nodesOfHosts returns the names of the Nodes of the hosts of a pool.
func nodesOfHosts(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) (names []string, err error) {
	configs, err := listHosts(ctx, from, p)
	for _, h := range newHostStatuses(p, configs) {
		names = append(names, h.Node)
	}
	return names, err
}

// exceptionsOf returns the exceptions of a pool with these hosts.
func exceptionsOf(of *poolv1.MachineConfigPool, members []member) (exceptions []exception) {
	now := time.Now()
	expired := rollout.ExpiredExceptions(of, now)
	unused := rollout.UnusedExceptions(of, func(node string) bool {
		return slices.ContainsFunc(members, func(m member) bool { return m.node == node })
	}, now)
	for _, e := range of.Spec.Updates.Exceptions {
		described := exception{Node: e.Node, Action: e.Action, Until: ptr.Deref(e.Until, metav1.Time{}).Time, Reason: rollout.Clean(e.Reason, agentv1.MaxReason)}
		switch {
		case slices.Contains(expired, e.Node):
			described.Problem = "it has expired: remove it"
		case slices.Contains(unused, e.Node):
			described.Problem = "the pool has no host with this Node: correct or remove it"
		}
		exceptions = append(exceptions, described)
	}
	return exceptions
}
