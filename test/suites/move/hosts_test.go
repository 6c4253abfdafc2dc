package move

import (
	"context"
	"encoding/json"
	"os"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// batch is an enrollment token for two hosts of the pool infra, and those of its hosts that are on.
type batch struct {
	pointer ignition.Pointer // but for the name in its URL
	servers []*host.Host
}

// newBatch creates the token, with what is needed for it to be moved.
func newBatch(ctx context.Context, t *tenant.Tenant) *batch {
	GinkgoHelper()
	t.CreateHostTemplate(ctx, map[string]string{clusterctlv1.ClusterctlMoveLabel: ""})
	secret, enrollment := t.Enrollment("batch", 2)
	secret.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}
	token := secret.StringData[poolv1.EnrollmentTokenKey]
	t.Create(ctx, secret)
	t.Create(ctx, enrollment)
	Eventually(ctx, func() (_ string, err error) {
		enrollment, err = enrollmentOf(ctx, here, t)
		return enrollment.Status.URL, err
	}).ShouldNot(BeEmpty())
	b := &batch{pointer: ignition.Pointer{URL: enrollment.Status.URL, Token: token, CA: []byte(enrollment.Status.CertificateAuthority)}}
	DeferCleanup(func() {
		for _, server := range b.servers {
			server.PowerOff()
			Expect(os.RemoveAll(server.Root())).To(Succeed())
		}
	})
	return b
}

func enrollmentOf(ctx context.Context, s *site.Site, t *tenant.Tenant) (*poolv1.Enrollment, error) {
	enrollment := &poolv1.Enrollment{}
	return enrollment, client.IgnoreNotFound(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: "batch"}, enrollment))
}

func (b *batch) of(name string) ignition.Pointer {
	pointer := b.pointer
	pointer.URL += "?name=" + name
	return pointer
}

// powerOn boots a host of the batch, which asks until it gets its configuration.
func (b *batch) powerOn(ctx context.Context, name string) {
	GinkgoHelper()
	userData, err := b.of(name).Marshal()
	Expect(err).NotTo(HaveOccurred())
	dir, err := os.MkdirTemp("", "host-") // short: sockets live below it
	Expect(err).NotTo(HaveOccurred())
	server := host.New(host.Options{Name: name, Dir: dir, Log: GinkgoWriter})
	b.servers = append(b.servers, server)
	Expect(server.PowerOn(context.WithoutCancel(ctx), userData)).To(Succeed())
}

// expectFull looks whether the names that were given out are still known, and a further host is turned away.
func (b *batch) expectFull(ctx context.Context, s *site.Site, t *tenant.Tenant, names ...string) {
	GinkgoHelper()
	enrollment, err := enrollmentOf(ctx, s, t)
	Expect(err).NotTo(HaveOccurred())
	Expect(enrollment.Spec.Admitted).To(ConsistOf(names))
	further := t.Namespace + "-further"
	Eventually(ctx, func() ([]poolv1.EnrollmentRequest, error) {
		code, _, err := fetch.Get(ctx, b.of(further), b.of(further).URL)
		Expect(code).To(Or(BeZero(), Equal(503)))
		if err != nil {
			return nil, err
		}
		enrollment, err := enrollmentOf(ctx, s, t)
		return enrollment.Status.Requests, err
	}).Should(ContainElement(And(HaveField("Name", further), HaveField("Refused", ContainSubstring("all 2 uses are taken")))))
}

// holdForMove writes down what Metal3 writes down itself only for hosts that a Metal3Machine has: the BareMetalHost's
// state, and that nobody is to touch it until it has arrived.
func holdForMove(ctx context.Context, s *site.Site, t *tenant.Tenant, name string) {
	GinkgoHelper()
	changeHost(ctx, s, t, name, func(bmh *bmov1alpha1.BareMetalHost) {
		status, err := json.Marshal(bmh.Status)
		Expect(err).NotTo(HaveOccurred())
		metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, bmov1alpha1.StatusAnnotation, string(status))
		metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, bmov1alpha1.PausedAnnotation, "")
	})
}

// release ends that, where the host has arrived.
func release(ctx context.Context, s *site.Site, t *tenant.Tenant, name string) {
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

// expectNodeLabelRules waits until the Node on each BareMetalHost has the label with that one's UID, by which Metal3
// finds it: a move makes BareMetalHosts anew.
func expectNodeLabelRules(ctx context.Context, s *site.Site, t *tenant.Tenant) {
	GinkgoHelper()
	nodes := map[string]string{} // by the name of what has the host
	for _, config := range t.Configs(ctx, deployment) {
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
