package overlay

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

func TestOverlay(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Overlay controller")
}

var _ = DescribeTable("An overlay Secret", func(ctx SpecContext, expires string, left OmegaMatcher, deleted bool) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "poolboot-system", Name: "overlay-1",
		Annotations: map[string]string{bootstrapv1.OverlayExpiresAnnotation: expires}}}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	result, err := (&Reconciler{Client: c, overlays: c}).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)})
	Expect(err).NotTo(HaveOccurred())
	Expect(result.RequeueAfter).To(left)
	Expect(apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(secret), secret))).To(Equal(deleted))
},
	Entry("stays, and is looked at again, until its credential ends", in(10*time.Minute), BeNumerically("~", 10*time.Minute, 5*time.Second), false),
	Entry("goes when its credential has ended", in(-time.Second), BeZero(), true),
	Entry("stays when it does not say when that is: it is not Poolboot's", "tomorrow", BeZero(), false),
)

func in(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
