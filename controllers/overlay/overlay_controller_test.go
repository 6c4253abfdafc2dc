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

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

func TestOverlay(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Overlay controller")
}

var _ = DescribeTable("An overlay Secret", func(ctx SpecContext, expires string, boot bootstrapv1.BootStatus, requeueAfter OmegaMatcher, deleted bool) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "poolboot-system", Name: "overlay-1",
		Labels:      map[string]string{bootstrapv1.OverlayLabel: "1"},
		Annotations: map[string]string{bootstrapv1.OverlayExpiresAnnotation: expires, bootstrapv1.CredentialIDAnnotation: "abcdef"}}}
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge", UID: "1"}, Status: bootstrapv1.PoolbootConfigStatus{Boot: boot}}
	c := controllertest.NewClientBuilder(secret, config).WithIndex(config, UIDIndex, UID).Build()
	result, err := (&Reconciler{Client: c, Secrets: controllertest.NewCache(c)}).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)})
	Expect(err).NotTo(HaveOccurred())
	Expect(result.RequeueAfter).To(requeueAfter)
	Expect(apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(secret), secret))).To(Equal(deleted))
},
	Entry("is kept until its join credential expires", expiresIn(10*time.Minute), noCredential, BeNumerically("~", 10*time.Minute, 5*time.Second), false),
	Entry("is deleted after its join credential expired", expiresIn(-time.Second), noCredential, BeZero(), true),
	Entry("is kept while its host can join with its join credential, which was extended", expiresIn(-time.Second), bootWithCredential("abcdef"), BeNumerically("==", join.Lifetime), false),
	Entry("is deleted if its host has another join credential", expiresIn(-time.Second), bootWithCredential("ghijkl"), BeZero(), true),
	Entry("is deleted if its join credential is recorded as lost", expiresIn(-time.Second), bootstrapv1.BootStatus{CredentialID: "abcdef"}, BeZero(), true),
	Entry("is kept if it has no valid time: Poolboot did not create it", "tomorrow", noCredential, BeZero(), false),
)

var _ = DescribeTable("A Secret in the namespace of the config server", func(ctx SpecContext, labels map[string]string, deleted bool) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "poolboot-system", Name: "assignment-1", Labels: labels}}
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge", UID: "1"}}
	c := controllertest.NewClientBuilder(secret, config).WithIndex(config, UIDIndex, UID).Build()
	r := &Reconciler{Client: c, Secrets: controllertest.NewCache(c), OverlayNamespace: "poolboot-system"}
	Expect(r.assignmentOf(ctx, config)).To(ConsistOf(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)}))
	Expect(r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(secret)})).To(BeZero())
	Expect(apierrors.IsNotFound(c.Get(context.Background(), client.ObjectKeyFromObject(secret), secret))).To(Equal(deleted))
},
	Entry("is kept if it is the assignment of a PoolbootConfig", map[string]string{bootstrapv1.AssignmentLabel: "1"}, false),
	Entry("is deleted if it is the assignment of a PoolbootConfig that does not exist", map[string]string{bootstrapv1.AssignmentLabel: "2"}, true),
	Entry("is kept if it is neither an overlay nor an assignment", nil, false),
)

// noCredential is the status of a host without a join credential.
var noCredential = bootstrapv1.BootStatus{}

func bootWithCredential(id string) bootstrapv1.BootStatus {
	return bootstrapv1.BootStatus{CredentialID: id, CredentialExpirationTime: &metav1.Time{Time: time.Now()}}
}

func expiresIn(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }
