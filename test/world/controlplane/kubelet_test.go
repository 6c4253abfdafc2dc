package controlplane_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"

	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
)

const bootstrapGroup = "system:bootstrappers:spec"

// createBootstrapToken creates the token abcdef.0123456789abcdef, with the right to request a kubelet's certificate.
func createBootstrapToken(ctx context.Context, admin kubernetes.Interface) {
	_, err := admin.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-abcdef"},
		Type:       corev1.SecretTypeBootstrapToken,
		StringData: map[string]string{
			"token-id": "abcdef", "token-secret": "0123456789abcdef",
			"usage-bootstrap-authentication": "true", "auth-extra-groups": bootstrapGroup,
		},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: bootstrapGroup},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: bootstrapGroup}},
	}, metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// requestCertificate requests the certificate of a Node's kubelet with the bootstrap token.
func requestCertificate(ctx context.Context, g Gomega, admin *rest.Config, node string) *certificatesv1.CertificateSigningRequest {
	bearer := rest.AnonymousClientConfig(admin)
	bearer.BearerToken = "abcdef.0123456789abcdef"
	kubelet, err := kubernetes.NewForConfig(bearer)
	g.Expect(err).NotTo(HaveOccurred())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	g.Expect(err).NotTo(HaveOccurred())
	csr, err := certutil.MakeCSR(key, &pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	request, err := kubelet.CertificatesV1().CertificateSigningRequests().Create(ctx, &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "csr-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    csr,
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	return request
}

func approve(ctx context.Context, admin kubernetes.Interface, request *certificatesv1.CertificateSigningRequest) {
	request.Status.Conditions = append(request.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Spec",
	})
	_, err := admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, request.Name, request, metav1.UpdateOptions{})
	Expect(err).NotTo(HaveOccurred())
}

// isSignedBy reports whether a CA (PEM) signed a client certificate (PEM).
func isSignedBy(ca, certificate []byte) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	parsed, err := certutil.ParseCertsPEM(certificate)
	if err != nil {
		return err
	}
	_, err = parsed[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}
