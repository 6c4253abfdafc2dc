package rollout

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
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

// revision is a rendered config of a pool, as it is printed as JSON.
type revision struct {
	Name string `json:"name"`
	// HandedOutTime is when the pool began to hand it out. It is absent if that is not recorded.
	HandedOutTime time.Time `json:"handedOutTime,omitzero"`
	// HandedOut is true for the one that the pool hands out.
	HandedOut bool `json:"handedOut"`
	// Waits is true for the one that hosts are to run after the one that the pool hands out.
	Waits bool `json:"waits"`
	// Deleted is true for one that does not exist any more, so a paused pool can't hand it out.
	Deleted bool `json:"deleted,omitempty"`
	// Running are the Nodes of the hosts that run it, Told those of the hosts that are told to run it, and Failed those
	// of the hosts whose update to it failed, or units of it, also if they run another one now.
	Running []string `json:"running"`
	Told    []string `json:"told"`
	Failed  []string `json:"failed,omitempty"`
	// Updates are the updates of hosts to it that the hosts have on record.
	Updates []hostUpdate `json:"updates,omitempty"`
	// Changes are the entries that differ from the config before it, those that the pool recorded or all; null if they
	// are not known. ChangeCount is how many there are.
	Changes     []string `json:"changes"`
	ChangeCount int      `json:"changeCount"`
	// ChangedBy are the objects that were changed last between the config before it and this one, or removed.
	ChangedBy []changedObject `json:"changedBy,omitempty"`
}

// hostUpdate is an update of a host, by the name of its Node.
type hostUpdate struct {
	Host                   string `json:"host"`
	bootstrapv1.HostUpdate `json:",inline"`
}

// changedObject is an object whose spec or labels a client has changed. If it was deleted, nothing says by whom and
// when.
type changedObject struct {
	Object  string      `json:"object"`
	Deleted bool        `json:"deleted,omitempty"`
	Manager string      `json:"manager,omitempty"`
	Time    metav1.Time `json:"time,omitzero"`
	// Cause is what the annotation kubernetes.io/change-cause of the object says about its last change.
	Cause string `json:"cause,omitempty"`
}

const (
	// changeCause is the annotation that kubectl rollout history shows, too.
	changeCause = "kubernetes.io/change-cause"
	// maxCause is the maximum size of a cause in bytes.
	maxCause = 256
)

