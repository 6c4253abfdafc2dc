package install_test

import (
	"os"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const (
	clusterName       = "edge"
	apiHost           = "192.0.2.10"
	workerImage       = "http://images.example.com/worker.qcow2"
	controlPlaneImage = "http://images.example.com/control-plane.qcow2"
)

// variables are the variables of the templates without a default, except NAMESPACE.
var variables = map[string]string{
	"CLUSTER_NAME":                 clusterName,
	"KUBERNETES_VERSION":           "v1.36.3",
	"CONTROL_PLANE_MACHINE_COUNT":  "1",
	"WORKER_MACHINE_COUNT":         "2",
	"CLUSTER_APIENDPOINT_HOST":     apiHost,
	"CONTROL_PLANE_IMAGE_URL":      controlPlaneImage,
	"CONTROL_PLANE_IMAGE_CHECKSUM": controlPlaneImage + ".sha256sum",
	"IMAGE_URL":                    workerImage,
	"IMAGE_CHECKSUM":               workerImage + ".sha256sum",
}

var _ = Describe("the cluster template", func() {
	It("creates a Cluster whose Machines are in their pools", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		applyTemplate(ctx, namespace, "")
		expectPools(ctx, namespace)
		expectMachinesInPools(ctx, namespace, map[string]int32{"worker": 2, "infra": 2})
	})
})

var _ = Describe("the ClusterClass", func() {
	It("creates the same Cluster with the topology template", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		settings.Set("NAMESPACE", namespace)
		class, err := release.ClusterClasses(releaseVersion).Get(ctx, "poolboot-metal3", namespace, false)
		Expect(err).NotTo(HaveOccurred())
		applyObjects(ctx, class)
		applyTemplate(ctx, namespace, "topology")

		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: clusterName, Namespace: namespace}}
		Eventually(func(g Gomega) {
			g.Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
			reconciled := conditions.Get(cluster, clusterv1.ClusterTopologyReconciledCondition)
			g.Expect(reconciled).To(HaveField("Status", metav1.ConditionTrue), "%v", reconciled)
		}).Should(Succeed())
		expectPools(ctx, namespace)
		expectMachinesInPools(ctx, namespace, map[string]int32{"worker": 2, "infra": 2})

		By("using the Cluster's variables in its infrastructure")
		infrastructure := &infrav1.Metal3Cluster{}
		key := client.ObjectKey{Namespace: namespace, Name: cluster.Spec.InfrastructureRef.Name}
		Expect(k8sClient.Get(ctx, key, infrastructure)).To(Succeed())
		Expect(infrastructure.Spec.ControlPlaneEndpoint.Host).To(Equal(apiHost))
		var machines infrav1.Metal3MachineTemplateList
		Expect(k8sClient.List(ctx, &machines, client.InNamespace(namespace), client.HasLabels{clusterv1.ClusterTopologyOwnedLabel})).To(Succeed())
		images := map[string]string{}
		for _, machine := range machines.Items {
			images[machine.Labels[clusterv1.ClusterTopologyMachineDeploymentNameLabel]] = machine.Spec.Template.Spec.Image.URL
		}
		Expect(images).To(Equal(map[string]string{"": controlPlaneImage, "worker": workerImage, "infra": workerImage}))
	})
})

var _ = Describe("the header of a template", func() {
	// clusterctl's own arguments set these.
	arguments := Or(Equal("CLUSTER_NAME"), Equal("NAMESPACE"), Equal("KUBERNETES_VERSION"),
		Equal("CONTROL_PLANE_MACHINE_COUNT"), Equal("WORKER_MACHINE_COUNT"))

	DescribeTable("lists its variables and their defaults", func(ctx SpecContext, flavor, file string) {
		template, err := release.Templates(releaseVersion).Get(ctx, flavor, "any", true)
		Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(sourcetree.Path("templates", file))
		Expect(err).NotTo(HaveOccurred())
		for name, value := range template.VariableMap() {
			if known, _ := arguments.Match(name); known {
				continue
			}
			want := "required"
			if value != nil {
				want = *value
			}
			Expect(string(content)).To(MatchRegexp(`(?m)^#   %s +%s( |$)`, name, regexp.QuoteMeta(want)))
		}
	},
		Entry(nil, "", "cluster-template.yaml"),
		Entry(nil, "topology", "cluster-template-topology.yaml"),
		Entry(nil, "edge-site", "cluster-template-edge-site.yaml"),
	)
})

func newNamespace(ctx SpecContext) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "site-"}}
	Expect(k8sClient.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

func applyTemplate(ctx SpecContext, namespace, flavor string) {
	GinkgoHelper()
	settings.Set("NAMESPACE", namespace)
	template, err := release.Templates(releaseVersion).Get(ctx, flavor, namespace, false)
	Expect(err).NotTo(HaveOccurred())
	applyObjects(ctx, template)
}

func applyObjects(ctx SpecContext, template repository.Template) {
	GinkgoHelper()
	manifest, err := template.Yaml()
	Expect(err).NotTo(HaveOccurred())
	Expect(apply(ctx, manifest)).NotTo(ContainSubstring("Warning:"), "the order of objects in a template avoids warnings")
}

// expectPools waits until the manager has rendered both pools, the pool infra with the MachineConfigs of the pool
// worker.
func expectPools(ctx SpecContext, namespace string) {
	GinkgoHelper()
	for role, sources := range map[string][]string{
		"worker": {clusterName + "-00-worker"},
		"infra":  {clusterName + "-00-worker", clusterName + "-51-infra"},
	} {
		found := &poolv1.MachineConfigPool{}
		Eventually(func(g Gomega) {
			g.Expect(k8sClient.Get(ctx, client.ObjectKey{Namespace: namespace, Name: clusterName + "-" + role}, found)).To(Succeed())
			g.Expect(found.Status.Configuration).NotTo(BeZero(), "%v", found.Status.Conditions)
			var names []string
			for _, source := range found.Status.Configuration.Source {
				names = append(names, source.Name)
			}
			g.Expect(names).To(Equal(sources))
		}).Should(Succeed())
	}
}

// expectMachinesInPools waits until the MachineDeployments have these numbers of Machines in pools.
func expectMachinesInPools(ctx SpecContext, namespace string, want map[string]int32) {
	GinkgoHelper()
	var pools poolv1.MachineConfigPoolList
	Expect(k8sClient.List(ctx, &pools, client.InNamespace(namespace))).To(Succeed())
	Eventually(func(g Gomega) {
		var deployments clusterv1.MachineDeploymentList
		g.Expect(k8sClient.List(ctx, &deployments, client.InNamespace(namespace))).To(Succeed())
		machines := map[string]int32{}
		for _, deployment := range deployments.Items {
			assigned, err := pool.ForBoot(pool.Boot{
				Config:  &bootstrapv1.PoolbootConfig{},
				Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Labels: deployment.Spec.Template.Labels}},
				Pools:   pools.Items,
			})
			g.Expect(err).NotTo(HaveOccurred())
			machines[assigned.Role] += *deployment.Spec.Replicas
		}
		g.Expect(machines).To(Equal(want))
	}).Should(Succeed())
}
