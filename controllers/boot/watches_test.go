package boot

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("A boot is reconciled", func() {
	var (
		s    *setting
		want []ctrl.Request
	)
	BeforeEach(func() {
		s = newSetting()
		s.config.Status.Requests.RequestedTime = microTime(time.Now())
		want = []ctrl.Request{{NamespacedName: client.ObjectKey{Namespace: namespace, Name: machineName}}}
	})

	It("when its Machine changes", func(ctx SpecContext) {
		Expect(workload.ConfigOfMachine(ctx, s.machine)).To(Equal(want))
		s.machine.Spec.Bootstrap.ConfigRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: machineName}
		Expect(workload.ConfigOfMachine(ctx, s.machine)).To(BeEmpty())
	})

	It("when its host changes", func(ctx SpecContext) {
		w := s.world()
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(Equal(want))
		s.host.Spec.ConsumerRef = nil
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(BeEmpty())
		s.host.Annotations = map[string]string{poolv1.HostPoolAnnotation: "infra"}
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(HaveExactElements(HaveField("Name", hostName)), "the config of a host without a Machine")
	})

	It("when the HardwareData of its host changes", func(ctx SpecContext) {
		w := s.world()
		data := &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hostName}}
		Expect(workload.ConfigOfHardware(ctx, w.management, data)).To(Equal(want))
		data.Name = "another"
		Expect(workload.ConfigOfHardware(ctx, w.management, data)).To(BeEmpty())
	})

	It("when its cluster or a pool of its cluster changes, as long as the boot needs something", func(ctx SpecContext) {
		w := s.world()
		Expect(toConfigs(w)(ctx, s.worker)).To(Equal(want))
		Expect(toConfigs(w)(ctx, s.cluster)).To(Equal(want))
		s.worker.Spec.ClusterName = "another"
		Expect(toConfigs(w)(ctx, s.worker)).To(BeEmpty())
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			c.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		})
		Expect(toConfigs(w)(ctx, s.cluster)).To(BeEmpty())
	})

	It("only when its host changes, while no host has sent a request", func(ctx SpecContext) {
		s.config.Status.Requests.RequestedTime = nil
		w := s.world()
		Expect(workload.ConfigOfHost(ctx, w.management, s.host)).To(Equal(want))
		Expect(toConfigs(w)(ctx, s.worker)).To(BeEmpty())
	})

	DescribeTable("when its config changes, but not for the writes of this controller:",
		func(before, after func(c *bootstrapv1.PoolbootConfig), again bool) {
			old := s.config
			old.ResourceVersion, old.Generation = "1", 1
			before(old)
			now := old.DeepCopy()
			now.ResourceVersion = "2"
			after(now)
			Expect(needsChanged().Update(event.UpdateEvent{ObjectOld: old, ObjectNew: now})).To(Equal(again))
		},
		Entry("the host sent another request",
			asItIs, func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Requests.RequestedTime = microTime(time.Now().Add(time.Second))
			}, true),
		Entry("the data Secret was created",
			func(c *bootstrapv1.PoolbootConfig) { c.Status.DataSecretName = "" },
			func(c *bootstrapv1.PoolbootConfig) { c.Status.DataSecretName = machineName }, true),
		Entry("the boot was prepared, with a credential that must be renewed from now on",
			asItIs, func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Boot.PreparedTime, c.Status.Boot.CredentialID = microTime(time.Now().Add(time.Second)), "abcdef"
			}, true),
		Entry("the host got its configuration",
			func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Boot.PreparedTime, c.Status.Boot.CredentialID = microTime(time.Now().Add(time.Second)), "abcdef"
			},
			func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Requests.ServedTime = microTime(time.Now().Add(time.Second))
			}, false),
		Entry("the spec changed", asItIs, func(c *bootstrapv1.PoolbootConfig) { c.Generation++ }, true),
		Entry("the pause ended",
			func(c *bootstrapv1.PoolbootConfig) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} },
			func(c *bootstrapv1.PoolbootConfig) { c.Annotations = nil }, true),
		Entry("the informer resynced", asItIs, func(c *bootstrapv1.PoolbootConfig) { c.ResourceVersion = "1" }, true),
		Entry("the Node was recorded",
			asItIs, func(c *bootstrapv1.PoolbootConfig) {
				c.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName, UID: "1"}
			}, false),
		Entry("the condition was set", asItIs, func(c *bootstrapv1.PoolbootConfig) {
			conditions.Set(c, metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.BootFailedReason})
		}, false),
		Entry("the boot was prepared",
			asItIs, func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Boot.PreparedTime = microTime(time.Now().Add(time.Second))
			}, false),
	)

	It("when the manager starts, if it needs something", func() {
		Expect(needsChanged().Create(event.CreateEvent{Object: s.config})).To(BeTrue())
		s.config.Status.Boot.PreparedTime = microTime(time.Now().Add(time.Second))
		Expect(needsChanged().Create(event.CreateEvent{Object: s.config})).To(BeFalse())
		Expect(needsChanged().Delete(event.DeleteEvent{Object: s.config})).To(BeFalse())
	})
})

// toConfigs returns the map function of the watches on Clusters and pools.
func toConfigs(w *world) handler.MapFunc { return workload.MapToConfigs(w.management, needsCluster) }

func asItIs(*bootstrapv1.PoolbootConfig) {}
