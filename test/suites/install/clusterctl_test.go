package install_test

import (
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterctl"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var _ = Describe("clusterctl", Ordered, func() {
	var (
		program    *clusterctl.Clusterctl
		management *controlplane.ControlPlane
		objects    client.Client
		dir        string
		providers  = []string{"--core=cluster-api", "--bootstrap=kubeadm,poolboot", "--control-plane=kubeadm", "--infrastructure=metal3"}
	)

	BeforeAll(func(ctx SpecContext) {
		var err error
		dir = GinkgoT().TempDir()
		variables := map[string]string{"POOLBOOT_CONFIG_SERVER_HOST": serverHost, "CLUSTER_TOPOLOGY": "true"}
		program, err = clusterctl.New(ctx, dir, filepath.Dir(filepath.Dir(releaseDir)), variables)
		Expect(err).NotTo(HaveOccurred())
		management, err = controlplane.Start(ctx, controlplane.Options{Name: "clusterctl", ControllerManager: true, Audit: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(management.Stop()).To(Succeed()) })
		objects, err = client.New(management.Config, client.Options{Scheme: clusterapi.Scheme()})
		Expect(err).NotTo(HaveOccurred())
	})

	It("is of the version of Cluster API that Poolboot imports", func(ctx SpecContext) {
		version := runGo(ctx, sourcetree.Path(), "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/cluster-api")
		output, _, err := program.Run(ctx, "", "version", "--output=short")
		Expect(err).NotTo(HaveOccurred())
		Expect(output).To(Equal(version + "\n"))
	})

	It("lists the images of a release, and those of the other providers, which the tests build", func(ctx SpecContext) {
		var archive ociIndex
		readBlob(readTar(program.Images), "index.json", &archive)
		images := components.Images()
		for _, image := range archive.Manifests {
			images = append(images, image.Annotations["io.containerd.image.name"])
		}
		output, _, err := program.Run(ctx, management.Kubeconfig, slices.Concat([]string{"init", "list-images"}, providers)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Fields(output)).To(ConsistOf(images))
	})

	It("installs a release with cert-manager and the other providers", func(ctx SpecContext) {
		_, messages, err := program.Run(ctx, management.Kubeconfig, slices.Concat([]string{"init"}, providers)...)
		Expect(err).NotTo(HaveOccurred())
		Expect(messages).To(ContainSubstring("Your management cluster has been initialized successfully!"))
		installed := listUnstructured(ctx, objects, schema.GroupVersionKind{Group: "clusterctl.cluster.x-k8s.io", Version: "v1alpha3", Kind: "Provider"})
		Expect(installed).To(ConsistOf(HaveField("GetName()", "cluster-api"), HaveField("GetName()", "bootstrap-kubeadm"),
			HaveField("GetName()", "bootstrap-poolboot"), HaveField("GetName()", "control-plane-kubeadm"), HaveField("GetName()", "infrastructure-metal3")))
	})
})

func listUnstructured(ctx SpecContext, c client.Client, kind schema.GroupVersionKind) []unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	Expect(c.List(ctx, list)).To(Succeed())
	return list.Items
}
