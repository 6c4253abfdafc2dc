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
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

func TestMetrics(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "the manager's metrics")
}

// config is a PoolbootConfig of the pool infra whose Node is in a state, by the condition NodeInPool; none when it is
// empty.
func config(name, reason string, labels map[string]string) *bootstrapv1.PoolbootConfig {
	c := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}}}
	for key, value := range labels {
		c.Labels[key] = value
	}
	c.Status.PoolRole = "infra"
	if reason != "" {
		c.Status.NodeRef = bootstrapv1.NodeReference{Name: name, UID: "1"}
		status := metav1.ConditionFalse
		if reason == bootstrapv1.NodeReadyInPoolReason {
			status = metav1.ConditionTrue
		}
		c.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}}
	}
	return c
}

// newPool is a pool of the cluster edge whose conditions with these reasons are True.
func newPool(name, role string, reasons map[string]string) *poolv1.MachineConfigPool {
	p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name}}
	p.Spec.ClusterName, p.Spec.PoolRole = "edge", role
	for kind, reason := range reasons {
		p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason})
	}
	return p
}

var _ = Describe("What there is now", func() {
	var (
		builder *fake.ClientBuilder
		now     *StateCollector
		elected chan struct{}
		broken  bool
	)
	BeforeEach(func() {
		scheme := runtime.NewScheme()
		Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
		Expect(poolv1.AddToScheme(scheme)).To(Succeed())
		ours := map[string]string{clusterv1.WatchLabel: "ours"}
		elected, broken = make(chan struct{}), false
		pending := config("d", "", nil)
		pending.CreationTimestamp = metav1.NewTime(time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC))
		younger := config("e", "", nil)
		younger.CreationTimestamp = metav1.NewTime(pending.CreationTimestamp.Add(time.Minute))
		going := config("f", "", nil)
		going.Finalizers = []string{"example.com/keep"}
		going.DeletionTimestamp = &metav1.Time{Time: pending.CreationTimestamp.Add(30 * time.Minute)}
		twin := newPool("infra-2", "infra", map[string]string{poolv1.RenderDegradedCondition: poolv1.DuplicateRoleReason, poolv1.DegradedCondition: poolv1.DuplicateRoleReason})
		twin.Labels = ours
		builder = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			config("a", bootstrapv1.NodeReadyInPoolReason, ours), config("b", bootstrapv1.NodeReadyInPoolReason, nil),
			config("c", bootstrapv1.NodeMissingReason, nil), pending, younger, going,
			newPool("infra", "infra", map[string]string{poolv1.RenderDegradedCondition: poolv1.DuplicateRoleReason,
				poolv1.NodeDegradedCondition: poolv1.MachinesDegradedReason, poolv1.DegradedCondition: poolv1.DuplicateRoleReason}),
			twin, newPool("worker", "worker", map[string]string{poolv1.UpdatedCondition: poolv1.AllMachinesUpdatedReason}))
		now = &StateCollector{Elected: elected, Clock: func() time.Time { return pending.CreationTimestamp.Add(time.Hour) }, Cache: builder.WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if broken {
				<-ctx.Done()
				return ctx.Err()
			}
			return c.List(ctx, list, opts...)
		}}).Build()}
	})

	It("is counted at the scrape, by pool and stage and by pool and state", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(now, strings.NewReader(`
# HELP poolboot_boots PoolbootConfigs by the stage that their boot is in.
# TYPE poolboot_boots gauge
poolboot_boots{cluster="metal/edge",pool="infra",stage="Deleting"} 1
poolboot_boots{cluster="metal/edge",pool="infra",stage="NotReady"} 1
poolboot_boots{cluster="metal/edge",pool="infra",stage="Pending"} 2
poolboot_boots{cluster="metal/edge",pool="infra",stage="Ready"} 2
# HELP poolboot_nodes Nodes of PoolbootConfigs by state: Ready, or the reason of the condition NodeInPool.
# TYPE poolboot_nodes gauge
poolboot_nodes{cluster="metal/edge",pool="infra",state="NodeMissing"} 1
poolboot_nodes{cluster="metal/edge",pool="infra",state="Ready"} 2
`), "poolboot_boots", "poolboot_nodes")).To(Succeed())
		now.WatchFilterValue = "ours"
		Expect(testutil.CollectAndCount(now, "poolboot_boots", "poolboot_nodes", "poolboot_pools_degraded")).To(Equal(3))
	})

	It("has the age of the oldest boot in each stage, one series a stage however many boots there are", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(now, strings.NewReader(`
# HELP poolboot_boots_oldest_seconds Seconds that the boot that has been in a stage for the longest has been in it; 0 while none is.
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

	It("counts pools by what degrades them, and boots by what a person has to do, as their conditions say", func() {
		close(elected)
		Expect(testutil.CollectAndCompare(now, strings.NewReader(`
# HELP poolboot_boots_blocked PoolbootConfigs whose host or Node waits for a person, by the reason of the condition that says what to do.
# TYPE poolboot_boots_blocked gauge
poolboot_boots_blocked{cluster="metal/edge",pool="infra",reason="NodeMissing"} 1
# HELP poolboot_pools_degraded MachineConfigPools that are degraded, by the condition that is True, RenderDegraded or NodeDegraded, and its reason.
# TYPE poolboot_pools_degraded gauge
poolboot_pools_degraded{cluster="metal/edge",condition="NodeDegraded",pool="infra",reason="MachinesDegraded"} 1
poolboot_pools_degraded{cluster="metal/edge",condition="RenderDegraded",pool="infra",reason="DuplicateRole"} 2
`), "poolboot_boots_blocked", "poolboot_pools_degraded")).To(Succeed())
	})

	It("is told by the manager that leads only, and not while its cache is not in sync", func() {
		Expect(testutil.CollectAndCount(now)).To(BeZero())
		close(elected)
		broken = true
		Expect(testutil.CollectAndCount(now)).To(BeZero())
	})
})

// observed is all that a histogram of the manager has observed.
func observed(name string) float64 {
	GinkgoHelper()
	sum, err := scrape.Observed(ctrlmetrics.Registry, name, nil)
	Expect(err).NotTo(HaveOccurred())
	return sum
}

// zeros are the label values of the manager's series of a metric that are 0.
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

var _ = Describe("What happens", func() {
	It("is counted without the name of any object but clusters and pools", func() {
		boot := config("machine-a", "", nil)
		begun := metav1.NewTime(time.Now().Add(-time.Hour))
		boot.CreationTimestamp = begun
		boot.Status.Boot.HostChosenTime = &metav1.MicroTime{Time: begun.Add(time.Minute)}
		boot.Status.Boot.NodeReadyTime = &metav1.MicroTime{Time: begun.Add(40 * time.Minute)}
		before := observed("poolboot_boot_prepare_seconds")
		BootCompleted(boot)
		StageBlocked(boot, record.StagePreparing, bootstrapv1.LabelConflictReason)
		PoolConflictOfConfig(boot, ConflictMachine)
		PreRegistered(boot, "infra", NodeCreated)
		BootPrepared(1)
		TokenEvent(boot, bootstrapv1.EventTokenRotated)
		Expect(testutil.ToFloat64(boots.WithLabelValues("metal/edge", "infra", "Joining", "Done"))).To(Equal(1.0))
		Expect(observed("poolboot_boot_prepare_seconds") - before).To(Equal(1.0))
		Expect(observed("poolboot_boot_stage_seconds")).To(Equal((40 * time.Minute).Seconds()))
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
				Expect(family.Metric).To(HaveLen(len(record.Stages())), "each stage is there before a boot has passed it")
				for _, metric := range family.Metric {
					if metric.Histogram.GetSampleCount() == 0 {
						continue
					}
					buckets := metric.Histogram.Bucket
					Expect(buckets[len(buckets)-1].GetCumulativeCount()).To(Equal(uint64(1)), "an hour fits")
				}
			}
		}
	})

	It("is counted from 0, so that rate and increase see what happens first", func() {
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
		PreRegistered(config("machine-b", "", nil), "db", NodeTaken)
		NewPoolCounters(newPool("db", "db", nil))
		Expect(testutil.ToFloat64(preRegistrations.WithLabelValues("metal/edge", "db", NodeTaken))).To(Equal(1.0), "what was counted stays")
	})

	It("is named as Prometheus wants it", func() {
		registry := prometheus.NewPedanticRegistry()
		for _, c := range []prometheus.Collector{boots, stageSeconds, prepareSeconds, conflicts, preRegistrations, tokenEvents, &StateCollector{}} {
			Expect(registry.Register(c)).To(Succeed())
		}
		Expect(testutil.GatherAndLint(registry)).To(BeEmpty())
	})
})
