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

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

const (
	namespace   = "site"
	clusterName = "c1"
	name        = "infra-x7k"
	tokenID     = "abcdef"
)

// kubelet is the subject of the certificate that the Machine's kubelet asks for.
func kubelet(template *x509.CertificateRequest) {
	template.Subject = pkix.Name{CommonName: nodeUserPrefix + name, Organization: []string{nodesGroup}}
}

func pemRequest(change ...func(*x509.CertificateRequest)) []byte {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.CertificateRequest{}
	kubelet(template)
	for _, c := range change {
		c(template)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, private)
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
	return &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName}},
		Status: bootstrapv1.PoolbootConfigStatus{
			PoolRole: "infra",
			NodeRef:  bootstrapv1.NodeReference{Name: name, UID: "node-uid"},
			Boot:     bootstrapv1.BootStatus{CredentialID: tokenID},
		},
	}
}

func newCluster() *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "api.example.com", Port: 6443}
	cluster.Spec.ClusterNetwork.Services.CIDRBlocks = []string{"198.18.0.0/15"}
	return cluster
}

func newNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: "node-uid",
			Labels:      map[string]string{poolv1.NodeRoleLabelPrefix + "infra": ""},
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: namespace + "/" + name},
		},
		Status: corev1.NodeStatus{Conditions: ready(corev1.ConditionFalse, registration.WaitingForKubeletReason)},
	}
}

func ready(status corev1.ConditionStatus, reason string) []corev1.NodeCondition {
	return []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: reason}}
}

// grant has a certificate for another key approved some time ago.
func grant(f *facts, ago time.Duration) {
	f.config.Status.Boot.Certificate = bootstrapv1.GrantedCertificate{
		CredentialID: tokenID, PublicKeySHA256: "other", GrantedTime: metav1.NewTime(f.now.Add(-ago)),
	}
}

func pools() []poolv1.MachineConfigPool {
	var pools []poolv1.MachineConfigPool
	for _, role := range []string{"worker", "infra", "edge"} {
		pools = append(pools, poolv1.MachineConfigPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
			Spec:       poolv1.MachineConfigPoolSpec{ClusterName: clusterName, PoolRole: role},
		})
	}
	return pools
}

