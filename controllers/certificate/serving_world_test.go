package certificate

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	workloads "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var configKey = client.ObjectKey{Namespace: namespace, Name: name}

// newHost returns the BareMetalHost of a host without a Machine that has joined.
func newHost(addresses ...string) *bmov1alpha1.BareMetalHost {
	return controllertest.NewHost(configKey, bmov1alpha1.StateProvisioned, addresses...)
}

// withNetworkData returns a host with a Secret whose network data has a static address.
func withNetworkData(bmh *bmov1alpha1.BareMetalHost, address string) []client.Object {
	bmh.Spec.NetworkData = &corev1.SecretReference{Name: bmh.Name + "-network"}
	return []client.Object{bmh, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: bmh.Namespace, Name: bmh.Spec.NetworkData.Name}, Data: map[string][]byte{
		"networkData": []byte("links: [{id: a, type: phy, name: eno1}]\nnetworks: [{type: ipv4, link: a, ip_address: " + address + "/24}]")}}}
}

// newPoolOfDHCP returns the pool of the host, whose network data is ignored.
func newPoolOfDHCP() *poolv1.MachineConfigPool {
	p := controllertest.NewPool(clusterKey, "infra")
	p.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererNone
	return p
}

// servingFixture has a host that has joined and whose kubelet requests its serving certificate.
type servingFixture struct {
	management, workload client.WithWatch
	recorder             *events.FakeRecorder
	reconciler           *Reconciler
}

func newServing(change func(*bootstrapv1.PoolbootConfig), objects ...client.Object) *servingFixture {
	GinkgoHelper()
	config := newConfig()
	config.Status.Boot.CredentialID = ""
	config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: name, BareMetalHostName: name}
	change(config)
	s := &servingFixture{
		management: controllertest.NewClientBuilder(config, newCluster()).WithObjects(objects...).Build(),
		workload:   newWorkload(newNode(), newServingRequest(), kubernetesService()),
		recorder:   events.NewFakeRecorder(10),
	}
	s.reconciler = newReconciler(s.management, s.workload, s.recorder)
	return s
}

// newWorkload returns a client of a workload cluster with these objects.
func newWorkload(objects ...client.Object) client.WithWatch {
	return controllertest.NewClientBuilder(objects...).
		WithIndex(&certificatesv1.CertificateSigningRequest{}, workloads.RequestorIndex, workloads.Requestor).Build()
}

func newReconciler(management, workload client.Client, recorder events.EventRecorder) *Reconciler {
	return &Reconciler{
		Client: management, APIReader: management, NetworkData: host.NewNetworkData(management, management, clock.RealClock{}), ClusterCache: controllertest.NewClusterCache(workload, clusterKey), Recorder: recorder,
		reported: lru.New(maxReported), awaited: lru.New(maxReported),
	}
}

// kubernetesService returns the Service of the API server.
func kubernetesService() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "kubernetes"},
		Spec: corev1.ServiceSpec{ClusterIP: "198.51.100.1", ClusterIPs: []string{"198.51.100.1"}}}
}

// enrolled makes a config that of a host that enrolled from its address.
func enrolled(config *bootstrapv1.PoolbootConfig) {
	config.Annotations = map[string]string{bootstrapv1.EnrolledFromAnnotation: hostIP.String()}
	config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: config.Name,
		Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
}

// enrollment is the Enrollment of the host, which names address ranges.
func enrollment(ranges ...string) *poolv1.Enrollment {
	return &poolv1.Enrollment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge"}, Spec: poolv1.EnrollmentSpec{AddressRanges: ranges}}
}

// otherNode returns another Node with an address in its status.
func otherNode(name, address string, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	return node
}

func (s *servingFixture) reconcile(ctx context.Context) {
	GinkgoHelper()
	Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: configKey})).To(BeZero())
}

// conditions returns the conditions of the request.
func (s *servingFixture) conditions(ctx context.Context) []certificatesv1.CertificateSigningRequestCondition {
	GinkgoHelper()
	request := &certificatesv1.CertificateSigningRequest{}
	Expect(s.workload.Get(ctx, client.ObjectKey{Name: "csr-serving"}, request)).To(Succeed())
	return request.Status.Conditions
}

var _ = Describe("A Node with many requests for its serving certificate", func() {
	It("has only its latest requests checked", func(ctx SpecContext) {
		s := newServing(func(*bootstrapv1.PoolbootConfig) {}, newHost(hostIP.String()))
		recorder := events.NewFakeRecorder(1000)
		s.reconciler.Recorder = recorder
		now := time.Now()
		Expect(s.workload.Delete(ctx, newServingRequest())).To(Succeed())
		last := newServingRequest()
		last.CreationTimestamp = metav1.NewTime(now)
		Expect(s.workload.Create(ctx, last)).To(Succeed())
		for i := range 200 {
			flood := newServingRequest()
			flood.Name, flood.UID = fmt.Sprintf("csr-flood-%d", i), types.UID(fmt.Sprintf("flood-%d", i))
			flood.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
			flood.Spec.Usages = append(flood.Spec.Usages, certificatesv1.UsageClientAuth)
			Expect(s.workload.Create(ctx, flood)).To(Succeed())
		}
		s.reconcile(ctx)
		Expect(s.conditions(ctx)).To(ConsistOf(HaveField("Type", certificatesv1.CertificateApproved)))
		Expect(len(recorder.Events)).To(And(BeNumerically(">", 1), BeNumerically("<=", maxServingRequests)))
	})
})
