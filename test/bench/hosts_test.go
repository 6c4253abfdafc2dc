package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// realHosts is the number of hosts of BenchmarkUpdateOfHosts.
const realHosts = 6

// BenchmarkUpdateOfHosts updates six hosts in Linux namespaces one after the other, with the real agent, kubelet,
// containerd and systemd, after a change that reboots. It prints the stages of each update. "s-<stage>" is the median
// of a stage. It requires root.
func BenchmarkUpdateOfHosts(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("hosts in namespaces require root")
	}
	gomega.RegisterTestingT(b)
	ctrl.SetLogger(logr.Discard())
	for b.Loop() {
		updateHosts(b)
	}
	b.ReportMetric(0, "ns/op")
}

func updateHosts(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stormTimeout)
	defer cancel()
	s, err := site.Start(ctx, site.Options{Agents: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			b.Log("the site did not end by itself: ", err)
		}
	}()
	history, err := site.RecordNodes(ctx, s.WorkloadClient)
	if err != nil {
		b.Fatal(err)
	}
	t := tenant.NewPersistent(ctx, s, realHosts, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.MinReadySeconds = ptr.To[int32](2) })
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: realHosts, Labels: map[string]string{poolv1.NodeRoleLabelPrefix + "infra": ""}})
	// updated waits until all hosts run another config than before, and returns its name.
	updated := func(before string) string {
		gomega.Eventually(ctx, func(g gomega.Gomega) {
			configs := t.Configs(ctx, "infra")
			g.Expect(configs).To(gomega.HaveLen(realHosts))
			for i := range configs {
				g.Expect(conditions.IsTrue(&configs[i], bootstrapv1.UpdatedCondition)).To(gomega.BeTrue())
				g.Expect(configs[i].Status.Boot.ServedConfiguration.Name).NotTo(gomega.Equal(before))
			}
		}).WithTimeout(20 * time.Minute).WithPolling(time.Second).Should(gomega.Succeed())
		return t.Configs(ctx, "infra")[0].Status.Boot.ServedConfiguration.Name
	}
	first := updated("")

	change := t.MachineConfig("51-infra", "infra", "/etc/infratest", "another")
	current := &poolv1.MachineConfig{}
	if err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(change), current); err != nil {
		b.Fatal(err)
	}
	changed := current.DeepCopy()
	changed.Spec.Config = &runtime.RawExtension{Raw: change.Spec.Config.Raw}
	began := time.Now()
	if err := s.ManagementClient.Patch(ctx, changed, client.MergeFrom(current)); err != nil {
		b.Fatal(err)
	}
	updated(first)
	b.ReportMetric(time.Since(began).Seconds(), "s-rollout")
	var names []string
	for _, config := range t.Configs(ctx, "infra") {
		names = append(names, config.Status.NodeRef.Name)
	}
	gomega.Eventually(ctx, func() bool {
		return !slices.ContainsFunc(names, func(name string) bool { return site.StagesOf(history.Of(name))[site.Released].IsZero() })
	}).WithTimeout(time.Minute).WithPolling(time.Second).Should(gomega.BeTrue(), "all Nodes can get Pods")
	reportStages(b, history, began, names)
}

// reportStages prints how long each stage of the updates took.
func reportStages(b *testing.B, history *site.NodeHistory, began time.Time, names []string) {
	b.Helper()
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "HOST")
	for _, stage := range site.UpdateStages {
		fmt.Fprint(table, "\t", strings.ToUpper(string(stage)))
	}
	fmt.Fprintln(table)
	took := map[site.UpdateStage][]time.Duration{}
	all := map[string]map[site.UpdateStage]time.Time{}
	for _, name := range names {
		all[name] = site.StagesOf(history.Of(name))
	}
	slices.SortFunc(names, func(x, y string) int { return all[x][site.Told].Compare(all[y][site.Told]) })
	last := began
	for _, name := range names {
		fmt.Fprint(table, name)
		for _, stage := range site.UpdateStages {
			at := all[name][stage]
			if at.IsZero() {
				b.Errorf("host %s was not %s", name, stage)
			}
			took[stage] = append(took[stage], at.Sub(last))
			fmt.Fprintf(table, "\t%.1f", at.Sub(last).Seconds())
			last = at
		}
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + text.String())
	for stage, of := range took {
		slices.Sort(of)
		b.ReportMetric(of[len(of)/2].Seconds(), "s-"+string(stage))
	}
	b.ReportMetric(float64(site.MostAway(history.Versions(), began, names...)), "away")
}
