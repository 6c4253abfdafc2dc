package metal3_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
)

var (
	plane     *controlplane.ControlPlane
	simulator *metal3.Simulator
	c         client.WithWatch
	power     = &powerLog{}
)

// retryInterval is that of the simulator.
const retryInterval = time.Second

func TestMetal3(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Metal3 simulator with the real Cluster API")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	start := time.Now()
	took := func(what string) {
		AddReportEntry(what, time.Since(start).Round(10*time.Millisecond), ReportEntryVisibilityAlways)
		start = time.Now()
	}
	var err error
	plane, err = controlplane.Start(ctx, controlplane.Options{Name: "metal3"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	took("control plane")

	Expect(clusterapi.Install(ctx, plane.Config)).To(Succeed())
	Expect(clusterapi.InstallMetal3(plane.Config)).To(Succeed())
	took("custom resource definitions")

	// The context of BeforeSuite is canceled when it returns. The managers need a context for the whole suite.
	core, err := clusterapi.Start(GinkgoT().Context(), plane.Config, clusterapi.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(core.Stop()).To(Succeed()) })
	took("Cluster API core and webhooks")

	simulator, err = metal3.Start(GinkgoT().Context(), plane.Config, metal3.Options{
		Hardware: power, Provisioning: 200 * time.Millisecond, Reporting: 500 * time.Millisecond, Backoff: 500 * time.Millisecond,
		Deprovisioning: 200 * time.Millisecond, Servicing: 200 * time.Millisecond, RetryInterval: retryInterval,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(simulator.Stop()).To(Succeed()) })
	took("Metal3 simulator")

	c, err = client.NewWithWatch(plane.Config, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	createBMCSecret(ctx, namespace, "bmc")
})

// createBMCSecret creates a Secret with the credentials of a BMC.
func createBMCSecret(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		StringData: map[string]string{"username": "admin", "password": "example"}})).To(Succeed())
}

var _ = Describe("The CRDs", func() {
	It("have the label by which clusterctl finds what to move, if their provider is installed with it", func(ctx SpecContext) {
		var crds apiextensionsv1.CustomResourceDefinitionList
		Expect(c.List(ctx, &crds)).To(Succeed())
		Expect(len(crds.Items)).To(BeNumerically(">", 20))
		for _, crd := range crds.Items {
			Expect(metav1.HasLabel(crd.ObjectMeta, clusterctlv1.ClusterctlLabel)).To(Equal(crd.Spec.Group != "metal3.io"), crd.Name)
		}
	})
})
