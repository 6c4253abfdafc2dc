package boot

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// newExpiringWorld returns a world with a host that got its configuration an hour ago, and whose join credential
// expires in the given time.
func newExpiringWorld(ctx context.Context, in time.Duration) *world {
	GinkgoHelper()
	w := newSetting().world()
	Expect(w.sendRequest(ctx)).To(BeZero())
	token := w.credentials(ctx)[0]
	token.Data["expiration"] = []byte(time.Now().Add(in).UTC().Format(time.RFC3339))
	Expect(w.workload.Update(ctx, &token)).To(Succeed())
	change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
		c.Status.Requests.RequestedTime = microTime(time.Now().Add(-time.Hour - 2*time.Second))
		c.Status.Boot.AnsweredRequestTime = c.Status.Requests.RequestedTime
		c.Status.Boot.PreparedTime = microTime(time.Now().Add(-time.Hour - time.Second))
		c.Status.Requests.ServedTime = microTime(time.Now().Add(-time.Hour))
		c.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: time.Now().Add(in)}
	})
	return w
}

func pause(ctx context.Context, w *world, is bool) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}}
	Expect(w.management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	change(ctx, w.management, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(is) })
}

func credentialExpiration(ctx context.Context, w *world) time.Time {
	GinkgoHelper()
	expires, err := time.Parse(time.RFC3339, string(w.credentials(ctx)[0].Data["expiration"]))
	Expect(err).NotTo(HaveOccurred())
	return expires
}

var _ = Describe("While its Cluster is paused,", func() {
	It("the credential of a host that has its configuration is renewed, and nothing is written to the management cluster", func(ctx SpecContext) {
		w := newExpiringWorld(ctx, time.Minute)
		pause(ctx, w, true)
		before, written := w.config(ctx), w.writes
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", join.Lifetime/2))
		Expect(credentialExpiration(ctx, w)).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
		Expect(w.writes-written).To(Equal(1), "the credential's end")
		Expect(w.config(ctx)).To(Equal(before))

		pause(ctx, w, false)
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.config(ctx).Status.Boot.CredentialExpirationTime.Time).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
	})

	It("the credential of a host that boots from its data Secret is renewed", func(ctx SpecContext) {
		s := newSetting()
		s.inline(time.Now().Add(time.Minute))
		s.cluster.Spec.Paused = ptr.To(true)
		w := s.world()
		Expect(w.workload.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "bootstrap-token-abcdef"},
			Type:       "bootstrap.kubernetes.io/token",
			Data:       map[string][]byte{"token-id": []byte("abcdef"), "expiration": []byte(time.Now().Add(time.Minute).UTC().Format(time.RFC3339))},
		})).To(Succeed())
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", join.Lifetime/2))
		Expect(credentialExpiration(ctx, w)).To(BeTemporally("~", time.Now().Add(join.Lifetime), 10*time.Second))
		Expect(w.nodes(ctx)).To(BeEmpty(), "what is not prepared waits")
	})

	It("a credential that does not expire soon takes no writes", func(ctx SpecContext) {
		w := newExpiringWorld(ctx, join.Lifetime)
		pause(ctx, w, true)
		written := w.writes
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)))
		Expect(w.writes).To(Equal(written))
	})

	It("an unreachable workload cluster is tried again", func(ctx SpecContext) {
		w := newExpiringWorld(ctx, time.Minute)
		pause(ctx, w, true)
		w.clusters.down = true
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)))
		w.clusters.down = false
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", join.Lifetime/2))
	})

	It("the credential of a withdrawn boot is left to expire", func(ctx SpecContext) {
		w := newExpiringWorld(ctx, time.Minute)
		pause(ctx, w, true)
		host := &bmov1alpha1.BareMetalHost{}
		Expect(w.management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hostName}, host)).To(Succeed())
		change(ctx, w.management, host, func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning })
		written := w.writes
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.writes).To(Equal(written))
	})

	It("a credential that a user deleted stays deleted, and no host is prepared", func(ctx SpecContext) {
		w := newExpiringWorld(ctx, time.Minute)
		pause(ctx, w, true)
		token := w.credentials(ctx)[0]
		Expect(w.workload.Delete(ctx, &token)).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.credentials(ctx)).To(BeEmpty())
		pause(ctx, w, false)
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.credentials(ctx)).To(HaveLen(1))
	})
})

var _ = Describe("A host whose status was lost in clusterctl move", func() {
	// moved returns a world with a host whose boot was prepared in another management cluster, and the status that was
	// lost.
	moved := func(ctx context.Context) (*world, bootstrapv1.PoolbootConfigStatus) {
		GinkgoHelper()
		w := newSetting().world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		status := w.config(ctx).Status
		node := w.node(ctx)
		change(ctx, w.workload, node, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second)) })
		change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
			c.Status = bootstrapv1.PoolbootConfigStatus{DataSecretName: machineName, PoolRole: "infra", NodeRef: status.NodeRef} // as other controllers restore it
		})
		for _, overlay := range w.overlays(ctx) {
			Expect(w.management.Delete(ctx, &overlay)).To(Succeed())
		}
		return w, status
	}

	It("can join with the credential that it has, which is renewed again", func(ctx SpecContext) {
		w, before := moved(ctx)
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)))
		boot := w.config(ctx).Status.Boot
		Expect(boot.CredentialID).To(Equal(before.Boot.CredentialID))
		Expect(boot.CredentialExpirationTime.Time).To(BeTemporally("==", before.Boot.CredentialExpirationTime.Time))
		Expect(w.config(ctx).Status.Certificate).To(BeZero())
		Expect(boot.PreparedTime.Time).To(BeTemporally("~", time.Now(), 10*time.Second))
		Expect(w.config(ctx).Status.HostRef).To(HaveField("UID", "uid-of-the-host"))
		Expect(conditions.IsTrue(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(BeTrue())
		Expect(needOf(w.config(ctx))).To(Equal(renewal))

		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.config(ctx).Status.Boot.CredentialID).To(Equal(before.Boot.CredentialID), "a host that requests it gets the same")
		Expect(w.overlays(ctx)).To(HaveLen(1))
	})

	It("does not get a second certificate", func(ctx SpecContext) {
		w, before := moved(ctx)
		key, request := newCertificateRequest()
		Expect(w.workload.Create(ctx, &certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Request: request, Username: "system:bootstrap:" + before.Boot.CredentialID,
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName},
			Status: certificatesv1.CertificateSigningRequestStatus{Conditions: []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, LastUpdateTime: metav1.NewTime(time.Now().Truncate(time.Second))}}},
		})).To(Succeed())
		_, err := w.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.config(ctx).Status.Certificate).To(HaveValue(And(
			HaveField("CredentialID", before.Boot.CredentialID), HaveField("PublicKeySHA256", key))))
	})

	It("is awaited if its credential does not exist, because it can request another one", func(ctx SpecContext) {
		w, _ := moved(ctx)
		token := w.credentials(ctx)[0]
		Expect(w.workload.Delete(ctx, &token)).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(conditions.GetReason(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(Equal(bootstrapv1.WaitingForRequestReason))
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.credentials(ctx)).To(HaveLen(1))
	})
})

// newCertificateRequest returns a PEM certificate request and the SHA-256 of its public key, in hex.
func newCertificateRequest() (key string, request []byte) {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	Expect(err).NotTo(HaveOccurred())
	request = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	Expect(err).NotTo(HaveOccurred())
	sum := sha256.Sum256(public)
	return hex.EncodeToString(sum[:]), request
}
