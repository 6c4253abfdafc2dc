package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	namespace   = "site"
	clusterName = "c1"
	name        = "infra-x7k"
	tokenID     = "abcdef"
)

var clusterKey = client.ObjectKey{Namespace: namespace, Name: clusterName}

// setKubeletSubject sets the subject to that of the kubelet.
func setKubeletSubject(template *x509.CertificateRequest) {
	template.Subject = pkix.Name{CommonName: workload.NodeUserPrefix + name, Organization: []string{nodesGroup}}
}

// pemRequest returns a certificate request in PEM format.
func pemRequest(change ...func(*x509.CertificateRequest)) []byte {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.CertificateRequest{}
	setKubeletSubject(template)
	for _, apply := range change {
		apply(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	Expect(err).NotTo(HaveOccurred())
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

func newRequest(change ...func(*x509.CertificateRequest)) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-1"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Username:   "system:bootstrap:" + tokenID,
			Groups:     []string{"system:bootstrappers", join.Group, "system:authenticated"},
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
			Request:    pemRequest(change...),
		},
	}
}

func newConfig() *bootstrapv1.PoolbootConfig {
	config := controllertest.NewConfig(clusterKey, name)
	config.Status.PoolRole, config.Status.Boot.CredentialID = "infra", tokenID
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: name, UID: "node-uid"}
	return config
}

func newCluster() *clusterv1.Cluster {
	cluster := controllertest.NewCluster(clusterKey)
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}
	cluster.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"198.18.0.0/15"}
	return cluster
}

func newNode() *corev1.Node {
	node := controllertest.NewNode(name, "infra")
	node.UID, node.Annotations = "node-uid", map[string]string{poolv1.NodeConfigAnnotation: namespace + "/" + name}
	node.Status.Conditions = readyCondition(corev1.ConditionFalse, registration.WaitingForKubeletReason)
	return node
}

func readyCondition(status corev1.ConditionStatus, reason string) []corev1.NodeCondition {
	return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason}}
}

// grantOtherKey records that a certificate for another key was approved some time ago.
func grantOtherKey(f *facts, ago time.Duration) {
	f.config.Status.Certificate = bootstrapv1.GrantedCertificate{
		CredentialID: tokenID, PublicKeySHA256: "other", GrantedTime: metav1.NewTime(f.now.Add(-ago)),
	}
}

func newPools() (pools []poolv1.MachineConfigPool) {
	for _, role := range []string{"worker", "infra", "edge"} {
		pools = append(pools, *controllertest.NewPool(clusterKey, role))
	}
	return pools
}

