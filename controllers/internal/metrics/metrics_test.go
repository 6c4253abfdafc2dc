package metrics

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

func TestMetrics(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Metrics of the manager")
}

// newConfig returns a PoolbootConfig of the pool infra. The reason is that of the condition NodeInPool; without a
// reason, the PoolbootConfig has no Node.
func newConfig(name, reason string, labels map[string]string) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}}}
	for key, value := range labels {
		config.Labels[key] = value
	}
	config.Status.PoolRole = "infra"
	if reason != "" {
		config.Status.NodeRef = bootstrapv1.NodeReference{Name: name, UID: "1"}
		status := metav1.ConditionFalse
		if reason == bootstrapv1.NodeReadyInPoolReason {
			status = metav1.ConditionTrue
		}
		config.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		config.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}}
	}
	return config
}

// newPool returns a pool of the Cluster edge. The conditions with these reasons are True.
func newPool(name, role string, reasons map[string]string) *poolv1.MachineConfigPool {
	p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name}}
	p.Spec.ClusterName, p.Spec.PoolRole = "edge", role
	for kind, reason := range reasons {
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason})
	}
	return p
}

var _ = Describe("The state collector", func() {
	var (
		collector *StateCollector
		elected   chan struct{}
		unsynced  bool
	)
	BeforeEach(func() {
		ours := map[string]string{clusterv1.WatchLabel: "ours"}
		draining := newConfig("b", bootstrapv1.NodeReadyInPoolReason, nil)
		draining.Status.Conditions = append(draining.Status.Conditions, metav1.Condition{
			Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.UpdateDrainingReason})
		elected, unsynced = make(chan struct{}), false
		pending := newConfig("d", "", nil)
		pending.CreationTimestamp = metav1.NewTime(time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC))
		younger := newConfig("e", "", nil)
		younger.CreationTimestamp = metav1.NewTime(pending.CreationTimestamp.Add(time.Minute))
		deleted := newConfig("f", "", nil)
		deleted.Finalizers = []string{"example.com/keep"}
		deleted.DeletionTimestamp = &metav1.Time{Time: pending.CreationTimestamp.Add(30 * time.Minute)}
		twin := newPool("infra-2", "infra", map[string]string{poolv1.RenderDegradedCondition: poolv1.DuplicateRoleReason, poolv1.DegradedCondition: poolv1.DuplicateRoleReason})
		twin.Labels = ours
		builder := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(
			newConfig("a", bootstrapv1.NodeReadyInPoolReason, ours), draining,
			newConfig("c", bootstrapv1.NodeMissingReason, nil), pending, younger, deleted,
			newPool("infra", "infra", map[string]string{poolv1.RenderDegradedCondition: poolv1.DuplicateRoleReason,
				poolv1.NodeDegradedCondition: poolv1.HostsDegradedReason, poolv1.DegradedCondition: poolv1.DuplicateRoleReason}),
			twin, newPool("worker", "worker", map[string]string{poolv1.UpdatedCondition: poolv1.AllHostsUpdatedReason}))
		collector = &StateCollector{Elected: elected, Clock: func() time.Time { return pending.CreationTimestamp.Add(time.Hour) }, Cache: builder.WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if unsynced {
				<-ctx.Done()
				return ctx.Err()
			}
			return c.List(ctx, list, opts...)
		}}).Build()}
	})

	It("counts boots by pool and stage, and Nodes by pool and state", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP poolboot_boots PoolbootConfigs by the current stage of their boot.
# TYPE poolboot_boots gauge
poolboot_boots{cluster="metal/edge",pool="infra",stage="Deleting"} 1
poolboot_boots{cluster="metal/edge",pool="infra",stage="NotReady"} 1
poolboot_boots{cluster="metal/edge",pool="infra",stage="Pending"} 2
poolboot_boots{cluster="metal/edge",pool="infra",stage="Ready"} 2
# HELP poolboot_nodes Nodes of PoolbootConfigs by state: Ready, the reason of the condition NodeInPool, or Updating if they are not Ready because of an update of their host.
# TYPE poolboot_nodes gauge
poolboot_nodes{cluster="metal/edge",pool="infra",state="NodeMissing"} 1
poolboot_nodes{cluster="metal/edge",pool="infra",state="Ready"} 2
`), "poolboot_boots", "poolboot_nodes")).To(Succeed())
		collector.WatchFilterValue = "ours"
		Expect(testutil.CollectAndCount(collector, "poolboot_boots", "poolboot_nodes", "poolboot_pools_degraded")).To(Equal(3))
	})

	It("counts hosts by the state of their update", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP poolboot_hosts Hosts that have joined, by the state of their update: the reason of the condition Updated.
# TYPE poolboot_hosts gauge
poolboot_hosts{cluster="metal/edge",pool="infra",state="Draining"} 1
`), "poolboot_hosts")).To(Succeed())
	})

	DescribeTable("tells a Node that is not Ready because of an update from one that does not return from it", func(stage bootstrapv1.UpdateStage, since time.Duration, state string) {
		close(elected)
		config := newConfig("g", bootstrapv1.NodeNotReadyReason, nil)
		config.Status.Update.Stage, config.Status.Update.StageTime = stage, &metav1.Time{Time: collector.Clock().Add(-since)}
		Expect(collector.Cache.(client.Client).Create(context.Background(), config)).To(Succeed())
		Expect(nodeStates(collector)).To(ContainElement(state))
	},
		Entry("it reboots", bootstrapv1.UpdateRebooting, 29*time.Minute, "Updating"),
		Entry("it is verified", bootstrapv1.UpdateVerifying, time.Minute, "Updating"),
		Entry("it reboots for longer than the pool allows", bootstrapv1.UpdateRebooting, 31*time.Minute, "NodeNotReady"),
		Entry("it is drained", bootstrapv1.UpdateDraining, time.Minute, "NodeNotReady"),
		Entry("it is not updated", bootstrapv1.UpdateStage(""), time.Minute, "NodeNotReady"),
	)

	It("counts pools in which hosts wait and none begins an update", func() {
		close(elected)
		for name, reason := range map[string]string{"gate": poolv1.GateUnreadableReason, "closed": poolv1.GateClosedReason} {
			p := withFalse(newPool(name, name, nil), poolv1.UpdateGatesOpenCondition, reason)
			Expect(collector.Cache.(client.Client).Create(context.Background(), withFalse(p, poolv1.UpdatedCondition, reason))).To(Succeed())
		}
		for name, reason := range map[string]string{"blocked": poolv1.RolloutBlockedReason, "pending": poolv1.HostsPendingReason} {
			Expect(collector.Cache.(client.Client).Create(context.Background(), withFalse(newPool(name, name, nil), poolv1.UpdatedCondition, reason))).To(Succeed())
		}
		Expect(testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP poolboot_rollouts_held MachineConfigPools by the reason of the condition Updated or UpdateGatesOpen for which no running host begins an update.
# TYPE poolboot_rollouts_held gauge
poolboot_rollouts_held{cluster="metal/edge",pool="blocked",reason="RolloutBlocked"} 1
poolboot_rollouts_held{cluster="metal/edge",pool="closed",reason="GateClosed"} 1
poolboot_rollouts_held{cluster="metal/edge",pool="gate",reason="GateUnreadable"} 1
`), "poolboot_rollouts_held")).To(Succeed())
	})

	It("has one series per stage for the age of the oldest boot", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP poolboot_boots_oldest_seconds Seconds since the oldest boot in a stage entered it; 0 if there is none.
# TYPE poolboot_boots_oldest_seconds gauge
poolboot_boots_oldest_seconds{stage="Deleting"} 1800
poolboot_boots_oldest_seconds{stage="Joining"} 0
poolboot_boots_oldest_seconds{stage="Pending"} 3600
poolboot_boots_oldest_seconds{stage="Preparing"} 0
poolboot_boots_oldest_seconds{stage="Provisioning"} 0
poolboot_boots_oldest_seconds{stage="Serving"} 0
poolboot_boots_oldest_seconds{stage="WaitingForHost"} 0
`), "poolboot_boots_oldest_seconds")).To(Succeed())
	})

	It("counts degraded pools and blocked boots by the reason of their condition", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(collector, strings.NewReader(`
# HELP poolboot_boots_blocked PoolbootConfigs whose host or Node needs an administrator to act, by the reason of the condition that describes what to do.
# TYPE poolboot_boots_blocked gauge
poolboot_boots_blocked{cluster="metal/edge",pool="infra",reason="NodeMissing"} 1
# HELP poolboot_pools_degraded MachineConfigPools that are degraded, by the condition that is True, RenderDegraded or NodeDegraded, and its reason.
# TYPE poolboot_pools_degraded gauge
poolboot_pools_degraded{cluster="metal/edge",condition="NodeDegraded",pool="infra",reason="HostsDegraded"} 1
poolboot_pools_degraded{cluster="metal/edge",condition="RenderDegraded",pool="infra",reason="DuplicateRole"} 2
`), "poolboot_boots_blocked", "poolboot_pools_degraded")).To(Succeed())
	})

	It("returns nothing if the manager is not the leader, or if its cache is not synced", func() {
		Expect(testutil.CollectAndCount(collector)).To(BeZero())
		close(elected)
		unsynced = true
		Expect(testutil.CollectAndCount(collector)).To(BeZero())
	})
})

