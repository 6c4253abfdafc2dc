// Package provider is an example: the envtest suite of a Cluster API infrastructure provider that boots its Machines
// with Poolboot. Copy it into a provider, without the replace directives of go.mod.
package provider

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/poolboottest"
)

const serverURL = "https://poolboot.example.org:9444"

var c client.Client

func TestProvider(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	RunSpecs(t, "Provider")
}

var _ = BeforeSuite(func() {
	ctrl.SetLogger(GinkgoLogr)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme, // and the provider's own
	} {
		Expect(add(scheme)).To(Succeed())
	}

	env := &envtest.Environment{
		Scheme:                scheme,
		CRDDirectoryPaths:     []string{filepath.Join(moduleDir("sigs.k8s.io/cluster-api"), "core", "config", "crd", "bases")}, // and the provider's own
		ErrorIfCRDPathMissing: true,
	}
	cfg, err := env.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)

	running, stop := context.WithCancel(context.Background())
	DeferCleanup(stop) // before the environment
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(poolboottest.SetupWithManager(running, env, mgr, poolboottest.Options{ServerURL: serverURL})).To(Succeed())
	// The provider registers its own reconcilers here.
	go func() {
		defer GinkgoRecover()
		Expect(mgr.Start(running)).To(Succeed())
	}()

	c, err = client.New(cfg, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
})

// moduleDir returns the folder of a module that the provider requires.
func moduleDir(module string) string {
	GinkgoHelper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(out))
}
