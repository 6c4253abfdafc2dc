package tenant

import (
	"context"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// HostTemplate is the name of the template with which pools of TakeHosts boot hosts without a Machine.
const HostTemplate = "hosts"

// TakeHosts is a change for New. The pools take hosts without a Machine, which join with the kubelet.
func TakeHosts(pool *poolv1.MachineConfigPool) { pool.Spec.Hosts.TemplateRef.Name = HostTemplate }

// CreateHostTemplate creates the template of TakeHosts.
func (t *Tenant) CreateHostTemplate(ctx context.Context, labels map[string]string) {
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: HostTemplate, Labels: labels}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	t.Create(ctx, template)
}

// BootAnnotatedHost creates a server with a pool annotation, and sets its image when it has user data.
func (t *Tenant) BootAnnotatedHost(ctx context.Context, name, role string) *bmov1alpha1.BareMetalHost {
	host := newHost(name)
	host.Annotations = map[string]string{poolv1.HostPoolAnnotation: role, poolv1.HostClusterAnnotation: t.Namespace}
	t.Create(ctx, host)
	EventuallyWithOffset(1, func() (*corev1.SecretReference, error) {
		err := t.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(host), host)
		return host.Spec.UserData, err
	}).WithContext(ctx).ShouldNot(BeNil())
	before := host.DeepCopy()
	host.Spec.Image = &bmov1alpha1.Image{URL: site.KubeletImageURL, Checksum: site.KubeletImageURL + ".sha256sum"}
	ExpectWithOffset(1, t.site.ManagementClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
	return host
}

// SetArchitecture sets the architecture that the inspection of a server found, such as aarch64.
func (t *Tenant) SetArchitecture(ctx context.Context, host, architecture string) {
	data := &bmov1alpha1.HardwareData{}
	EventuallyWithOffset(1, func() error {
		return t.site.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: host}, data)
	}).WithContext(ctx).Should(Succeed())
	before := data.DeepCopy()
	data.Spec.HardwareDetails.CPU.Arch = architecture
	ExpectWithOffset(1, t.site.ManagementClient.Patch(ctx, data, client.MergeFrom(before))).To(Succeed())
}

func newHost(name string) *bmov1alpha1.BareMetalHost {
	return &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: bmov1alpha1.BareMetalHostSpec{Online: true, BootMACAddress: "52:54:00:00:00:01",
			BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: name + "-bmc"}},
	}
}

// NewBMCSecret returns a Secret with the credentials of a BMC.
func NewBMCSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"username": "admin", "password": "example"}}
}

// Enrollment returns an Enrollment of the pool infra for hosts whose names start with the namespace's name, which
// expires in an hour, and the Secret with its token. It does not create them.
func (t *Tenant) Enrollment(name string, uses int32) (*corev1.Secret, *poolv1.Enrollment) {
	return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace},
			Type:       poolv1.EnrollmentTokenType,
			StringData: map[string]string{poolv1.EnrollmentTokenKey: strings.Repeat(t.Namespace, 10)},
		}, &poolv1.Enrollment{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace},
			Spec: poolv1.EnrollmentSpec{
				ClusterName: t.Namespace, PoolRole: "infra", NamePattern: t.Namespace + "-*", MaxUses: uses,
				ExpirationTime: metav1.NewTime(time.Now().Add(time.Hour)), TokenSecretRef: poolv1.TokenSecretReference{Name: name},
			},
		}
}

// BootOtherHost creates a server that boots with user data that is not of Poolboot, from the image with kubeadm.
func (t *Tenant) BootOtherHost(ctx context.Context, name string, userData []byte) {
	host := newHost(name)
	host.Spec.UserData = &corev1.SecretReference{Name: name + "-user-data", Namespace: t.Namespace}
	host.Spec.Image = &bmov1alpha1.Image{URL: site.KubeadmImageURL, Checksum: site.KubeadmImageURL + ".sha256sum"}
	t.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name + "-user-data"}, Data: map[string][]byte{"value": userData}}, host)
}
