package update

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("The assignment of a host", func() {
	// scene is a host in a pool, and the number of assignments that were built.
	type scene struct {
		*Updates
		h      *host
		pools  []poolv1.MachineConfigPool
		offer  join.Offer
		builds int
	}
	newScene := func() *scene {
		w := newWorld(0)
		s := &scene{Updates: w.reconciler.Updates, pools: []poolv1.MachineConfigPool{
			*controllertest.NewPool(clusterKey, poolv1.RoleWorker), *controllertest.NewPool(clusterKey, "infra"),
		}}
		s.pools[1].Status.Configuration.Name = "rendered-infra-1"
		s.Offer = func() (join.Offer, error) { return s.offer, nil }
		s.document = func(context.Context, *host, poolContext) ([]byte, error) {
			s.builds++
			return fmt.Append(nil, s.builds), nil
		}
		config, machine, node := newObjects(hostName(0))
		s.h = &host{Host: rollout.HostOf(s.pools, config, machine, node)}
		return s
	}
	// builds returns how often the assignment is built when its revision is needed twice.
	builds := func(ctx context.Context, s *scene) int {
		GinkgoHelper()
		before := s.builds
		cluster := controllertest.NewCluster(clusterKey)
		cluster.Spec.ControlPlaneEndpoint.Host, cluster.Spec.ControlPlaneEndpoint.Port = "site.example", 6443
		for range 2 {
			Expect(s.revisionOf(ctx, s.h, s.poolContextOf(ctx, cluster, &s.pools[1], s.pools))).Error().NotTo(HaveOccurred())
		}
		return s.builds - before
	}

	DescribeTable("is built again if something changes that it depends on:", func(ctx SpecContext, change func(*scene)) {
		s := newScene()
		Expect(builds(ctx, s)).To(Equal(1))
		Expect(builds(ctx, s)).To(Equal(0))
		change(s)
		Expect(builds(ctx, s)).To(Equal(1))
	},
		Entry("the configuration of the pool", func(s *scene) { s.pools[1].Status.Configuration.Name = "rendered-infra-2" }),
		Entry("the pool", func(s *scene) { s.pools[1].Generation++ }),
		Entry("the worker pool, from which it inherits", func(s *scene) { s.pools[0].Generation++ }),
		Entry("the number of pools", func(s *scene) { s.pools = append(s.pools, poolv1.MachineConfigPool{}) }),
		Entry("the agent", func(s *scene) { s.offer.Agent.SHA512 = map[string]string{"amd64": "6"} }),
		Entry("the CA of the config server", func(s *scene) { s.offer.ServerCA = []byte("another") }),
		Entry("the CA of the cluster", func(s *scene) {
			s.ClusterCache.(*controllertest.ClusterCache).RESTConfig.CAData = []byte("another")
		}),
		Entry("the PoolbootConfig", func(s *scene) { s.h.Config.Generation++ }),
		Entry("an annotation", func(s *scene) { s.h.Config.Annotations[bootstrapv1.ForceUpdateAnnotation] = "1" }),
		Entry("the derived labels", func(s *scene) { s.h.Config.Status.DerivedNodeLabels = map[string]string{"a": "b"} }),
		Entry("the BareMetalHost", func(s *scene) { s.h.Config.Status.HostRef.UID = "another" }),
		Entry("the labels of the Machine", func(s *scene) { s.h.Machine.Labels["a"] = "b" }),
		Entry("the taints of the Machine", func(s *scene) {
			s.h.Machine.Spec.Taints = []clusterv1.MachineTaint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}}
		}),
	)

	It("is remembered in a few bytes, whatever annotations users write, and distinguishes all of them", func(ctx SpecContext) {
		s := newScene()
		s.h.Config.Annotations = map[string]string{"a": "b c:d"}
		Expect(builds(ctx, s)).To(Equal(1))
		s.h.Config.Annotations = map[string]string{"a": "b", "c": "d"}
		Expect(builds(ctx, s)).To(Equal(1))
		s.h.Config.Annotations = map[string]string{"a": strings.Repeat("b", 200_000)}
		Expect(len(s.h.version(poolContext{}))).To(BeNumerically("<", 100))
	})

	It("is built each time if it depends on a BareMetalHost", func(ctx SpecContext) {
		s := newScene()
		s.h.Node.Spec.ProviderID = ""
		Expect(builds(ctx, s)).To(Equal(2))
	})
})

var _ = It("A host keeps its condition while the rendered config of its pool is missing, because the pool creates it again", func(ctx SpecContext) {
	w := newWorld(1)
	w.adopt(ctx)
	before := w.updated(ctx, 0)
	w.reconciler.document = func(context.Context, *host, poolContext) ([]byte, error) {
		return nil, apierrors.NewNotFound(poolv1.GroupVersion.WithResource("machineconfigs").GroupResource(), "rendered-worker-2")
	}
	w.render(ctx, "rendered-worker-2")
	Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(ContainSubstring("rendered-worker-2")))
	Expect(w.updated(ctx, 0)).To(Equal(before))
})
