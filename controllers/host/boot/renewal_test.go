package boot

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

var _ = Describe("A host that has its configuration", func() {
	var w *world

	// served prepares the boot of a host that got its configuration some time ago, and sets when its join credential
	// expires.
	served := func(ctx context.Context, ago, lifetime time.Duration) {
		GinkgoHelper()
		w = newSetting().world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		token := w.credentials(ctx)[0]
		token.Data["expiration"] = []byte(time.Now().Add(lifetime).UTC().Format(time.RFC3339))
		Expect(w.workload.Update(ctx, &token)).To(Succeed())
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Boot.PreparedTime = microTime(time.Now().Add(-ago - time.Second))
			c.Status.Requests.RequestedTime = microTime(time.Now().Add(-ago - 2*time.Second))
			c.Status.Boot.AnsweredRequestTime = c.Status.Requests.RequestedTime
			c.Status.Requests.ServedTime = microTime(time.Now().Add(-ago))
			c.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: time.Now().Add(lifetime)}
		})
	}
	expiration := func(ctx context.Context) time.Time {
		GinkgoHelper()
		expires, err := time.Parse(time.RFC3339, string(w.credentials(ctx)[0].Data["expiration"]))
		Expect(err).NotTo(HaveOccurred())
		return expires
	}

	expectGivenUp := func(ctx context.Context, why string) {
		GinkgoHelper()
		prepared := conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
		Expect(prepared).To(HaveValue(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.JoinCredentialExpiredReason),
			HaveField("Message", And(ContainSubstring(why), ContainSubstring("delete Machine "+machineName))))))
		Expect(w.newEvents()).To(ContainElement(HavePrefix("Warning " + bootstrapv1.JoinCredentialExpiredReason)))
	}

	It("keeps a valid credential if it takes long to join", func(ctx SpecContext) {
		served(ctx, time.Hour, time.Minute)
		result, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(expiration(ctx)).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
		Expect(result.RequeueAfter).To(BeNumerically("~", join.Lifetime/2, 10*time.Second))
		Expect(w.credentials(ctx)).To(HaveLen(1))
	})

	It("keeps a valid credential even if the config server stopped before it recorded its answer", func(ctx SpecContext) {
		served(ctx, time.Hour, time.Minute)
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) { c.Status.Requests.ServedTime = nil })
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)))
		Expect(expiration(ctx)).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
	})

	It("takes no writes while its credential does not expire soon", func(ctx SpecContext) {
		served(ctx, time.Minute, join.Lifetime)
		written := w.writes
		result, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.writes).To(Equal(written))
		Expect(result.RequeueAfter).To(BeNumerically("~", join.Lifetime/2, 10*time.Second))
	})

	It("is given up if it has not joined within joinPatience, and that is reported when its credential has expired", func(ctx SpecContext) {
		served(ctx, joinPatience+time.Minute, time.Minute)
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", time.Minute, 10*time.Second)))
		Expect(expiration(ctx)).To(BeTemporally("~", time.Now().Add(time.Minute), 10*time.Second))
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeTrue())

		served(ctx, joinPatience+time.Hour, -time.Minute)
		Expect(w.reconcile(ctx)).To(BeZero())
		expectGivenUp(ctx, "has expired")
	})

	It("gets its credential back, unchanged, if it could not be extended in time", func(ctx SpecContext) {
		served(ctx, time.Hour, -time.Minute)
		token := w.credentials(ctx)[0]
		Expect(w.workload.Delete(ctx, &token)).To(Succeed())
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)))
		Expect(expiration(ctx)).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
		again := w.credentials(ctx)[0]
		Expect(again.Data).To(And(HaveKeyWithValue("token-id", token.Data["token-id"]), HaveKeyWithValue("token-secret", token.Data["token-secret"])))
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeTrue())
	})

	DescribeTable("does not get its credential back, and a user must act,", func(ctx SpecContext, lifetime time.Duration, why string, change func(ctx context.Context)) {
		served(ctx, time.Hour, lifetime)
		token := w.credentials(ctx)[0]
		Expect(w.workload.Delete(ctx, &token)).To(Succeed())
		change(ctx)
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.credentials(ctx)).To(BeEmpty())
		expectGivenUp(ctx, why)
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.newEvents()).To(BeEmpty(), "it is reported once")

		Expect(w.sendRequest(ctx)).To(BeZero(), "a new request continues the boot")
		Expect(w.credentials(ctx)).To(HaveLen(1))
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeTrue())
	},
		Entry("when a user deleted it", time.Minute, "was deleted before it expired", func(context.Context) {}),
		Entry("when its overlay does not exist", -time.Minute, "does not exist", func(ctx context.Context) {
			for _, overlay := range w.overlays(ctx) {
				Expect(w.management.Delete(ctx, &overlay)).To(Succeed())
			}
		}),
	)

	It("needs no user to act if its kubelet has registered", func(ctx SpecContext) {
		served(ctx, joinPatience+time.Hour, -time.Minute)
		change(ctx, w.workload, w.node(ctx), func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeTrue())
	})

	It("stays prepared if its credential cannot be extended, and the extension is retried", func(ctx SpecContext) {
		served(ctx, time.Hour, time.Minute)
		w.before = func(int) error { return errors.New("not now") }
		_, err := w.reconcile(ctx)
		Expect(err).To(HaveOccurred())
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeTrue())
		w.before = nil
		_, err = w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(expiration(ctx)).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
	})
})
