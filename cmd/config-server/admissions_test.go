package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("Hosts that request to be admitted at the same time", func() {
	const token = "an-enrollment-token-for-hosts-that-ask-at-once"
	record := func(ctx context.Context, recorder *admissionRecorder, e *poolv1.Enrollment, i int) error {
		found := enrollmentOf(e)
		return recorder.RecordAdmissionRequest(ctx, found, fmt.Sprintf("edge-%d", i), "192.0.2.7", time.Now())
	}
	// counted returns a client that counts the writes to status.
	counted := func(writes *atomic.Int32) client.Client {
		c, err := client.NewWithWatch(plane.Config, client.Options{Scheme: admin.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		return interceptor.NewClient(c, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				writes.Add(1)
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		})
	}

	It("are all recorded by two replicas while the manager writes, in few writes, and those beyond the maximum get an error", func(ctx SpecContext) {
		e := newEnrollment(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "at-once"}, token, time.Now().Add(time.Hour))
		var writes atomic.Int32
		replicas := []*admissionRecorder{newAdmissionRecorder(counted(&writes)), newAdmissionRecorder(counted(&writes))}
		ctxManager, stopManager := context.WithCancel(ctx)
		var manager, hosts sync.WaitGroup
		manager.Go(func() { // writes with a lock all the time, as the manager does
			defer GinkgoRecover()
			for ctxManager.Err() == nil {
				now := &poolv1.Enrollment{}
				Expect(client.IgnoreNotFound(admin.Get(ctx, client.ObjectKeyFromObject(e), now))).To(Succeed())
				before := now.DeepCopy()
				now.Status.UsedCount = new(int32(len(now.Status.Requests)))
				err := admin.Status().Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
				Expect(err == nil || apierrors.IsConflict(err)).To(BeTrue())
			}
		})
		const requests = poolv1.MaxEnrollmentRequests + 20
		errs := make([]error, requests)
		for i := range requests {
			hosts.Go(func() { errs[i] = record(ctx, replicas[i%2], e, i) })
		}
		hosts.Wait()
		stopManager()
		manager.Wait()

		Expect(admin.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
		recorded := map[string]bool{}
		for _, request := range e.Status.Requests {
			Expect(request).To(And(HaveField("Address", "192.0.2.7"), HaveField("TokenSHA256", e.Status.TokenSHA256)))
			recorded[request.Name] = true
		}
		Expect(recorded).To(HaveLen(poolv1.MaxEnrollmentRequests))
		for i, err := range errs {
			if recorded[fmt.Sprintf("edge-%d", i)] {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(errors.Is(err, server.ErrEnrollmentFull)).To(BeTrue(), "%d: %v", i, err)
			}
		}
		Expect(writes.Load()).To(BeNumerically("<", poolv1.MaxEnrollmentRequests/2))
		for _, replica := range replicas {
			Eventually(ctx, func() int {
				replica.mu.Lock()
				defer replica.mu.Unlock()
				return len(replica.next)
			}).Should(BeZero(), "nothing is kept of an Enrollment without requests")
		}
	})

	It("get an error if their request can't be recorded, and one that disconnects does not affect the others", func(ctx SpecContext) {
		e := newEnrollment(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "in-vain"}, token, time.Now().Add(time.Hour))
		reads, read := make(chan struct{}), make(chan struct{})
		c, err := client.NewWithWatch(plane.Config, client.Options{Scheme: admin.Scheme()})
		Expect(err).NotTo(HaveOccurred())
		recorder := newAdmissionRecorder(interceptor.NewClient(c, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads <- struct{}{}
				<-read
				return c.Get(ctx, key, o, opts...)
			},
		}))
		leaving, leave := context.WithCancel(ctx)
		left, stayed := make(chan error, 1), make(chan error, 1)
		go func() { left <- record(leaving, recorder, e, 1) }()
		Eventually(reads).Should(Receive())
		go func() { stayed <- record(ctx, recorder, e, 2) }()
		leave()
		Eventually(left).Should(Receive(MatchError(context.Canceled)))
		close(read)
		Eventually(reads).Should(Receive())
		Eventually(stayed).Should(Receive(BeNil()))
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
		Expect(e.Status.Requests).To(HaveLen(2))

		Expect(admin.Delete(ctx, e)).To(Succeed())
		go func() { stayed <- record(ctx, recorder, e, 3) }()
		Eventually(reads).Should(Receive())
		Eventually(stayed).Should(Receive(Satisfy(apierrors.IsNotFound)))
	})

	It("leave the manager time to admit hosts, however fast they retry", func(ctx SpecContext) {
		e := newEnrollment(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "on-and-on"}, token, time.Now().Add(time.Hour))
		recorder := newAdmissionRecorder(admin)
		ctxHosts, stopHosts := context.WithCancel(ctx)
		var hosts sync.WaitGroup
		for range 4 {
			hosts.Go(func() {
				for ctxHosts.Err() == nil {
					_ = record(ctxHosts, recorder, e, 1)
				}
			})
		}
		admitted, conflicts := 0, 0
		for admitted+conflicts < 20 {
			now := &poolv1.Enrollment{}
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(e), now)).To(Succeed())
			for range 5 { // as many reads as the manager needs before it admits a host
				Expect(admin.Get(ctx, client.ObjectKeyFromObject(e), &poolv1.Enrollment{})).To(Succeed())
			}
			before := now.DeepCopy()
			now.SetAdmittedNames(append(now.AdmittedNames(), fmt.Sprintf("edge-%d", 100+admitted)))
			if err := admin.Patch(ctx, now, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); apierrors.IsConflict(err) {
				conflicts++
			} else {
				Expect(err).NotTo(HaveOccurred())
				admitted++
			}
		}
		stopHosts()
		hosts.Wait()
		Expect(admitted).To(BeNumerically(">", conflicts))
	})

	It("are not removed by an attacker with the rights of the config server", func(ctx SpecContext) {
		e := newEnrollment(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kept-requests"}, token, time.Now().Add(time.Hour))
		Expect(record(ctx, newAdmissionRecorder(admin), e, 1)).To(Succeed())
		own := asConfigServer()
		for status, refusal := range map[string]string{
			`{"requests":null}`: "cannot remove a request",
			`{"requests":[]}`:   "cannot remove a request",
			`{"requests":[{"name":"edge-2","address":"192.0.2.8","requestedTime":"2026-01-01T00:00:00.000000Z"}]}`: "cannot remove a request",
			`{"tokenSHA256":null}`: "can only change status.requests",
			`{"usedCount":0}`:      "can only change status.requests",
		} {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
			Eventually(func() error { return own.Status().Patch(ctx, e.DeepCopy(), patch) }).Should(MatchError(ContainSubstring(refusal)), status)
		}
		Expect(record(ctx, newAdmissionRecorder(own), e, 2)).To(Succeed())
	})
})
