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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/timeline"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/figures"
)

func TestMetrics(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "the manager's metrics")
}

// config is a PoolbootConfig of the pool infra whose Node is in a state, by the condition NodeInPool; none when it is empty.
func config(name, reason string, labels map[string]string) *bootstrapv1.PoolbootConfig {
	c := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}}}
	for key, value := range labels {
		c.Labels[key] = value
	}
	c.Status.Pool = "infra"
	if reason != "" {
		c.Status.Node = &bootstrapv1.NodeReference{Name: name, UID: "1"}
		status := metav1.ConditionFalse
		if reason == bootstrapv1.NodeReadyInPoolReason {
			status = metav1.ConditionTrue
		}
		c.Annotations = map[string]string{bootstrapv1.TokenHashAnnotation: bootstrapv1.TokenRevoked}
		c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.NodeInPoolCondition, Status: status, Reason: reason, LastTransitionTime: metav1.Now()}}
	}
	return c
}

var _ = Describe("What there is now", func() {
	var (
		now     *Now
		elected chan struct{}
		broken  bool
	)
	BeforeEach(func() {
		scheme := runtime.NewScheme()
		Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
		ours := map[string]string{clusterv1.WatchLabel: "ours"}
		elected, broken = make(chan struct{}), false
		now = &Now{Elected: elected, Configs: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			config("a", bootstrapv1.NodeReadyInPoolReason, ours), config("b", bootstrapv1.NodeReadyInPoolReason, nil),
			config("c", bootstrapv1.NodeMissingReason, nil), config("d", "", nil),
		).WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
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
poolboot_boots{cluster="metal/edge",pool="infra",stage="NotReady"} 1
poolboot_boots{cluster="metal/edge",pool="infra",stage="Pending"} 1
poolboot_boots{cluster="metal/edge",pool="infra",stage="Ready"} 2
# HELP poolboot_nodes Nodes of PoolbootConfigs by state: Ready, or the reason of the condition NodeInPool.
# TYPE poolboot_nodes gauge
poolboot_nodes{cluster="metal/edge",pool="infra",state="NodeMissing"} 1
poolboot_nodes{cluster="metal/edge",pool="infra",state="Ready"} 2
`))).To(Succeed())
		now.WatchFilterValue = "ours"
		Expect(testutil.CollectAndCount(now)).To(Equal(2))
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
	sum, err := figures.Observed(ctrlmetrics.Registry, name, nil)
	Expect(err).NotTo(HaveOccurred())
	return sum
}

var _ = Describe("What happens", func() {
	It("is counted without the name of any object but clusters and pools", func() {
		boot := config("machine-a", "", nil)
		begun := metav1.NewTime(time.Now().Add(-time.Hour))
		boot.CreationTimestamp = begun
		boot.Status.Boot.HostChosenTime = &metav1.MicroTime{Time: begun.Add(time.Minute)}
		boot.Status.Boot.NodeReadyTime = &metav1.MicroTime{Time: begun.Add(40 * time.Minute)}
		before := observed("poolboot_boot_prepare_seconds")
		Over(boot)
		HeldUp(boot, timeline.Preparing, bootstrapv1.LabelConflictReason)
		ConflictOf(boot, OfMachine)
		PreRegistered(boot, "infra", NodeCreated)
		Prepared(1)
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
				Expect(family.Metric).To(HaveLen(2))
				for _, metric := range family.Metric {
					buckets := metric.Histogram.Bucket
					Expect(buckets[len(buckets)-1].GetCumulativeCount()).To(Equal(uint64(1)), "an hour fits")
				}
			}
		}
	})

	It("is named as Prometheus wants it", func() {
		registry := prometheus.NewPedanticRegistry()
		for _, c := range []prometheus.Collector{boots, stageSeconds, prepareSeconds, conflicts, preRegistrations, tokenEvents, &Now{}} {
			Expect(registry.Register(c)).To(Succeed())
		}
		Expect(testutil.GatherAndLint(registry)).To(BeEmpty())
	})
})