var _ = Describe("A certificate signing request made with a join credential", func() {
	DescribeTable("is for one Node, which must stand in its pool",
		func(expected verdict, request func() *certificatesv1.CertificateSigningRequest, change func(*facts)) {
			f := facts{request: request(), config: newConfig(), node: newNode(), pools: pools(), now: time.Now(), cluster: identity.Of(newCluster())}
			change(&f)
			got, why := decide(f)
			Expect(got).To(Equal(expected), why)
			Expect(why).NotTo(BeEmpty())
		},
		Entry("its Node in its pool", approve, asked(), func(*facts) {}),
		Entry("another Node", deny, asked(func(r *x509.CertificateRequest) { r.Subject.CommonName = nodeUserPrefix + "other" }), func(*facts) {}),
		Entry("another Node, and its own does not stand", deny,
			asked(func(r *x509.CertificateRequest) { r.Subject.CommonName = nodeUserPrefix + "other" }), func(f *facts) { f.node = nil }),
		Entry("no Node on record yet", wait, asked(), func(f *facts) { f.config.Status.NodeRef = bootstrapv1.NodeReference{} }),
		Entry("a Node that does not stand yet", wait, asked(), func(f *facts) { f.node = nil }),
		Entry("a Node of that name made by others", wait, asked(), func(f *facts) { f.node.Annotations = nil }),
		Entry("a Node made anew that is not on record", wait, asked(), func(f *facts) { f.node.UID = "another" }),
		Entry("a Node outside its pool", wait, asked(), func(f *facts) { f.node.Labels = nil }),
		Entry("a Node in another pool than is on record", wait, asked(), func(f *facts) {
			f.node.Labels = map[string]string{poolv1.NodeRoleLabelPrefix + "edge": ""}
		}),
		Entry("a Node in two pools", wait, asked(), func(f *facts) { f.node.Labels[poolv1.NodeRoleLabelPrefix+"edge"] = "" }),
		Entry("another key than was just approved", contest, asked(), func(f *facts) { grant(f, pickUpTime-time.Second) }),
		Entry("another key than was approved, which nobody came with", approve, asked(), func(f *facts) { grant(f, pickUpTime) }),
		Entry("another key than was approved, for a kubelet that is gone", approve, asked(), func(f *facts) {
			grant(f, pickUpTime)
			f.node.Status.Conditions = ready(corev1.ConditionUnknown, "NodeStatusUnknown")
		}),
		Entry("another key while the kubelet waits for its network", deny, asked(), func(f *facts) {
			grant(f, pickUpTime)
			f.node.Status.Conditions = ready(corev1.ConditionFalse, "KubeletNotReady")
		}),
		Entry("another key while the kubelet works", deny, asked(), func(f *facts) {
			grant(f, 0)
			f.node.Status.Conditions = ready(corev1.ConditionTrue, "KubeletReady")
		}),
		Entry("another key than an earlier credential was used for", approve, asked(), func(f *facts) {
			f.config.Status.Boot.Certificate = bootstrapv1.GrantedCertificate{CredentialID: "zzzzzz", PublicKeySHA256: "other"}
		}),
		Entry("a Node with the API server's name", deny, asked(named("kubernetes.default.svc")), rename("kubernetes.default.svc")),
		Entry("a Node with the name of the control plane endpoint", deny, asked(named("api.example.com")), rename("api.example.com")),
		Entry("a person", deny, asked(func(r *x509.CertificateRequest) { r.Subject.CommonName = "admin" }), func(*facts) {}),
		Entry("no name", deny, asked(func(r *x509.CertificateRequest) { r.Subject.CommonName = nodeUserPrefix }), func(*facts) {}),
		Entry("a group of masters", deny, asked(func(r *x509.CertificateRequest) {
			r.Subject.Organization = []string{nodesGroup, "system:masters"}
		}), func(*facts) {}),
		Entry("no group", deny, asked(func(r *x509.CertificateRequest) { r.Subject.Organization = nil }), func(*facts) {}),
		Entry("a DNS name", deny, asked(func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default"} }), func(*facts) {}),
		Entry("an address", deny, asked(func(r *x509.CertificateRequest) { r.IPAddresses = []net.IP{net.IPv4(10, 0, 0, 1)} }), func(*facts) {}),
		Entry("the usage of a server", deny, asked(), func(f *facts) {
			f.request.Spec.Usages = append(f.request.Spec.Usages, certificatesv1.UsageServerAuth)
		}),
		Entry("not the usage of a client", deny, asked(), func(f *facts) {
			f.request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
		}),
		Entry("nothing that can be read", deny, asked(), func(f *facts) { f.request.Spec.Request = []byte("hello") }),
	)

	DescribeTable("is decided only when it is Poolboot's to decide",
		func(ours bool, change func(*certificatesv1.CertificateSigningRequest)) {
			request := newRequest()
			change(request)
			Expect(isOurs(request, tokenID)).To(Equal(ours))
		},
		Entry("made with the credential", true, func(*certificatesv1.CertificateSigningRequest) {}),
		Entry("made with another", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = "system:bootstrap:zzzzzz" }),
		Entry("renewed by the kubelet itself", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = nodeUserPrefix + name }),
		Entry("made with a token of kubeadm's group", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.Groups = []string{"system:bootstrappers:kubeadm:default-node-token"}
		}),
		Entry("for another signer", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeletServingSignerName
		}),
		Entry("decided already", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}}
		}),
		Entry("signed already", false, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }),
	)
	It("is nobody's without a credential on record", func() {
		request := newRequest()
		request.Spec.Username = "system:bootstrap:"
		Expect(isOurs(request, "")).To(BeFalse())
	})
})

// named changes the Node whose kubelet's certificate a request is for.
func named(node string) func(*x509.CertificateRequest) {
	return func(r *x509.CertificateRequest) { r.Subject.CommonName = nodeUserPrefix + node }
}

// rename has a Node of another name on record.
func rename(node string) func(*facts) {
	return func(f *facts) { f.config.Status.NodeRef.Name, f.node.Name = node, node }
}

// asked makes the request once the test runs.
func asked(change ...func(*x509.CertificateRequest)) func() *certificatesv1.CertificateSigningRequest {
	return func() *certificatesv1.CertificateSigningRequest { return newRequest(change...) }
}
