package boot

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("A join credential", func() {
	It("is not created, and nothing else is, until the cluster stops approving the certificates of all bootstrap tokens", func(ctx SpecContext) {
		w := newSetting().world()
		clock := clocktesting.NewFakeClock(time.Now())
		w.reconciler.approval.Clock = clock
		w.approval = authorizationv1.SubjectAccessReviewStatus{Allowed: true,
			Reason: `RBAC: allowed by ClusterRoleBinding "auto-approve-csrs-for-group" of ClusterRole "nodeclient" to Group "system:bootstrappers"`}
		result, err := w.sendRequest(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(autoApprovedRetry))
		expectNotPrepared(ctx, w, bootstrapv1.CertificatesAutoApprovedReason, `ClusterRoleBinding "auto-approve-csrs-for-group"`,
			"certificatesigningrequests/nodeclient", "system:bootstrappers:kubeadm:default-node-token")
		Expect(w.credentials(ctx)).To(BeEmpty())
		Expect(w.nodes(ctx)).To(BeEmpty())

		w.approval = authorizationv1.SubjectAccessReviewStatus{}
		clock.Step(autoApprovedRetry)
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})
})
