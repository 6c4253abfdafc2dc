package rollout

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// revision is a rendered config of a pool, as it is printed as JSON.
type revision struct {
	Name string `json:"name"`
	// HandedOutTime is when the pool began to hand it out. It is absent if that is not recorded.
	HandedOutTime time.Time `json:"handedOutTime,omitzero"`
	// HandedOut is true for the one that the pool hands out.
	HandedOut bool `json:"handedOut"`
	// Waits is true for the one that hosts are to run after the one that the pool hands out.
	Waits bool `json:"waits"`
	// Running are the Nodes of the hosts that run it, Told those of the hosts that are told to run it, and Failed those
	// of both whose update failed.
	Running []string `json:"running"`
	Told    []string `json:"told"`
	Failed  []string `json:"failed,omitempty"`
	// Changes are the entries that differ from the config before it, those that the pool recorded or all; null if they
	// are not known. ChangeCount is how many there are.
	Changes     []string `json:"changes"`
	ChangeCount int      `json:"changeCount"`
}

func newHistory(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "history POOL",
		Short: "List the rendered configs of a pool",
		Long: `List the last rendered configs that a pool handed out, in this order: when, which hosts run each of them and are told
to run it, and which entries were added (+), changed (~) and removed (-) since the config before it. A config that was
handed out again is listed again. Those that exist and were not handed out, as in a paused pool, are listed by the time
of their creation.`,
		Example: `  # What the pool handed out, and which hosts run it
  kubectl poolboot rollout history infra -n metal`,
	}
	output.AddTableFlag(cmd)
	return configureLive(cmd, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		revisions, err := listRevisions(ctx, cluster, p)
		if err != nil {
			return err
		}
		if len(revisions) == 0 && output.IsText() {
			_, err := fmt.Fprintf(streams.ErrOut, "%s has no rendered config: see its conditions\n", describe(p))
			return err
		}
		return output.Print(streams.Out, revisions, func(out io.Writer) error {
			return printRevisions(out, output.Format == cli.FormatWide, revisions)
		})
	})
}

// listRevisions returns what a pool handed out, in this order, with the rendered configs that it did not hand out in
// between, by their age.
func listRevisions(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) ([]revision, error) {
	configs, err := listRendered(ctx, cluster, p)
	if err != nil {
		return nil, err
	}
	hosts, err := listHosts(ctx, cluster, p)
	if err != nil {
		return nil, err
	}
	times, specs := map[*revision]time.Time{}, map[string]*poolv1.MachineConfigSpec{}
	var listed []*revision
	add := func(name string, at time.Time) *revision {
		r := &revision{Name: name, Running: []string{}, Told: []string{}}
		listed, times[r] = append(listed, r), at
		return r
	}
	last := map[string]*revision{}
	var latest time.Time
	for _, h := range p.Status.History {
		if h.StartTime.After(latest) { // the clock of another manager can be behind
			latest = h.StartTime.Time
		}
		r := add(h.Name, latest)
		if last[h.Name], r.HandedOutTime = r, h.StartTime.Time; h.ChangeCount != nil {
			r.Changes, r.ChangeCount = append([]string{}, h.Changes...), int(*h.ChangeCount)
		}
	}
	for i := range configs {
		c := &configs[i]
		if specs[c.Name] = &c.Spec; last[c.Name] == nil {
			last[c.Name] = add(c.Name, c.CreationTimestamp.Time)
		}
	}
	if current := last[p.Status.Configuration.Name]; current != nil {
		current.HandedOut = true
	}
	if target := last[p.Status.Prediction.Configuration]; target != nil {
		target.Waits = !target.HandedOut
	}
	for _, h := range hosts {
		if r := last[h.Status.Boot.ServedConfiguration.Name]; r != nil {
			r.Running = append(r.Running, h.Status.NodeRef.Name)
		}
		if r := last[h.Status.Update.Desired.Name]; r != nil && r != last[h.Status.Boot.ServedConfiguration.Name] {
			r.Told = append(r.Told, h.Status.NodeRef.Name)
		}
		reason := conditions.GetReason(&h, bootstrapv1.UpdatedCondition)
		if r := last[h.Status.Update.Desired.Name]; r != nil && (reason == bootstrapv1.UpdateDegradedReason || reason == bootstrapv1.UpdateUnreconcilableReason) {
			r.Failed = append(r.Failed, h.Status.NodeRef.Name)
		}
	}
	slices.SortStableFunc(listed, func(a, b *revision) int { return times[a].Compare(times[b]) })
	revisions := make([]revision, len(listed))
	for i, r := range listed {
		slices.Sort(r.Running)
		slices.Sort(r.Told)
		if i > 0 && r.Changes == nil && specs[listed[i-1].Name] != nil && specs[r.Name] != nil {
			if r.Changes, err = pool.ListChanges(*specs[listed[i-1].Name], *specs[r.Name]); err != nil {
				return nil, fmt.Errorf("MachineConfigs %s and %s of namespace %s: %w", listed[i-1].Name, r.Name, p.Namespace, err)
			}
			r.ChangeCount = len(r.Changes)
		}
		revisions[i] = *r
	}
	return revisions, nil
}

// listRendered lists the rendered configs of a pool.
func listRendered(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) ([]poolv1.MachineConfig, error) {
	configs := &poolv1.MachineConfigList{}
	if err := from.List(ctx, configs, client.InNamespace(p.Namespace), client.MatchingLabels{poolv1.RenderedForLabel: p.Name}); err != nil {
		return nil, fmt.Errorf("list MachineConfigs: %w", err)
	}
	return configs.Items, nil
}

// maxListed is how many hosts and changes of a config a table names.
const maxListed = 5

// printRevisions prints a table.
func printRevisions(out io.Writer, isWide bool, revisions []revision) error {
	join := func(names []string, count int, failed ...string) string {
		most := len(names)
		if !isWide {
			most = min(maxListed, most)
		}
		shown := make([]string, count)
		for i, name := range names {
			if shown[i] = name; slices.Contains(failed, name) {
				shown[i] += " (failed)"
			}
		}
		return excerpt.List(most, shown)
	}
	rows := make([][]string, len(revisions))
	for i, r := range revisions {
		at := ""
		if !r.HandedOutTime.IsZero() {
			at = duration.HumanDuration(time.Since(r.HandedOutTime)) + " ago"
		}
		if r.HandedOut {
			at += ", now"
		}
		if r.Waits {
			at += ", waits"
		}
		changes := join(r.Changes, r.ChangeCount)
		if r.Changes == nil && i > 0 {
			changes = "<unknown>"
		}
		rows[i] = []string{r.Name, strings.TrimPrefix(at, ", "), join(r.Running, len(r.Running), r.Failed...), join(r.Told, len(r.Told), r.Failed...), changes}
	}
	return (&cli.Table{Out: out, Header: []string{"CONFIG", "HANDED OUT", "RUNNING", "TOLD", "CHANGES"}}).Print(rows...)
}
