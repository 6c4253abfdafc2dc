package workload_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("Who approves certificates in a workload cluster", func() {
	var (
		asked    atomic.Int32
		allowed  atomic.Bool
		failure  error
		clock    *clocktesting.FakePassiveClock
		approval *workload.Approval
		w        client.Client
	)
	BeforeEach(func() {
		asked.Store(0)
		allowed.Store(false)
		failure = nil
		clock = clocktesting.NewFakePassiveClock(time.Now())
		approval = &workload.Approval{Clock: clock}
		w = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				asked.Add(1)
				review := object.(*authorizationv1.SubjectAccessReview)
				Expect(review.Spec.Groups).To(ConsistOf("system:bootstrappers", "system:bootstrappers:poolboot", "system:authenticated"))
				Expect(review.Spec.User).To(HavePrefix("system:bootstrap:"))
				Expect(*review.Spec.ResourceAttributes).To(Equal(authorizationv1.ResourceAttributes{
					Group: "certificates.k8s.io", Version: "*", Resource: "certificatesigningrequests", Subresource: "nodeclient", Verb: "create"}))
				review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: allowed.Load(), Reason: "the binding"}
				return failure
			},
		})
	})
	pass := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	It("is asked once a minute and cluster, however many hosts boot", func(ctx SpecContext) {
		var hosts sync.WaitGroup
		for range 5000 {
			hosts.Go(func() {
				defer GinkgoRecover()
				Expect(approval.Check(ctx, w, "edge")).To(Succeed())
			})
		}
		hosts.Wait()
		Expect(asked.Load()).To(BeEquivalentTo(1))
		Expect(approval.Check(ctx, w, "another")).To(Succeed())
		Expect(asked.Load()).To(BeEquivalentTo(2))
		allowed.Store(true)
		pass(59 * time.Second)
		Expect(approval.Check(ctx, w, "edge")).To(Succeed())
		pass(time.Second)
		Expect(approval.Check(ctx, w, "edge")).To(MatchError(ContainSubstring("the binding")))
		Expect(asked.Load()).To(BeEquivalentTo(3))
	})

	It("is asked again soon where somebody has to change it, and at once when there was no answer", func(ctx SpecContext) {
		allowed.Store(true)
		for range 2 {
			Expect(approval.Check(ctx, w, "edge")).To(BeAssignableToTypeOf(&join.AutoApprovedError{}))
		}
		Expect(asked.Load()).To(BeEquivalentTo(1))
		pass(10 * time.Second)
		failure = errors.New("no quorum")
		for range 2 {
			Expect(approval.Check(ctx, w, "edge")).To(MatchError(ContainSubstring("no quorum")))
		}
		Expect(asked.Load()).To(BeEquivalentTo(3))
		allowed.Store(false)
		failure = nil
		Expect(approval.Check(ctx, w, "edge")).To(Succeed())
	})
})