func newHistory(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var output cli.Output
	var configuration string
	cmd := &cobra.Command{
		Use:   "history POOL [--configuration NAME]",
		Short: "List the rendered configs of a pool",
		Long: `List the last rendered configs that a pool handed out, in this order: when, which hosts run each of them and are told
to run it, and which MachineConfigs and entries were added (+), changed (~) and removed (-) since the config before it.
A config that was handed out again is listed again. Those that exist and were not handed out, as in a paused pool, are
listed by the time of their creation. A paused pool can hand out those that are not listed as deleted.

With --configuration, list the updates of hosts to this config: when each began and ended, the strongest thing that it
did to the host, how long its stages took, and why it failed. A host has its last 5 updates on record, until its Machine
is deleted. Then follow the MachineConfigs, and the pool, that were changed before it was handed out, when, by which
manager of managedFields, which is a client and not a user, and why, if they have the annotation
kubernetes.io/change-cause. An object that was changed again later counts for the later config only. Of a MachineConfig
that was deleted, nothing says by whom.`,
		Example: `  # What the pool handed out, and which hosts run it
  kubectl poolboot rollout history infra -n metal

  # What one config did to the hosts, and who changed what
  kubectl poolboot rollout history infra -n metal --configuration infra@8c1f02a9`,
	}
	output.AddTableFlag(cmd)
	cmd.Flags().StringVar(&configuration, "configuration", "", "rendered config to show with the updates of hosts to it, by its whole or short name (default all configs)")
	completeRendered(cmd, to, "configuration")
	return configureLive(cmd, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		revisions, err := listRevisions(ctx, cluster, p)
		if err != nil {
			return err
		}
		if len(revisions) == 0 && output.IsText() {
			_, err := fmt.Fprintf(streams.ErrOut, "%s has no rendered config: see its conditions\n", describe(p))
			return err
		}
		if configuration != "" {
			revisions = slices.DeleteFunc(revisions, func(r revision) bool { return r.Name != configuration && cli.ShortenNames(r.Name) != configuration })
			if len(revisions) == 0 {
				return fmt.Errorf("--configuration: %w", notRendered(p, configuration))
			}
		}
		return output.Print(streams.Out, revisions, func(out io.Writer) error {
			if configuration == "" {
				return printRevisions(out, output.Format == cli.FormatWide, revisions)
			}
			if !slices.ContainsFunc(revisions, func(r revision) bool { return len(r.Updates) > 0 }) {
				if _, err := fmt.Fprintf(streams.ErrOut, "no host has an update to it on record: a host keeps its last %d updates, until its Machine is deleted\n", bootstrapv1.MaxUpdateHistory); err != nil {
					return err
				}
			}
			return printUpdates(out, revisions)
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
	hosts, err := listConfigs(ctx, cluster, p)
	if err != nil {
		return nil, err
	}
	sources := &metav1.PartialObjectMetadataList{}
	sources.SetGroupVersionKind(poolv1.GroupVersion.WithKind("MachineConfigList"))
	if err := cluster.List(ctx, sources, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigs: %w", err)
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
	for _, h := range hosts.Items {
		if h.Status.PoolRole != p.Spec.PoolRole {
			continue
		}
		name, runs, told := record.HostName(&h), last[h.Status.Boot.ServedConfiguration.Name], last[h.Status.Update.Desired.Name]
		if isIn(p, &h) { // of one that is being deleted, its record counts
			if runs != nil {
				runs.Running = append(runs.Running, name)
			}
			if told != nil && told != runs {
				told.Told = append(told.Told, name)
			}
		}
		reason := conditions.GetReason(&h, bootstrapv1.UpdatedCondition)
		if told != nil && (reason == bootstrapv1.UpdateDegradedReason || reason == bootstrapv1.UpdateUnreconcilableReason) {
			told.Failed = append(told.Failed, name)
		}
		for _, u := range h.Status.Update.History {
			r := last[u.Configuration]
			for _, other := range listed { // it can be listed several times
				if other.Name == u.Configuration && !other.HandedOutTime.IsZero() && !other.HandedOutTime.After(u.StartTime.Time) {
					r = other
				}
			}
			if r == nil {
				continue
			}
			r.Updates = append(r.Updates, hostUpdate{name, u})
			switch {
			case u.Message != "", u.Result == bootstrapv1.UpdateResultDegraded, u.Result == bootstrapv1.UpdateResultUnreconcilable: // Superseded can have a message
				r.Failed = append(r.Failed, name)
			}
		}
	}
	slices.SortStableFunc(listed, func(a, b *revision) int { return times[a].Compare(times[b]) })
	revisions := make([]revision, len(listed))
	for i, r := range listed {
		slices.Sort(r.Running)
		slices.Sort(r.Told)
		slices.Sort(r.Failed)
		r.Failed = slices.Compact(r.Failed)
		r.Deleted = specs[r.Name] == nil && !r.HandedOut // the pool creates that one again
		slices.SortStableFunc(r.Updates, func(a, b hostUpdate) int { return a.StartTime.Compare(b.StartTime.Time) })
		if i > 0 {
			r.ChangedBy = listChanged(p, sources.Items, pool.ChangedSources(r.Changes), times[listed[i-1]], times[r])
		}
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

// configured matches the fields of an object that a pool is rendered from.
var configured = regexp.MustCompile(`"f:(spec|labels)"`)

// listChanged returns the pool, and the MachineConfigs that it renders or that were removed or added then, that were
// changed last after one time and until another one, or are deleted.
func listChanged(p *poolv1.MachineConfigPool, sources []metav1.PartialObjectMetadata, then []string, after, until time.Time) (changed []changedObject) {
	add := func(kind string, object client.Object) {
		changes := slices.DeleteFunc(slices.Clone(object.GetManagedFields()), func(entry metav1.ManagedFieldsEntry) bool {
			return entry.FieldsV1 == nil || !configured.Match(entry.FieldsV1.GetRawBytes()) || entry.Subresource != "" || entry.Time == nil
		})
		for _, change := range changes {
			if !change.Time.After(after) || change.Time.After(until) {
				continue
			}
			c := changedObject{Object: kind + " " + object.GetName(), Manager: change.Manager, Time: *change.Time}
			if !slices.ContainsFunc(changes, func(other metav1.ManagedFieldsEntry) bool { return other.Time.After(change.Time.Time) }) {
				c.Cause = excerpt.Line(object.GetAnnotations()[changeCause], maxCause)
			}
			changed = append(changed, c)
		}
	}
	names := slices.Clone(then)
	for _, source := range p.Status.Configuration.Source {
		if !slices.Contains(then, source.Name) { // it can have been added again
			names = append(names, source.Name)
		}
	}
	for _, name := range names {
		if i := slices.IndexFunc(sources, func(c metav1.PartialObjectMetadata) bool { return c.Name == name }); i >= 0 {
			add("MachineConfig", &sources[i])
		} else if slices.Contains(then, name) {
			changed = append(changed, changedObject{Object: "MachineConfig " + name, Deleted: true})
		}
	}
	add("MachineConfigPool", p)
	slices.SortStableFunc(changed, func(a, b changedObject) int { return a.Time.Compare(b.Time.Time) })
	return changed
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
	list := func(names []string, count int) string {
		if !isWide {
			names = names[:min(maxListed, len(names))]
		}
		text := strings.Join(names, ", ")
		if more := count - len(names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return text
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
		if r.Deleted {
			at += ", deleted"
		}
		changes := list(r.Changes, r.ChangeCount)
		if r.Changes == nil && i > 0 {
			changes = "<unknown>"
		}
		rows[i] = []string{r.Name, strings.TrimPrefix(at, ", "), list(r.Running, len(r.Running)), list(r.Told, len(r.Told)), list(r.Failed, len(r.Failed)), changes}
	}
	return (&cli.Table{Out: out, Header: []string{"CONFIG", "HANDED OUT", "RUNNING", "TOLD", "FAILED", "CHANGES"}}).Print(rows...)
}

// printUpdates prints a table of the updates of hosts, and one of the objects that were changed.
func printUpdates(out io.Writer, revisions []revision) error {
	format := func(at *metav1.Time) string {
		if at == nil {
			return ""
		}
		return at.UTC().Format(time.RFC3339)
	}
	var updates, changed [][]string
	for _, r := range revisions {
		for _, u := range r.Updates {
			updates = append(updates, []string{u.Host, format(u.StartTime), format(u.CompletionTime), string(u.Result), string(u.Effect), describeStages(u.Stages), u.Message})
		}
		for _, c := range r.ChangedBy {
			if c.Deleted {
				changed = append(changed, []string{c.Object + ", which was deleted", "", "", ""})
				continue
			}
			changed = append(changed, []string{c.Object, c.Manager, format(&c.Time), c.Cause})
		}
	}
	if err := (&cli.Table{Out: out, Header: []string{"HOST", "BEGAN", "ENDED", "RESULT", "EFFECT", "STAGES", "MESSAGE"}}).Print(updates...); err != nil || len(changed) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(out); err != nil {
		return err
	}
	return (&cli.Table{Out: out, Header: []string{"CHANGED", "BY", "AT", "CAUSE"}}).Print(changed...)
}

// describeStages returns how long an update was in its stages.
func describeStages(stages []bootstrapv1.UpdateStageDuration) string {
	texts := make([]string, len(stages))
	for i, s := range stages {
		texts[i] = fmt.Sprintf("%s %s", s.Stage, time.Duration(s.Seconds)*time.Second)
	}
	return strings.Join(texts, ", ")
}
