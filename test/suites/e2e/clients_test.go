package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"net/http"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/vincent-petithory/dataurl"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// assignPausedHost assigns a host to a config's Machine. The BareMetalHost is paused, and therefore powered off, until
// the returned function is called.
func assignPausedHost(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) (resume func()) {
	GinkgoHelper()
	machine := &infrav1.Metal3Machine{}
	key := client.ObjectKey{Namespace: t.Namespace, Name: t.Machine(ctx, config).Spec.InfrastructureRef.Name}
	Expect(lab.ManagementClient.Get(ctx, key, machine)).To(Succeed())
	host := &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Name: t.HostName(0), Annotations: map[string]string{bmov1alpha1.PausedAnnotation: ""}},
		Spec: bmov1alpha1.BareMetalHostSpec{Online: true, BootMACAddress: "52:54:00:00:00:01",
			Image:    &bmov1alpha1.Image{URL: machine.Spec.Image.URL, Checksum: machine.Spec.Image.Checksum, ChecksumType: bmov1alpha1.ChecksumType(machine.Spec.Image.ChecksumType)},
			UserData: &corev1.SecretReference{Name: config.Name},
			BMC:      bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
	}
	t.Create(ctx, host)
	host.Status.OperationalStatus, host.Status.Provisioning.State = bmov1alpha1.OperationalStatusOK, bmov1alpha1.StateProvisioning
	Expect(lab.ManagementClient.Status().Update(ctx, host)).To(Succeed())
	before := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, infrav1.HostAnnotation, t.Namespace+"/"+host.Name)
	Expect(lab.ManagementClient.Patch(ctx, machine, client.MergeFrom(before))).To(Succeed())
	return func() {
		GinkgoHelper()
		paused := host.DeepCopy()
		delete(host.Annotations, bmov1alpha1.PausedAnnotation)
		Expect(lab.ManagementClient.Patch(ctx, host, client.MergeFrom(paused))).To(Succeed())
	}
}

// fetchStatus fetches a pointer's URL and returns the HTTP status.
func fetchStatus(ctx context.Context, pointer ignition.Pointer) (int, error) {
	status, _, err := fetchPointer(ctx, pointer)
	return status, err
}

// fetchPointer fetches a pointer's URL and returns the HTTP status and the body.
func fetchPointer(ctx context.Context, pointer ignition.Pointer) (int, string, error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pointer.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, pointer.URL, nil)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Authorization", "Bearer "+pointer.Token)
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// stealCredential returns the credential in a host's overlay.
func stealCredential(ctx context.Context, config *bootstrapv1.PoolbootConfig) *rest.Config {
	GinkgoHelper()
	secrets := listOverlays(ctx, config)
	Expect(secrets).To(HaveLen(1))
	raw, err := ignition.PackedOverlay(secrets[0].Data[bootstrapv1.OverlayKey]).Unpack()
	Expect(err).NotTo(HaveOccurred())
	overlay, err := ignition.Parse(raw)
	Expect(err).NotTo(HaveOccurred())
	for _, file := range overlay.Storage.Files {
		if file.Path == ignition.BootstrapKubeconfigPath {
			kubeconfig, err := dataurl.DecodeString(*file.Contents.Source)
			Expect(err).NotTo(HaveOccurred())
			credential, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig.Data)
			Expect(err).NotTo(HaveOccurred())
			return credential
		}
	}
	Fail("the overlay has no " + ignition.BootstrapKubeconfigPath)
	return nil
}

func newClient(credential *rest.Config) client.Client {
	GinkgoHelper()
	c, err := client.New(credential, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// requestCertificate requests a client certificate for a user in groups from a signer.
func requestCertificate(ctx context.Context, c client.Client, signer, user string, groups ...string) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	csr, err := certutil.MakeCSR(key, &pkix.Name{CommonName: user, Organization: groups}, nil, nil)
	Expect(err).NotTo(HaveOccurred())
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "requested-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: csr, SignerName: signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}},
	}
	// The API server accepts a new join credential, and its rights, with a delay.
	Eventually(ctx, func() error { return c.Create(ctx, request) }).Should(Succeed())
	return request
}

// getDecision returns the conditions of a request as "Type Reason", or "" when there are none.
func getDecision(ctx context.Context, request *certificatesv1.CertificateSigningRequest) (string, error) {
	err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(request), request)
	var conditions []string
	for _, c := range request.Status.Conditions {
		conditions = append(conditions, string(c.Type)+" "+c.Reason)
	}
	return strings.Join(conditions, ", "), err
}

// listDecisions returns the decisions on all requests of a requester for a client certificate of a user in groups.
func listDecisions(ctx context.Context, requester, user string, groups ...string) []string {
	GinkgoHelper()
	var requests certificatesv1.CertificateSigningRequestList
	Expect(lab.WorkloadClient.List(ctx, &requests)).To(Succeed())
	var all []string
	for i := range requests.Items {
		request := &requests.Items[i]
		block, _ := pem.Decode(request.Spec.Request)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
		if request.Spec.Username == requester && csr.Subject.CommonName == user && slices.Equal(csr.Subject.Organization, groups) {
			decision, err := getDecision(ctx, request)
			Expect(err).NotTo(HaveOccurred())
			all = append(all, decision)
		}
	}
	return all
}

// isAutoApproved reports whether kube-controller-manager approves requests of a kind that a join credential makes.
func isAutoApproved(ctx context.Context, user, kind string) bool {
	GinkgoHelper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:bootstrappers", join.Group, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Group: "certificates.k8s.io", Resource: "certificatesigningrequests", Subresource: kind, Verb: "create"},
	}}
	Expect(lab.WorkloadClient.Create(ctx, review)).To(Succeed())
	return review.Status.Allowed
}
