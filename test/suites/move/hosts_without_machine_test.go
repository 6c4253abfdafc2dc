package move

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// enrollmentToken is an enrollment token for two hosts of the pool infra, with its hosts that are powered on.
type enrollmentToken struct {
	pointer ignition.Pointer // without the name in its URL
	servers []*baremetal.Host
}

// newEnrollmentToken creates a token whose Secret and template have the labels for clusterctl move.
func newEnrollmentToken(ctx context.Context, t *tenant.Tenant) *enrollmentToken {
	GinkgoHelper()
	t.CreateHostTemplate(ctx, map[string]string{clusterctlv1.ClusterctlMoveLabel: ""})
	secret, enrollment := t.Enrollment("batch", 2)
	secret.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}
	token := secret.StringData[poolv1.EnrollmentTokenKey]
	t.Create(ctx, secret)
	t.Create(ctx, enrollment)
	Eventually(ctx, func() (_ string, err error) {
		enrollment, err = getEnrollment(ctx, source, t)
		return enrollment.Status.URL, err
	}).ShouldNot(BeEmpty())
	b := &enrollmentToken{pointer: ignition.Pointer{URL: enrollment.Status.URL, Token: token, CA: []byte(enrollment.Status.CertificateAuthority)}}
	DeferCleanup(func() {
		for _, server := range b.servers {
			Expect(server.PowerCut()).To(Succeed())
		}
	})
	return b
}

func getEnrollment(ctx context.Context, s *site.Site, t *tenant.Tenant) (*poolv1.Enrollment, error) {
	enrollment := &poolv1.Enrollment{}
	return enrollment, client.IgnoreNotFound(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: "batch"}, enrollment))
}

func (b *enrollmentToken) pointerFor(name string) ignition.Pointer {
	pointer := b.pointer
	pointer.URL += "?name=" + name
	return pointer
}

// powerOn boots a host with the token.
func (b *enrollmentToken) powerOn(ctx context.Context, name string) {
	GinkgoHelper()
	userData, err := b.pointerFor(name).Marshal()
	Expect(err).NotTo(HaveOccurred())
	server, err := source.Hardware.Boot(name, userData)
	Expect(err).NotTo(HaveOccurred())
	b.servers = append(b.servers, server)
}

// expectUsedUp expects the names to be admitted, and another host to be refused.
func (b *enrollmentToken) expectUsedUp(ctx context.Context, s *site.Site, t *tenant.Tenant, names ...string) {
	GinkgoHelper()
	enrollment, err := getEnrollment(ctx, s, t)
	Expect(err).NotTo(HaveOccurred())
	Expect(enrollment.AdmittedNames()).To(ConsistOf(names))
	another := t.Namespace + "-another"
	Eventually(ctx, func() ([]poolv1.EnrollmentRequest, error) {
		code, _, err := fetch.Get(ctx, b.pointerFor(another), b.pointerFor(another).URL)
		Expect(code).To(Or(BeZero(), Equal(503)))
		if err != nil {
			return nil, err
		}
		enrollment, err := getEnrollment(ctx, s, t)
		return enrollment.Status.Requests, err
	}).Should(ContainElement(And(HaveField("Name", another), HaveField("Refused", ContainSubstring("all 2 uses are taken")))))
}

// holdForMove sets the status annotation and the pause that Metal3 sets only on hosts of Metal3Machines, so that the
// BareMetalHost keeps its state in a move.
func holdForMove(ctx context.Context, s *site.Site, t *tenant.Tenant, name string) {
	GinkgoHelper()
	changeHost(ctx, s, t, name, func(bmh *bmov1alpha1.BareMetalHost) {
		status, err := json.Marshal(bmh.Status)
		Expect(err).NotTo(HaveOccurred())
		metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, bmov1alpha1.StatusAnnotation, string(status))
		metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, bmov1alpha1.PausedAnnotation, "")
	})
}

// holdForBackup does the same for all installed hosts, and returns their names: clusterctl waits until Metal3 has saved
// their status before it moves them to another cluster, but not before it writes them to a directory (toDirectory in
// mover.go of clusterctl). Metal3 installs a host again that is restored without its status.
func holdForBackup(ctx context.Context, s *site.Site, t *tenant.Tenant) (names []string) {
	GinkgoHelper()
	var hosts bmov1alpha1.BareMetalHostList
	Expect(s.ManagementClient.List(ctx, &hosts, client.InNamespace(t.Namespace))).To(Succeed())
	for i := range hosts.Items {
		if hosts.Items[i].Status.Provisioning.State == bmov1alpha1.StateProvisioned {
			holdForMove(ctx, s, t, hosts.Items[i].Name)
			names = append(names, hosts.Items[i].Name)
		}
	}
	return names
}

// expectStatusSaved expects a backup to have the status of hosts.
func expectStatusSaved(backup string, t *tenant.Tenant, names []string) {
	GinkgoHelper()
	Expect(names).NotTo(BeEmpty())
	for _, name := range names {
		saved, err := os.ReadFile(filepath.Join(backup, "BareMetalHost_"+t.Namespace+"_"+name+".yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(saved)).To(ContainSubstring(bmov1alpha1.StatusAnnotation), "without it, Metal3 installs %s again", name)
	}
}

// resumeAfterMove removes the pause of holdForMove after the move.
func resumeAfterMove(ctx context.Context, s *site.Site, t *tenant.Tenant, name string) {
	GinkgoHelper()
	changeHost(ctx, s, t, name, func(bmh *bmov1alpha1.BareMetalHost) { delete(bmh.Annotations, bmov1alpha1.PausedAnnotation) })
}

func changeHost(ctx context.Context, s *site.Site, t *tenant.Tenant, name string, change func(*bmov1alpha1.BareMetalHost)) {
	GinkgoHelper()
	bmh := &bmov1alpha1.BareMetalHost{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, bmh)).To(Succeed())
	before := bmh.DeepCopy()
	change(bmh)
	Expect(s.ManagementClient.Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
}

// expectHostUIDLabels waits until the Node of each BareMetalHost has the label with the host's UID, by which Metal3
// finds it. A move creates BareMetalHosts with new UIDs.
func expectHostUIDLabels(ctx context.Context, s *site.Site, t *tenant.Tenant) {
	GinkgoHelper()
	nodes := map[string]string{} // by the name of the Metal3Machine
	for _, config := range t.Configs(ctx, deploymentName) {
		nodes[t.Machine(ctx, &config).Spec.InfrastructureRef.Name] = config.Status.NodeRef.Name
	}
	var hosts bmov1alpha1.BareMetalHostList
	Expect(s.ManagementClient.List(ctx, &hosts, client.InNamespace(t.Namespace))).To(Succeed())
	for _, bmh := range hosts.Items {
		name := bmh.Name
		if bmh.Spec.ConsumerRef != nil {
			name = nodes[bmh.Spec.ConsumerRef.Name]
		} else if bmh.Annotations[poolv1.HostPoolAnnotation] == "" {
			continue
		}
		Eventually(ctx, func() (map[string]string, error) {
			node := &corev1.Node{}
			err := s.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node)
			return node.Labels, err
		}).Should(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, string(bmh.UID)), bmh.Name)
	}
}
