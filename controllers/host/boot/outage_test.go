package boot

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("A workload cluster that", func() {
	var (
		w      *world
		calls  int
		answer error
	)
	// sendRequestDuring sends the host's request while the cluster's API server answers every write with an error.
	sendRequestDuring := func(ctx context.Context, err error) {
		GinkgoHelper()
		w, calls, answer = newSetting().world(), 0, err
		w.clusters.workload = interceptor.NewClient(w.workload, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if _, ok := o.(*authorizationv1.SubjectAccessReview); ok {
					return nil
				}
				if calls++; answer != nil {
					return answer
				}
				return c.Create(ctx, o, opts...)
			},
		})
		w.reconciler.rights.Store(clusterRights{cluster: newSetting().cluster.UID}, true)
		_, _ = w.sendRequest(ctx)
		Expect(calls).To(Equal(1))
	}
	message := func(ctx context.Context) string {
		GinkgoHelper()
		return conditions.GetMessage(w.config(ctx), bootstrapv1.BootPreparedCondition)
	}

	It("does not answer is tried by one boot at a time, so hosts of other clusters do not wait, and is used again after its first answer", func(ctx SpecContext) {
		sendRequestDuring(ctx, context.DeadlineExceeded)
		expectNotPrepared(ctx, w, bootstrapv1.WorkloadClusterUnreachableReason, "can't be reached", "deadline")
		for range 3 {
			result, err := w.reconcile(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(retryInterval))
		}
		Expect(calls).To(Equal(1), "it is not called again so soon")

		By("letting one boot try when the retry is due, and no other boot in the meantime")
		edge := client.ObjectKeyFromObject(newSetting().cluster)
		due := func() {
			w.reconciler.outages.down[edge] = outage{until: time.Now().Add(-time.Second), err: context.DeadlineExceeded}
		}
		due()
		Expect(w.reconciler.outages.check(edge)).To(Succeed())
		Expect(w.reconciler.outages.check(edge)).To(MatchError(context.DeadlineExceeded))
		Expect(w.reconciler.outages.check(client.ObjectKey{Name: "another"})).To(Succeed())

		due()
		answer = nil
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.reconciler.outages.down).To(BeEmpty())
	})

	DescribeTable("refuses a request is reported with the remedy, and not as an outage:",
		func(ctx SpecContext, refusal error) {
			sendRequestDuring(ctx, refusal)
			Expect(conditions.GetReason(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(Equal(bootstrapv1.BootFailedReason))
			Expect(message(ctx)).To(And(ContainSubstring("Secret metal/edge-kubeconfig"), ContainSubstring("administrator")))
			Expect(w.reconciler.outages.down).To(BeEmpty())
		},
		Entry("403", apierrors.NewForbidden(corev1.Resource("nodes"), machineName, errors.New("no"))),
		Entry("401", apierrors.NewUnauthorized("who are you")),
	)

	It("has an invalid kubeconfig is reported with the error and the remedy", func(ctx SpecContext) {
		w = newSetting().world()
		w.reconciler.ClusterCache = workload.Restrict(clustercache.NewFakeEmptyClusterCache(), w.management)
		result, err := w.sendRequest(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(retryInterval))
		expectNotPrepared(ctx, w, bootstrapv1.KubeconfigInvalidReason, "Secret metal/edge-kubeconfig with the kubeconfig of the Cluster does not exist: create it")
		Expect(w.reconciler.outages.down).To(BeEmpty())
	})
})
