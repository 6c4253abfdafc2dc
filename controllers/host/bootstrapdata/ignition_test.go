package bootstrapdata

import (
	"strings"
	"time"
	"unicode/utf8"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// maxEventNote is the maximum length of the note of an event: the API server refuses events with a longer one.
const maxEventNote = 1024

var _ = Describe("A first boot in which Ignition fails", func() {
	now := time.Now()
	failed := bootstrapv1.IgnitionFailure{ReportedTime: metav1.NewMicroTime(now), Stage: "files", Log: "first\nno space left on device"}
	at := func(after time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(now.Add(after))) }
	newFailed := func(change func(*bootstrapv1.PoolbootConfig)) *site {
		return newSite(newCluster(), newMachine(nil), newPool("worker"), newConfig(func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.IgnitionFailure = failed
			change(c)
		}))
	}

	It("is a condition, an event once, and makes the PoolbootConfig not Ready", func(ctx SpecContext) {
		s := newFailed(func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.ServedTime = at(-time.Minute) })
		config := s.settle(ctx)
		condition := conditions.Get(config, bootstrapv1.IgnitionSucceededCondition)
		Expect(condition).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.IgnitionFailedReason),
			HaveField("Message", ContainSubstring("stage files (no space left on device)"))))
		Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.IgnitionFailedReason))
		Expect(s.newEvents()).To(ConsistOf(HavePrefix("Warning " + bootstrapv1.IgnitionFailedReason)))
		s.settle(ctx)
		Expect(s.newEvents()).To(BeEmpty())
	})

	DescribeTable("is resolved",
		func(ctx SpecContext, change func(*bootstrapv1.PoolbootConfig), status metav1.ConditionStatus, reason string) {
			config := newFailed(change).settle(ctx)
			Expect(conditions.Get(config, bootstrapv1.IgnitionSucceededCondition)).To(And(HaveField("Status", status), HaveField("Reason", reason)))
			Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		},
		Entry("when the host is served its configuration again", func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.ServedTime = at(time.Second) },
			metav1.ConditionUnknown, bootstrapv1.IgnitionRetriedReason),
		Entry("when the host requests its configuration again", func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.RequestedTime = at(time.Second) },
			metav1.ConditionUnknown, bootstrapv1.IgnitionRetriedReason),
		Entry("when the host has joined", func(c *bootstrapv1.PoolbootConfig) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked))
		}, metav1.ConditionTrue, bootstrapv1.IgnitionSucceededReason),
	)

	It("has an event that the API server accepts, however long the last line of the log is", func(ctx SpecContext) {
		s := newFailed(func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.IgnitionFailure.Log = "first\n" + strings.Repeat("ü", 2000)
		})
		config := s.settle(ctx)
		Expect(s.newEvents()).To(ConsistOf(And(HavePrefix("Warning "+bootstrapv1.IgnitionFailedReason), ContainSubstring("status.requests.ignitionFailure.log"))))
		message := conditions.GetMessage(config, bootstrapv1.IgnitionSucceededCondition)
		Expect(len(message)).To(BeNumerically("<=", maxEventNote))
		Expect(utf8.ValidString(message)).To(BeTrue())
	})

	It("is not reported without a failure", func(ctx SpecContext) {
		config := newFailed(func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.IgnitionFailure = bootstrapv1.IgnitionFailure{} }).settle(ctx)
		Expect(conditions.Has(config, bootstrapv1.IgnitionSucceededCondition)).To(BeFalse())
	})

	const misfit = "kubelet v1.37.0 is newer than the API server, v1.36.3"

	It("is a condition of its own, with both versions, if Ignition succeeded and the kubelet does not fit the cluster", func(ctx SpecContext) {
		s := newFailed(func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Requests.ServedTime = at(-time.Minute)
			c.Status.Requests.IgnitionFailure.Stage, c.Status.Requests.IgnitionFailure.Log = "versions", misfit
		})
		config := s.settle(ctx)
		Expect(conditions.Get(config, bootstrapv1.VersionsFitCondition)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.VersionSkewReason),
			HaveField("Message", HavePrefix("the host does not join, because "+misfit+": provision it with an image that fits, or upgrade the control plane"))))
		Expect(conditions.Has(config, bootstrapv1.IgnitionSucceededCondition)).To(BeFalse())
		Expect(reasonOf(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.VersionSkewReason))
		Expect(s.newEvents()).To(ConsistOf(HavePrefix("Warning " + bootstrapv1.VersionSkewReason)))
		Expect(conditions.Get(s.settle(ctx), bootstrapv1.VersionsFitCondition)).To(Equal(conditions.Get(config, bootstrapv1.VersionsFitCondition)))
		Expect(s.newEvents()).To(BeEmpty())

		for _, change := range []func(*bootstrapv1.PoolbootConfig){
			func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.ServedTime = at(time.Second) },
			func(c *bootstrapv1.PoolbootConfig) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked))
			},
		} {
			config := newFailed(func(c *bootstrapv1.PoolbootConfig) {
				c.Status.Requests.IgnitionFailure.Stage, c.Status.Requests.IgnitionFailure.Log = "versions", misfit
				change(c)
			}).settle(ctx)
			Expect(conditions.Has(config, bootstrapv1.VersionsFitCondition)).To(BeFalse())
			Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		}
	})
})
