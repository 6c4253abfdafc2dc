package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/config"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const ownNamespace = "poolboot-system"

// programVariable is an environment variable with which this program is the config server. To build that too would take
// as long as all specs.
const programVariable = "POOLBOOT_RUN_CONFIG_SERVER"

// All specs share a management cluster with Poolboot's kinds and the config server's rights.
var (
	plane      *controlplane.ControlPlane
	admin      client.Client
	authority  *loopback.CA
	kubeconfig string // of the config server's ServiceAccount, with the rights of config/rbac
)

func TestMain(m *testing.M) {
	if os.Getenv(programVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestConfigServer(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // the machine can be busy
	RunSpecs(t, "config server program")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	plane, err = controlplane.Start(ctx, controlplane.Options{Name: "management"})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() error { return plane.Stop() })
	_, err = envtest.InstallCRDs(plane.Config, envtest.CRDInstallOptions{CRDs: config.CRDs()})
	Expect(err).NotTo(HaveOccurred())
	scheme, err := newScheme()
	Expect(err).NotTo(HaveOccurred())
	admin, err = client.New(plane.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}})).To(Succeed())
	grant(ctx)
	raw, err := plane.UserKubeconfig("system:serviceaccount:" + ownNamespace + ":config-server")
	Expect(err).NotTo(HaveOccurred())
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, raw, 0o600)).To(Succeed())
	authority, err = loopback.NewCA("hosts")
	Expect(err).NotTo(HaveOccurred())
})

// grant gives the config server the rights of config/rbac, and no others.
func grant(ctx context.Context) {
	for _, file := range []string{"config-server.yaml", "config-server-status.yaml"} {
		raw, err := os.ReadFile(sourcetree.Path("config", "rbac", file))
		Expect(err).NotTo(HaveOccurred())
		objects, err := yaml.ToUnstructured([]byte(strings.ReplaceAll(string(raw), "namespace: system", "namespace: "+ownNamespace)))
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).NotTo(BeEmpty())
		for i := range objects {
			Expect(admin.Create(ctx, &objects[i])).To(Succeed())
		}
	}
}
