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
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	workloads "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("The approver", func() {
	var (
		ctx      context.Context
		workload client.Client
		told     *events.FakeRecorder
		r        *Reconciler
		config   = client.ObjectKey{Namespace: namespace, Name: name}
	)
	// world is a booting Machine and what is in its workload cluster.
	world := func(objects ...client.Object) {
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme, clusterv1.AddToScheme} {
			Expect(add(scheme)).To(Succeed())
		}
		management := fake.NewClientBuilder().WithScheme(scheme).WithObjects(newConfig(), newCluster()).WithStatusSubresource(&bootstrapv1.PoolbootConfig{})
		for _, pool := range pools() {
			management.WithObjects(&pool)
		}
		workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithIndex(&certificatesv1.CertificateSigningRequest{}, workloads.RequestorIndex, workloads.Requestor).Build()
		told = events.NewFakeRecorder(10)
		c := management.Build()
		r = &Reconciler{left: lru.New(maxLeft), Client: c, APIReader: c, Recorder: told,
			ClusterCache: clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: namespace, Name: clusterName}, watchName)}
	}
	reconcile := func() ctrl.Result {
		GinkgoHelper()
		result, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: config})
		Expect(err).NotTo(HaveOccurred())
		return result
	}
	verdictOn := func(name string) certificatesv1.RequestConditionType {
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

	It("waits once for the config server to record that the host has its configuration, and then not for ever", func() {
		world(newNode(), newRequest())
		recorded := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, recorded)).To(Succeed())
		recorded.Status.Boot.PreparedTime = &metav1.MicroTime{Time: time.Now()}
		Expect(r.Client.Status().Update(ctx, recorded)).To(Succeed())
		Expect(reconcile()).To(Equal(ctrl.Result{RequeueAfter: status.ConflictRetry}))
		Expect(verdictOn(newRequest().Name)).To(BeEmpty())
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn(newRequest().Name)).To(Equal(certificatesv1.CertificateApproved))
	})

	It("does not wait for that when it is on record", func() {
		world(newNode(), newRequest())
		recorded := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, recorded)).To(Succeed())
		recorded.Status.Boot.PreparedTime = &metav1.MicroTime{Time: time.Now()}
		recorded.Status.Boot.ServedTime = recorded.Status.Boot.PreparedTime
		Expect(r.Client.Status().Update(ctx, recorded)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn(newRequest().Name)).To(Equal(certificatesv1.CertificateApproved))
	})

	It("approves what its Node asks for and denies the rest, with an event", func() {
		other := newRequest(func(r *x509.CertificateRequest) { r.Subject.CommonName = nodeUserPrefix + "other" })
		other.Name = "node-csr-2"
		world(newNode(), newRequest(), other)
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
		Expect(verdictOn("node-csr-2")).To(Equal(certificatesv1.CertificateDenied))
		Expect(told.Events).To(Receive(ContainSubstring(bootstrapv1.EventCertificateRequestDenied)))
		Expect(reconcile()).To(BeZero())
		Expect(told.Events).NotTo(Receive())
	})

	It("approves also while the Cluster is paused: a host that has booted can't be told to wait", func() {
		world(newNode(), newRequest())
		paused := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, paused)).To(Succeed())
		metav1.SetMetaDataAnnotation(&paused.ObjectMeta, clusterv1.PausedAnnotation, "")
		Expect(r.Client.Update(ctx, paused)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
	})

	It("approves by the cache when that is up to date, and by nothing but the latest record when it is not", func() {
		request, other := newRequest(), newRequest()
		other.Name = "node-csr-2"
		world(newNode(), request)
		reads := 0
		standing := r.Client.(client.WithWatch)
		r.APIReader = interceptor.NewClient(standing, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
		})
		cached := &bootstrapv1.PoolbootConfig{}
		Expect(standing.Get(ctx, config, cached)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
		Expect(reads).To(BeZero())

		r.Client = interceptor.NewClient(standing, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if config, is := o.(*bootstrapv1.PoolbootConfig); is {
					cached.DeepCopyInto(config) // from before the grant
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		Expect(workload.Create(ctx, other)).To(Succeed())
		Expect(reconcile().RequeueAfter).To(Equal(waitRetry))
		Expect(verdictOn("node-csr-2")).To(BeEmpty(), "another key has it")
		Expect(reads).To(Equal(1))
	})

	It("waits for the Node and then approves", func() {
		world(newRequest())
		Expect(reconcile().RequeueAfter).To(Equal(waitRetry))
		Expect(verdictOn("node-csr-1")).To(BeEmpty())
		Expect(workload.Create(ctx, newNode())).To(Succeed())
		reconcile()
		Expect(verdictOn("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
	})

	It("approves one key for a credential at a time, of several the one that was asked for last, and tells of the others", func() {
		left, own, again := newRequest(), newRequest(), newRequest()
		own.Name, own.CreationTimestamp = "node-csr-2", metav1.NewTime(left.CreationTimestamp.Add(time.Minute))
		again.Name, again.Spec.Request, again.CreationTimestamp = "node-csr-3", own.Spec.Request, own.CreationTimestamp
		world(newNode(), left, own, again)
		Expect(reconcile().RequeueAfter).To(Equal(waitRetry))
		Expect(verdictOn("node-csr-1")).To(BeEmpty())
		Expect(verdictOn("node-csr-2")).To(Equal(certificatesv1.CertificateApproved))
		Expect(verdictOn("node-csr-3")).To(Equal(certificatesv1.CertificateApproved), "it is the same key")
		Expect(told.Events).To(Receive(And(ContainSubstring(corev1.EventTypeWarning), ContainSubstring(bootstrapv1.EventCertificateRequestContested))))
	})

	It("approves another key when nobody came with the first, and warns of it", func() {
		request := newRequest()
		world(newNode(), request)
		granted := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, granted)).To(Succeed())
		granted.Status.Boot.Certificate = bootstrapv1.GrantedCertificate{
			CredentialID: tokenID, PublicKeySHA256: "other", GrantedTime: metav1.NewTime(time.Now().Add(-pickUpTime)),
		}
		Expect(r.Client.Status().Update(ctx, granted)).To(Succeed())
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn("node-csr-1")).To(Equal(certificatesv1.CertificateApproved))
		Expect(told.Events).To(Receive(And(ContainSubstring(corev1.EventTypeWarning), ContainSubstring(bootstrapv1.EventCertificateRequestApproved))))
		Expect(r.Client.Get(ctx, config, granted)).To(Succeed())
		Expect(granted.Status.Boot.Certificate).To(HaveValue(And(
			HaveField("PublicKeySHA256", keyOf(request)), HaveField("GrantedTime.Time", BeTemporally("~", time.Now(), time.Minute)))))
	})

	It("has on record what it is about to approve", func() {
		request := newRequest()
		world(newNode(), request)
		workload = interceptor.NewClient(workload.(client.WithWatch), interceptor.Funcs{
			SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
				return errors.New("the manager is killed here")
			},
		})
		r.ClusterCache = clustercache.NewFakeClusterCache(workload, client.ObjectKey{Namespace: namespace, Name: clusterName}, watchName)
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: config})
		Expect(err).To(MatchError(ContainSubstring("killed here")))
		recorded := &bootstrapv1.PoolbootConfig{}
		Expect(r.Client.Get(ctx, config, recorded)).To(Succeed())
		Expect(recorded.Status.Boot.Certificate).To(HaveValue(And(HaveField("CredentialID", tokenID), HaveField("PublicKeySHA256", keyOf(request)))))
	})

	It("leaves requests of other credentials alone", func() {
		foreign := newRequest()
		foreign.Spec.Username = "system:bootstrap:zzzzzz"
		world(newNode(), foreign)
		Expect(reconcile()).To(BeZero())
		Expect(verdictOn("node-csr-1")).To(BeEmpty())
	})

	It("waits for a workload cluster that can't be reached", func() {
		world()
		r.ClusterCache = clustercache.NewFakeEmptyClusterCache()
		Expect(reconcile().RequeueAfter).To(Equal(waitRetry))
	})
})
