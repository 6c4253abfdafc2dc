// Package install_test tests the release and the templates: make release writes them, clusterctl's own code reads them,
// and a real API server accepts all objects, with the CRDs of Cluster API, cert-manager and Metal3 and the webhooks of
// Cluster API and Poolboot. Poolboot's programs run with the arguments of their Deployments and the rights of their
// ServiceAccounts.
package install_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/cluster-api/feature"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

var (
	binDir       string
	controlPlane *controlplane.ControlPlane
	k8sClient    client.Client
	release      repository.Client     // the output of make release
	components   repository.Components // the objects that clusterctl installs
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Installation and templates")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	binDir, err = process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	trackInputs(sourcetree.Path("Makefile"), sourcetree.Path("config"), sourcetree.Path("templates"), sourcetree.Path("hack", "tools"),
		sourcetree.Path("test", "world", "metal3", "crds"), filepath.Join(binDir, "manager"), filepath.Join(binDir, "config-server"),
		filepath.Join(binDir, "clusterctl"), filepath.Join(binDir, "cluster-api"))
	controlPlane, err = controlplane.Start(ctx, controlplane.Options{Name: "install", Audit: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(controlPlane.Stop()).To(Succeed()) })
	k8sClient, err = client.New(controlPlane.Config, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	installKinds(ctx)

	release = readRelease(ctx)
	components, err = release.Components().Get(ctx, repository.ComponentsOptions{})
	Expect(err).NotTo(HaveOccurred())
	manifest, err := components.Yaml()
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, manifest)

	Expect(feature.MutableGates.Set(string(feature.ClusterTopology) + "=true")).To(Succeed())
	// The context of BeforeSuite is canceled when it returns. These need a context for the whole suite.
	core, err := clusterapi.Start(GinkgoT().Context(), controlPlane.Config, clusterapi.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(core.Stop()).To(Succeed()) })
	startTopology(GinkgoT().Context())
	startPrograms(ctx)
})

// The installed rights were sufficient for all requests of Poolboot's programs.
var _ = AfterSuite(func() {
	for _, program := range []string{rights.Manager, rights.ConfigServer} {
		used, refused, err := rights.UsedInManagement(controlPlane, program)
		Expect(err).NotTo(HaveOccurred())
		Expect(used).NotTo(BeEmpty())
		Expect(refused).To(BeEmpty())
	}
})

// trackInputs reads files, which prevents go test from reporting a cached result after they have changed.
func trackInputs(paths ...string) {
	GinkgoHelper()
	for _, path := range paths {
		Expect(filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err == nil {
				_, err = os.Stat(path)
			}
			return err
		})).To(Succeed())
	}
}

// apply applies a manifest server-side and refuses unknown and duplicate fields. It returns the output of kubectl, with
// the API server's warnings.
func apply(ctx SpecContext, manifest []byte) string {
	GinkgoHelper()
	kubectl := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl"), "--kubeconfig", controlPlane.Kubeconfig,
		"apply", "--server-side", "--validate=strict", "-f", "-")
	kubectl.Stdin = bytes.NewReader(manifest)
	output, err := kubectl.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
	return string(output)
}

// listOfKind returns the objects of a kind as its Go type.
func listOfKind[T any](objects []unstructured.Unstructured, kind string) []T {
	GinkgoHelper()
	var found []T
	for _, object := range objects {
		if object.GetKind() != kind {
			continue
		}
		var typed T
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed)).To(Succeed())
		found = append(found, typed)
	}
	Expect(found).NotTo(BeEmpty(), kind)
	return found
}
