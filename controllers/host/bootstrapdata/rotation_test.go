package bootstrapdata

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

var _ = Describe("A token whose rotation a user requests", func() {
	newSiteWithToken := func(ctx context.Context, change ...func(*bootstrapv1.PoolbootConfig)) (*site, string) {
		GinkgoHelper()
		s := newSite(newCluster(), newMachine(role("infra")), newConfig(change...), newPool("worker"), newPool("infra"))
		s.settle(ctx)
		s.newEvents()
		return s, pointerIn(s.secret(ctx)).Token
	}
	annotate := func(ctx context.Context, s *site, annotations map[string]string) {
		GinkgoHelper()
		config := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx, key, config)).To(Succeed())
		for name, value := range annotations {
			metav1.SetMetaDataAnnotation(&config.ObjectMeta, name, value)
		}
		Expect(s.Update(ctx, config)).To(Succeed())
	}
	wanted := map[string]string{bootstrapv1.RotateTokenAnnotation: ""}
	expectRotated := func(ctx context.Context, s *site, config *bootstrapv1.PoolbootConfig, old string) {
		GinkgoHelper()
		pointer := pointerIn(s.secret(ctx))
		Expect(pointer.Token).To(And(HaveLen(43), Not(Equal(old))))
		Expect(pointer.URL).To(Equal(pointerURL))
		Expect(config.Annotations).To(haveToken(config, pointer.Token))
		Expect(config.Annotations).To(HaveKey(bootstrapv1.TokenRotatedAnnotation))
		Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.RotateTokenAnnotation))
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
	}

	It("is replaced in the data Secret, its hash is recorded, and the request is removed", func(ctx SpecContext) {
		s, old := newSiteWithToken(ctx)
		rotated := func() float64 {
			return scrape.Sum(metrics.Registry, "poolboot_token_events_total", map[string]string{"reason": bootstrapv1.EventTokenRotated})
		}
		before := rotated()
		annotate(ctx, s, wanted)
		expectRotated(ctx, s, s.settle(ctx), old)
		Expect(rotated() - before).To(Equal(1.0))
		Expect(s.newEvents()).To(ConsistOf(HavePrefix("Normal " + bootstrapv1.EventTokenRotated)))
		s.settle(ctx)
		Expect(s.newEvents()).To(BeEmpty())
	})

	It("is replaced even if it has expired", func(ctx SpecContext) {
		s, old := newSiteWithToken(ctx)
		annotate(ctx, s, map[string]string{
			bootstrapv1.RotateTokenAnnotation: "", bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateExpired)})
		config := s.settle(ctx)
		expectRotated(ctx, s, config, old)
		Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.TokenStateAnnotation))
	})

	It("keeps the id of the pointer after clusterctl move created its Machine again", func(ctx SpecContext) {
		s, old := newSiteWithToken(ctx)
		machine := newMachine(role("infra"))
		Expect(s.Get(ctx, key, machine)).To(Succeed())
		machine.UID = "another-uid"
		Expect(s.Update(ctx, machine)).To(Succeed())
		annotate(ctx, s, wanted)
		expectRotated(ctx, s, s.settle(ctx), old)
	})

	relabel := func(ctx context.Context, s *site, labels map[string]string) {
		GinkgoHelper()
		machine := newMachine(nil)
		Expect(s.Get(ctx, key, machine)).To(Succeed())
		machine.Labels = labels
		Expect(s.Update(ctx, machine)).To(Succeed())
	}

	It("is rotated while no pool is decided, with the role that its URL had", func(ctx SpecContext) {
		s, old := newSiteWithToken(ctx)
		Expect(s.Create(ctx, newPool("storage"))).To(Succeed())
		relabel(ctx, s, role("infra", "storage"))
		annotate(ctx, s, wanted)
		config := s.settle(ctx)
		Expect(conditions.GetReason(config, bootstrapv1.PoolDecidedCondition)).To(Equal(bootstrapv1.PoolConflictReason))
		pointer := pointerIn(s.secret(ctx))
		Expect(pointer.Token).NotTo(Equal(old), "an old token is ended also while labels wait for a person")
		Expect(pointer.URL).To(Equal(pointerURL))
		Expect(config.Annotations).To(haveToken(config, pointer.Token))

		relabel(ctx, s, role("infra"))
		expectRotated(ctx, s, s.settle(ctx), old)
		Expect(pointerIn(s.secret(ctx)).Token).To(Equal(pointer.Token))
	})

	It("gets a URL with the recorded pool, even if the pool is decided again at the same time", func(ctx SpecContext) {
		s, _ := newSiteWithToken(ctx)
		Expect(s.Create(ctx, newPool("storage"))).To(Succeed())
		relabel(ctx, s, role("storage"))
		annotate(ctx, s, wanted)
		pool := s.settle(ctx).Status.PoolRole
		Expect(pool).NotTo(BeEmpty())
		Expect(pointerIn(s.secret(ctx)).URL).To(Equal(strings.Replace(pointerURL, "/infra/", "/"+pool+"/", 1)))
	})

	It("is rotated with a role in its URL even if the previous URL had none", func(ctx SpecContext) {
		s, _ := newSiteWithToken(ctx)
		secret := s.secret(ctx)
		pointer := pointerIn(secret)
		pointer.URL = strings.Replace(pointerURL, "/infra/", "//", 1)
		value, err := pointer.Marshal()
		Expect(err).NotTo(HaveOccurred())
		secret.Data[bootstrapv1.DataSecretValueKey] = value
		Expect(s.Update(ctx, secret)).To(Succeed())
		Expect(s.Create(ctx, newPool("storage"))).To(Succeed())
		relabel(ctx, s, role("infra", "storage"))
		annotate(ctx, s, wanted)
		s.settle(ctx)
		Expect(pointerIn(s.secret(ctx)).URL).To(Equal(strings.Replace(pointerURL, "/infra/", "/worker/", 1)))
	})

	for _, late := range []bool{false, true} {
		DescribeTable("is rotated once, at whichever write the manager stops:", func(ctx SpecContext, failing int) {
			s, old := newSiteWithToken(ctx)
			annotate(ctx, s, wanted)
			s.Late, s.CrashAt = late, s.Writes+failing
			_, err := s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
			Expect(err).To(MatchError(controllertest.ErrCrash))
			left := pointerIn(s.secret(ctx)).Token
			expectRotated(ctx, s, s.settle(ctx), old)
			if left != old {
				Expect(pointerIn(s.secret(ctx)).Token).To(Equal(left), "which a host may have read by now")
			}
		},
			Entry("that of the Secret", 1),
			Entry("that of the record", 2),
		)
	}

	It("does not overwrite a change by another writer of its Secret", func(ctx SpecContext) {
		s, old := newSiteWithToken(ctx)
		annotate(ctx, s, wanted)
		restored := access.NewToken()
		s.CrashesAt = func(o client.Object) bool {
			if _, ok := o.(*corev1.Secret); ok {
				s.CrashesAt = nil
				other := s.secret(ctx)
				value, err := ignition.Pointer{URL: pointerURL, Token: restored}.Marshal()
				Expect(err).NotTo(HaveOccurred())
				other.Data[bootstrapv1.DataSecretValueKey] = value
				Expect(s.Update(ctx, other)).To(Succeed())
			}
			return false
		}
		expectRotated(ctx, s, s.settle(ctx), old)
		Expect(s.CrashesAt).To(BeNil())
		Expect(pointerIn(s.secret(ctx)).Token).To(Equal(restored))
	})

	DescribeTable("is not rotated, and an event reports why,", func(ctx SpecContext, annotations map[string]string, why string) {
		s, old := newSiteWithToken(ctx)
		annotate(ctx, s, wanted)
		annotate(ctx, s, annotations)
		config := s.settle(ctx)
		Expect(pointerIn(s.secret(ctx)).Token).To(Equal(old))
		Expect(config.Annotations).NotTo(HaveKey(bootstrapv1.RotateTokenAnnotation))
		Expect(s.newEvents()).To(ConsistOf(And(HavePrefix("Warning "+bootstrapv1.EventTokenNotRotated), ContainSubstring(why))))
	},
		Entry("if its Node was Ready", map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}, "delete Machine "+machineName),
	)

	It("is not rotated in an inline data Secret", func(ctx SpecContext) {
		s := newSite(newCluster(), newMachine(role("infra")), newConfig(inlineSource), newPool("worker"))
		annotate(ctx, s, wanted)
		Expect(s.settle(ctx).Annotations).NotTo(HaveKey(bootstrapv1.RotateTokenAnnotation))
		Expect(s.newEvents()).To(ContainElement(ContainSubstring(bootstrapv1.EventTokenNotRotated)))
	})
})
