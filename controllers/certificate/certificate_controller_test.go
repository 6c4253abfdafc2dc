package certificate

import (
	"context"
	"crypto/x509"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	workloads "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("The certificate controller", func() {
	var (
		ctx      context.Context
		workload client.Client
		recorder *events.FakeRecorder
		r        *Reconciler
		config   = client.ObjectKey{Namespace: namespace, Name: name}
	)
	// setUp creates a booting Machine, and the given objects in its workload cluster.
	setUp := func(objects ...client.Object) {
		management := controllertest.NewClientBuilder(newConfig(), newCluster()).WithStatusSubresource(&bootstrapv1.PoolbootConfig{})
		for _, pool := range newPools() {
			management.WithObjects(&pool)
		}
		workload, recorder = newWorkload(objects...), events.NewFakeRecorder(10)
		r = newReconciler(management.Build(), workload, recorder)
	}
	reconcile := func() ctrl.Result {
		GinkgoHelper()
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: config})
		Expect(err).NotTo(HaveOccurred())
		return result
	}
	conditionOf := func(name string) certificatesv1.RequestConditionType {
		GinkgoHelper()
		request := &certificatesv1.CertificateSigningRequest{}
		Expect(workload.Get(ctx, client.ObjectKey{Name: name}, request)).To(Succeed())
		if len(request.Status.Conditions) == 0 {
			return ""
		}
		Expect(request.Status.Conditions).To(HaveLen(1))
		Expect(request.Status.Conditions[0].Status).To(Equal(corev1.ConditionTrue))
		return request.Status.Conditions[0].Type
	}
	BeforeEach(func(c SpecContext) { ctx = c })

	It("waits for the config server to record that the host received its configuration, until a timeout", func() {
		setUp(newNode(), newRequest())
		recorded := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, recorded)).To(Succeed())
		recorded.Status.Boot.PreparedTime = &metav1.MicroTime{Time: time.Now()}
		Expect(r.Client.Status().Update(ctx, recorded)).To(Succeed())
		Expect(reconcile()).To(Equal(ctrl.Result{RequeueAfter: status.ConflictRetry}))
		Expect(conditionOf(newRequest().Name)).To(BeEmpty())
		r.awaited.Add(newRequest().UID, time.Now().Add(-recordTimeout))
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf(newRequest().Name)).To(Equal(certificatesv1.CertificateApproved))
	})

	It("does not wait if this is already recorded", func() {
		setUp(newNode(), newRequest())
		recorded := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, recorded)).To(Succeed())
		recorded.Status.Boot.PreparedTime = &metav1.MicroTime{Time: time.Now()}
		recorded.Status.Requests.ServedTime = recorded.Status.Boot.PreparedTime
		Expect(r.Client.Status().Update(ctx, recorded)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf(newRequest().Name)).To(Equal(certificatesv1.CertificateApproved))
	})

	It("approves the request for the recorded Node, and denies another request with an event", func() {
		other := newRequest(func(r *x509.CertificateRequest) { r.Subject.CommonName = workloads.NodeUserPrefix + "other" })
		other.Name = "node-csr-2"
		setUp(newNode(), newRequest(), other)
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
		Expect(conditionOf("node-csr-2")).To(Equal(certificatesv1.CertificateDenied))
		Expect(recorder.Events).To(Receive(ContainSubstring(bootstrapv1.EventCertificateRequestDenied)))
		Expect(reconcile()).To(BeZero())
		Expect(recorder.Events).NotTo(Receive())
	})

	It("approves requests while the Cluster is paused", func() {
		setUp(newNode(), newRequest())
		paused := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, paused)).To(Succeed())
		metav1.SetMetaDataAnnotation(&paused.ObjectMeta, clusterv1.PausedAnnotation, "")
		Expect(r.Client.Update(ctx, paused)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
	})

	It("approves with the cached PoolbootConfig, and reads the current one if the cached one is stale", func() {
		request, other := newRequest(), newRequest()
		other.Name = "node-csr-2"
		setUp(newNode(), request)
		reads := 0
		current := r.Client.(client.WithWatch)
		r.APIReader = interceptor.NewClient(current, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
		})
		cached := &bootstrapv1.PoolbootConfig{}
		Expect(current.Get(ctx, config, cached)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
		Expect(reads).To(BeZero())

		r.Client = interceptor.NewClient(current, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if config, ok := o.(*bootstrapv1.PoolbootConfig); ok {
					cached.DeepCopyInto(config) // from before the grant
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		Expect(workload.Create(ctx, other)).To(Succeed())
		Expect(reconcile().RequeueAfter).To(Equal(retryInterval))
		Expect(conditionOf("node-csr-2")).To(BeEmpty(), "the certificate is for another key")
		Expect(reads).To(Equal(1))
	})

	It("approves after the Node exists", func() {
		setUp(newRequest())
		Expect(reconcile().RequeueAfter).To(Equal(retryInterval))
		Expect(conditionOf("node-csr-1")).To(BeEmpty())
		Expect(workload.Create(ctx, newNode())).To(Succeed())
		reconcile()
		Expect(conditionOf("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
	})

	It("approves one key of a join credential at a time, that of the latest request, and reports the others", func() {
		earlier, latest, sameKey := newRequest(), newRequest(), newRequest()
		latest.Name, latest.CreationTimestamp = "node-csr-2", metav1.NewTime(earlier.CreationTimestamp.Add(time.Minute))
		sameKey.Name, sameKey.Spec.Request, sameKey.CreationTimestamp = "node-csr-3", latest.Spec.Request, latest.CreationTimestamp
		setUp(newNode(), earlier, latest, sameKey)
		Expect(reconcile().RequeueAfter).To(Equal(retryInterval))
		Expect(conditionOf("node-csr-1")).To(BeEmpty())
		Expect(conditionOf("node-csr-2")).To(Equal(certificatesv1.CertificateApproved))
		Expect(conditionOf("node-csr-3")).To(Equal(certificatesv1.CertificateApproved), "it has the same key")
		Expect(recorder.Events).To(Receive(And(ContainSubstring(corev1.EventTypeWarning), ContainSubstring(bootstrapv1.EventCertificateRequestContested))))
	})

	It("approves another key if the first was not used, and reports it", func() {
		request := newRequest()
		setUp(newNode(), request)
		granted := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, granted)).To(Succeed())
		granted.Status.Certificate = bootstrapv1.GrantedCertificate{
			CredentialID: tokenID, PublicKeySHA256: "other", GrantedTime: metav1.NewTime(time.Now().Add(-pickupTimeout)),
		}
		Expect(r.Client.Status().Update(ctx, granted)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
		Expect(recorder.Events).To(Receive(And(ContainSubstring(corev1.EventTypeWarning), ContainSubstring(bootstrapv1.EventCertificateRequestApproved))))
		Expect(r.Client.Get(ctx, config, granted)).To(Succeed())
		Expect(granted.Status.Certificate).To(HaveValue(And(
			HaveField("PublicKeySHA256", join.PublicKeySHA256(request.Spec.Request)), HaveField("GrantedTime.Time", BeTemporally("~", time.Now(), time.Minute)))))
	})

	It("records the key before it approves a request", func() {
		request := newRequest()
		setUp(newNode(), request)
		workload = interceptor.NewClient(workload.(client.WithWatch), interceptor.Funcs{
			SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
				return errors.New("the manager is killed")
			},
		})
		r.ClusterCache = controllertest.NewClusterCache(workload, clusterKey)
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: config})
		Expect(err).To(MatchError(ContainSubstring("killed")))
		recorded := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, recorded)).To(Succeed())
		Expect(recorded.Status.Certificate).To(HaveValue(And(HaveField("CredentialID", tokenID), HaveField("PublicKeySHA256", join.PublicKeySHA256(request.Spec.Request)))))
	})

	It("does not decide requests with other join credentials", func() {
		other := newRequest()
		other.Spec.Username = "system:bootstrap:zzzzzz"
		setUp(newNode(), other)
		Expect(reconcile()).To(BeZero())
		Expect(conditionOf("node-csr-1")).To(BeEmpty())
	})

	It("retries while the workload cluster is unreachable", func() {
		setUp()
		r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
		Expect(reconcile().RequeueAfter).To(Equal(retryInterval))
	})
})
