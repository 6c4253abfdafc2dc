// Package install_test holds the installable set and the templates to what they promise: make release writes them,
// clusterctl's own code reads them, and a real API server takes every object, with the kinds of Cluster API,
// cert-manager and Metal3 and the webhooks of Cluster API and Poolboot. Poolboot's programs run with the arguments of
// their Deployments and the rights of their ServiceAccounts.
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
)

// root is the repository's root, seen from this package.
const root = "../../.."

var (
	binDir     string
	plane      *controlplane.ControlPlane
	c          client.Client
	release    repository.Client     // what make release wrote
	components repository.Components // what clusterctl would install of it
)

func TestInstall(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Installable set and templates")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	ctrl.SetLogger(GinkgoLogr)
	var err error
	binDir, err = process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	heed(filepath.Join(root, "Makefile"), filepath.Join(root, "config"), filepath.Join(root, "templates"), filepath.Join(root, "hack", "tools"),
		filepath.Join(root, "test", "world", "metal3", "crds"), filepath.Join(binDir, "manager"), filepath.Join(binDir, "config-server"))
	plane, err = controlplane.Start(ctx, controlplane.Options{Name: "install", Audit: true})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(plane.Stop()).To(Succeed()) })
	c, err = client.New(plane.Config, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	installKinds(ctx)

	release = readRelease(ctx)
	components, err = release.Components().Get(ctx, repository.ComponentsOptions{})
	Expect(err).NotTo(HaveOccurred())
	manifest, err := components.Yaml()
	Expect(err).NotTo(HaveOccurred())
	apply(ctx, manifest)

	Expect(feature.MutableGates.Set(string(feature.ClusterTopology) + "=true")).To(Succeed())
	// What is started here outlives BeforeSuite, whose context ends with it.
	core, err := clusterapi.Start(GinkgoT().Context(), plane.Config, clusterapi.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(core.Stop()).To(Succeed()) })
	startTopology(GinkgoT().Context())
	startPrograms(ctx)
})

// Whatever the tests had Poolboot's programs do, the rights that are installed were enough for it.
var _ = AfterSuite(func() {
	for _, program := range []string{rights.Manager, rights.ConfigServer} {
		used, refused, err := rights.UsedAtHome(plane, program)
		Expect(err).NotTo(HaveOccurred())
		Expect(used).NotTo(BeEmpty())
		Expect(refused).To(BeEmpty())
	}
})

// heed has go test run this suite again, and not report a cached result, when what its programs read has changed.
func heed(paths ...string) {
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

// apply applies a manifest as a careful person would: server-side, with every unknown or doubled field refused. It
// returns what kubectl prints, the API server's warnings too.
func apply(ctx SpecContext, manifest []byte) string {
	GinkgoHelper()
	kubectl := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl"), "--kubeconfig", plane.Kubeconfig,
		"apply", "--server-side", "--validate=strict", "-f", "-")
	kubectl.Stdin = bytes.NewReader(manifest)
	output, err := kubectl.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
	return string(output)
}

// ofKind returns the objects of a kind as its Go type.
func ofKind[T any](objects []unstructured.Unstructured, kind string) []T {
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
