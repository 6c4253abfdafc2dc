package rollout

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// revision is a rendered config of a pool, as it is printed as JSON.
type revision struct {
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	// Owners are the objects that own it, as KIND/NAME.
	Owners []string `json:"owners"`
	// HandedOut is true for the one that the pool hands out.
	HandedOut bool `json:"handedOut"`
	// Running is how many hosts run it, and Told how many are told to run it.
	Running int `json:"running"`
	Told    int `json:"told"`
	// Changes are how many entries of each kind differ from the config before it; null for the first one.
	Changes map[string]int `json:"changes"`
}

func newHistory(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var output cli.Output
	cmd := &cobra.Command{
		Use:   "history POOL",
		Short: "List the rendered configs of a pool",
		Long: `List the rendered configs of a pool that still exist, the oldest first: which one the pool hands out, how many hosts run
each of them and are told to run it, and how many entries of each kind differ from the config before it.`,
		Example: `  kubectl poolboot rollout history infra -n metal`,
	}
	output.AddFlag(cmd, "json or yaml, or wide for a table with whole names of configs; without it, a table", cli.FormatJSON, cli.FormatYAML, cli.FormatWide)
	return configureLive(cmd, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		revisions, err := listRevisions(ctx, cluster, p)
		if err != nil {
			return err
		}
		if isTable := output.Format == "" || output.Format == cli.FormatWide; len(revisions) == 0 && isTable {
			_, err := fmt.Fprintf(streams.ErrOut, "%s has no rendered config: see its conditions\n", describe(p))
			return err
		}
		return output.Print(streams.Out, revisions, func(out io.Writer) error {
			return printRevisions(&cli.Table{Out: out, Wide: output.Format == cli.FormatWide}, revisions)
		})
	})
}

// listRevisions returns the rendered configs of a pool, the oldest first.
func listRevisions(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) ([]revision, error) {
	configs := &poolv1.MachineConfigList{}
	if err := cluster.List(ctx, configs, client.InNamespace(p.Namespace), client.MatchingLabels{poolv1.RenderedForLabel: p.Name}); err != nil {
		return nil, fmt.Errorf("list MachineConfigs: %w", err)
	}
	slices.SortFunc(configs.Items, func(a, b poolv1.MachineConfig) int { return pool.CompareAge(&a, &b) })
	hosts, _, err := listHosts(ctx, cluster, p)
	if err != nil {
		return nil, err
	}
	revisions := make([]revision, len(configs.Items))
	var before update.Config
	for i := range configs.Items {
		c := &configs.Items[i]
		r := &revisions[i]
		r.Name, r.Created, r.HandedOut = c.Name, c.CreationTimestamp.Time, c.Name == p.Status.Configuration.Name
		r.Owners = []string{}
		for _, owner := range c.OwnerReferences {
			r.Owners = append(r.Owners, owner.Kind+"/"+owner.Name)
		}
		for j := range hosts {
			if hosts[j].Status.Boot.ServedConfiguration.Name == c.Name {
				r.Running++
			} else if hosts[j].Status.Update.Desired.Name == c.Name {
				r.Told++
			}
		}
		after, err := pool.ParseRendered(c.Spec)
		if err != nil {
			return nil, fmt.Errorf("MachineConfig %s/%s: %w", c.Namespace, c.Name, err)
		}
		if i > 0 {
			r.Changes = countChanges(before, after)
		}
		before = after
	}
	return revisions, nil
}

// countChanges returns how many entries of each kind differ between two rendered configs.
func countChanges(before, after update.Config) map[string]int {
	plan := update.New(before, after, update.DefaultPolicy(), update.AllCapabilities)
	entries := map[update.Item]bool{}
	for _, change := range plan.Changes {
		entries[change.Item] = true
	}
	for _, obstacle := range plan.Obstacles { // disks, for example, are no changes that a running host could make
		entries[obstacle.Item] = true
	}
	counts := map[string]int{}
	for entry := range entries {
		counts[string(entry.Kind)]++
	}
	return counts
}

// printRevisions prints a table.
func printRevisions(table *cli.Table, revisions []revision) error {
	table.Header = []string{"CONFIG", "OWNER", "AGE", "HANDED OUT", "RUNNING", "TOLD", "CHANGES"}
	rows := make([][]string, len(revisions))
	for i, r := range revisions {
		var changes []string
		for _, kind := range slices.Sorted(maps.Keys(r.Changes)) {
			changes = append(changes, fmt.Sprintf("%s: %d", kind, r.Changes[kind]))
		}
		handedOut := "no"
		if r.HandedOut {
			handedOut = "yes"
		}
		rows[i] = []string{r.Name, strings.Join(r.Owners, ", "), duration.HumanDuration(time.Since(r.Created)), handedOut,
			strconv.Itoa(r.Running), strconv.Itoa(r.Told), strings.Join(changes, ", ")}
	}
	return table.Print(rows...)
}
