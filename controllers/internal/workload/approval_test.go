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

var _ = Describe("The check for automatic approval of certificates in a workload cluster", func() {
	var (
		reviews  atomic.Int32
		allowed  atomic.Bool
		err      error
		clock    *clocktesting.FakeClock
		approval *workload.ApprovalChecker
		w        client.Client
	)
	BeforeEach(func() {
		reviews.Store(0)
		allowed.Store(false)
		err = nil
		clock = clocktesting.NewFakeClock(time.Now())
		approval = &workload.ApprovalChecker{}
		approval.Clock = clock
		w = interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Create: func(_ context.Context, _ client.WithWatch, object client.Object, _ ...client.CreateOption) error {
				reviews.Add(1)
				review := object.(*authorizationv1.SubjectAccessReview)
				Expect(review.Spec.Groups).To(ConsistOf("system:bootstrappers", "system:bootstrappers:poolboot", "system:authenticated"))
				Expect(review.Spec.User).To(HavePrefix("system:bootstrap:"))
				Expect(*review.Spec.ResourceAttributes).To(Equal(authorizationv1.ResourceAttributes{
					Group: "certificates.k8s.io", Version: "*", Resource: "certificatesigningrequests", Subresource: "nodeclient", Verb: "create"}))
				review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: allowed.Load(), Reason: "the binding"}
				return err
			},
		})
	})
	advance := func(d time.Duration) { clock.SetTime(clock.Now().Add(d)) }

	It("sends one request per cluster and minute, however many hosts boot", func(ctx SpecContext) {
		var hosts sync.WaitGroup
		for range 5000 {
			hosts.Go(func() {
				defer GinkgoRecover()
				Expect(approval.Check(ctx, w, "edge")).To(Succeed())
			})
		}
		hosts.Wait()
		Expect(reviews.Load()).To(BeEquivalentTo(1))
		Expect(approval.Check(ctx, w, "another")).To(Succeed())
		Expect(reviews.Load()).To(BeEquivalentTo(2))
		allowed.Store(true)
		advance(59 * time.Second)
		Expect(approval.Check(ctx, w, "edge")).To(Succeed())
		advance(time.Second)
		Expect(approval.Check(ctx, w, "edge")).To(MatchError(ContainSubstring("the binding")))
		Expect(reviews.Load()).To(BeEquivalentTo(3))
	})

	It("is repeated soon when the cluster approves automatically, and immediately after an error", func(ctx SpecContext) {
		allowed.Store(true)
		for range 2 {
			Expect(approval.Check(ctx, w, "edge")).To(BeAssignableToTypeOf(&join.AutoApprovedError{}))
		}
		Expect(reviews.Load()).To(BeEquivalentTo(1))
		advance(10 * time.Second)
		err = errors.New("no quorum")
		for range 2 {
			Expect(approval.Check(ctx, w, "edge")).To(MatchError(ContainSubstring("no quorum")))
		}
		Expect(reviews.Load()).To(BeEquivalentTo(3))
		allowed.Store(false)
		err = nil
		Expect(approval.Check(ctx, w, "edge")).To(Succeed())
	})
})