var _ = Describe("A certificate signing request with a join credential", func() {
	DescribeTable("is approved only for the recorded Node, and only while this Node is in its pool",
		func(want verdict, request func() *certificatesv1.CertificateSigningRequest, change func(*facts)) {
			f := facts{request: request(), config: newConfig(), node: newNode(), pools: newPools(), now: time.Now(), cluster: access.ClusterOf(newCluster())}
			change(&f)
			got, why := decideClient(f)
			Expect(got).To(Equal(want), why)
			Expect(why).NotTo(BeEmpty())
		},
		Entry("the recorded Node, in its pool", approve, requested(), func(*facts) {}),
		Entry("another Node", deny, requested(func(r *x509.CertificateRequest) { r.Subject.CommonName = workload.NodeUserPrefix + "other" }), func(*facts) {}),
		Entry("another Node, while the recorded Node does not exist", deny,
			requested(func(r *x509.CertificateRequest) { r.Subject.CommonName = workload.NodeUserPrefix + "other" }), func(f *facts) { f.node = nil }),
		Entry("no recorded Node", wait, requested(), func(f *facts) { f.config.Status.NodeRef = bootstrapv1.NodeReference{} }),
		Entry("a Node that does not exist yet", wait, requested(), func(f *facts) { f.node = nil }),
		Entry("a Node with the name that Poolboot did not pre-register", wait, requested(), func(f *facts) { f.node.Annotations = nil }),
		Entry("a Node that was created again, with another UID than the recorded one", wait, requested(), func(f *facts) { f.node.UID = "another" }),
		Entry("a Node outside its pool", wait, requested(), func(f *facts) { f.node.Labels = nil }),
		Entry("a Node in another pool than the recorded one", wait, requested(), func(f *facts) {
			f.node.Labels = map[string]string{poolv1.NodeRoleLabelPrefix + "edge": ""}
		}),
		Entry("a Node in two pools", wait, requested(), func(f *facts) { f.node.Labels[poolv1.NodeRoleLabelPrefix+"edge"] = "" }),
		Entry("another key just after an approval", contested, requested(), func(f *facts) { grantOtherKey(f, pickupTimeout-time.Second) }),
		Entry("another key after the approved one was not used", approve, requested(), func(f *facts) { grantOtherKey(f, pickupTimeout) }),
		Entry("another key after the kubelet stopped", approve, requested(), func(f *facts) {
			grantOtherKey(f, pickupTimeout)
			f.node.Status.Conditions = readyCondition(corev1.ConditionUnknown, "NodeStatusUnknown")
		}),
		Entry("another key while the kubelet waits for its network", deny, requested(), func(f *facts) {
			grantOtherKey(f, pickupTimeout)
			f.node.Status.Conditions = readyCondition(corev1.ConditionFalse, "KubeletNotReady")
		}),
		Entry("another key while the kubelet runs", deny, requested(), func(f *facts) {
			grantOtherKey(f, 0)
			f.node.Status.Conditions = readyCondition(corev1.ConditionTrue, "KubeletReady")
		}),
		Entry("another key than that of an earlier join credential", approve, requested(), func(f *facts) {
			f.config.Status.Certificate = bootstrapv1.GrantedCertificate{CredentialID: "zzzzzz", PublicKeySHA256: "other"}
		}),
		Entry("a Node with the API server's name", deny, requested(forNode("kubernetes.default.svc")), renameNode("kubernetes.default.svc")),
		Entry("a Node with the name of the control plane endpoint", deny, requested(forNode("api.example.com")), renameNode("api.example.com")),
		Entry("a user", deny, requested(func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" }), func(*facts) {}),
		Entry("no Node name", deny, requested(func(r *x509.CertificateRequest) { r.Subject.CommonName = workload.NodeUserPrefix }), func(*facts) {}),
		Entry("the group system:masters", deny, requested(func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{nodesGroup, "system:masters"}
		}), func(*facts) {}),
		Entry("no group", deny, requested(func(r *x509.CertificateRequest) { r.Subject.Organization = nil }), func(*facts) {}),
		Entry("a DNS name", deny, requested(func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default"} }), func(*facts) {}),
		Entry("an IP address", deny, requested(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }), func(*facts) {}),
		Entry("the usage server auth", deny, requested(), func(f *facts) {
			f.request.Spec.Usages = append(f.request.Spec.Usages, certificatesv1.UsageServerAuth)
		}),
		Entry("without the usage client auth", deny, requested(), func(f *facts) {
			f.request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
		}),
		Entry("a malformed request", deny, requested(), func(f *facts) { f.request.Spec.Request = []byte("hello") }),
	)

	DescribeTable("is decided only if Poolboot is responsible for it",
		func(want bool, change func(*certificatesv1.CertificateSigningRequest)) {
			request := newRequest()
			change(request)
			Expect(isClientRequest(request, tokenID)).To(Equal(want))
		},
		Entry("with the join credential", true, func(*certificatesv1.CertificateSigningRequest) {}),
		Entry("with another join credential", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = "system:bootstrap:zzzzzz" }),
		Entry("a renewal by the kubelet", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = workload.NodeUserPrefix + name }),
		Entry("with a bootstrap token of kubeadm", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Groups = []string{"system:bootstrappers:kubeadm:default-node-token"}
		}),
		Entry("for another signer", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeletServingSignerName
		}),
		Entry("already decided", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
		}),
		Entry("already signed", false, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }),
	)
	It("is not decided without a recorded join credential", func() {
		request := newRequest()
		request.Spec.Username = "system:bootstrap:"
		Expect(isClientRequest(request, "")).To(BeFalse())
	})
})

// forNode sets the common name to that of the kubelet of a Node.
func forNode(node string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.Subject.CommonName = workload.NodeUserPrefix + node }
}

// renameNode changes the name of the Node and of the recorded Node.
func renameNode(node string) func(*facts) {
	return func(f *facts) { f.config.Status.NodeRef.Name, f.node.Name = node, node }
}

// requested returns a function that creates the request when the spec runs.
func requested(change ...func(*x509.CertificateRequest)) func() *certificatesv1.CertificateSigningRequest {
	return func() *certificatesv1.CertificateSigningRequest { return newRequest(change...) }
}