// nodeStates returns the states of Nodes that a collector counts.
func nodeStates(collector prometheus.Collector) (states []string) {
	GinkgoHelper()
	registry := prometheus.NewRegistry()
	Expect(registry.Register(collector)).To(Succeed())
	families, err := registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.Metric {
			for _, label := range metric.Label {
				if family.GetName() == "poolboot_nodes" && label.GetName() == "state" {
					states = append(states, label.GetValue())
				}
			}
		}
	}
	return states
}

// withFalse adds a condition that is False to a pool.
func withFalse(p *poolv1.MachineConfigPool, kind, reason string) *poolv1.MachineConfigPool {
	p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason})
	return p
}

// zeros returns the label values of the series of a metric whose value is 0.
func zeros(name string) (found []string) {
	GinkgoHelper()
	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		for _, metric := range family.Metric {
			if family.GetName() != name || metric.GetCounter().GetValue() != 0 {
				continue
			}
			var labels []string
			for _, label := range metric.Label {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			found = append(found, strings.Join(labels, " "))
		}
	}
	return found
}

var _ = Describe("The counters", func() {
	It("have no names of objects in labels except clusters and pools", func() {
		boot := newConfig("machine-a", "", nil)
		created := metav1.NewTime(time.Now().Add(-time.Hour))
		boot.CreationTimestamp = created
		boot.Status.Boot.HostChosenTime = &metav1.MicroTime{Time: created.Add(time.Minute)}
		boot.Status.Boot.NodeReadyTime = &metav1.MicroTime{Time: created.Add(40 * time.Minute)}
		before := scrape.Observed(ctrlmetrics.Registry, "poolboot_boot_prepare_seconds", nil)
		BootCompleted(boot)
		StageBlocked(boot, record.StagePreparing, bootstrapv1.LabelConflictReason)
		PoolConflictOfConfig(boot, ConflictMachine)
		PreRegistered(boot, "infra", NodeCreated)
		BootPrepared(1)
		TokenEvent(boot, bootstrapv1.EventTokenRotated)
		Expect(testutil.ToFloat64(boots.WithLabelValues("metal/edge", "infra", "Joining", "Done"))).To(Equal(1.0))
		Expect(scrape.Observed(ctrlmetrics.Registry, "poolboot_boot_prepare_seconds", nil) - before).To(Equal(1.0))
		Expect(scrape.Observed(ctrlmetrics.Registry, "poolboot_boot_stage_seconds", nil)).To(Equal((40 * time.Minute).Seconds()))
		Expect(testutil.ToFloat64(preRegistrations.WithLabelValues("metal/edge", "infra", "Created"))).To(Equal(1.0))
		Expect(testutil.ToFloat64(conflicts.WithLabelValues("metal/edge", "Machine"))).To(Equal(1.0))
		Expect(testutil.ToFloat64(tokenEvents.WithLabelValues("metal/edge", "TokenRotated"))).To(Equal(1.0))

		families, err := ctrlmetrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "poolboot_") {
				continue
			}
			Expect(family.String()).NotTo(ContainSubstring("machine-a"))
			if family.GetName() == "poolboot_boot_stage_seconds" {
				Expect(family.Metric).To(HaveLen(len(record.Stages())), "each stage has a series before a boot completes it")
				for _, metric := range family.Metric {
					if metric.Histogram.GetSampleCount() == 0 {
						continue
					}
					buckets := metric.Histogram.Bucket
					Expect(buckets[len(buckets)-1].GetCumulativeCount()).To(Equal(uint64(1)), "one hour is within the buckets")
				}
			}
		}
	})

	It("start at 0, so that rate and increase include the first increment", func() {
		NewPoolCounters(newPool("db", "db", nil))
		for metric, want := range map[string][]string{
			"poolboot_boots_total": {"cluster=metal/edge outcome=Done pool=db stage=Joining", "cluster=metal/edge outcome=Done pool=db stage=Pending",
				"cluster=metal/edge outcome=Done pool=db stage=Preparing", "cluster=metal/edge outcome=JoinCredentialExpired pool=db stage=Joining"},
			"poolboot_preregistrations_total": {"cluster=metal/edge outcome=Created pool=db", "cluster=metal/edge outcome=Kept pool=db", "cluster=metal/edge outcome=Taken pool=db"},
			"poolboot_pool_conflicts_total":   {"cluster=metal/edge kind=Node"},
			"poolboot_token_events_total": {"cluster=metal/edge reason=TokenAddressRefused", "cluster=metal/edge reason=TokenExpired",
				"cluster=metal/edge reason=TokenUsedFromSecondAddress"},
		} {
			Expect(zeros(metric)).To(ContainElements(want), metric)
		}
		PreRegistered(newConfig("machine-b", "", nil), "db", NodeTaken)
		NewPoolCounters(newPool("db", "db", nil))
		Expect(testutil.ToFloat64(preRegistrations.WithLabelValues("metal/edge", "db", NodeTaken))).To(Equal(1.0), "existing counters do not change")
	})

	It("follow the naming rules of Prometheus", func() {
		registry := prometheus.NewPedanticRegistry()
		for _, c := range []prometheus.Collector{boots, stageSeconds, prepareSeconds, conflicts, preRegistrations, tokenEvents, &StateCollector{}} {
			Expect(registry.Register(c)).To(Succeed())
		}
		Expect(testutil.GatherAndLint(registry)).To(BeEmpty())
	})
})
