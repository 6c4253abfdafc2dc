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
	"github.com/onsi/gomega/gexec"
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

// All specs share a management cluster with Poolboot's kinds and the config server's rights, and the built program.
var (
	plane      *controlplane.ControlPlane
	admin      client.Client
	authority  *loopback.CA
	program    string // path of the built config server
	kubeconfig string // of the config server's ServiceAccount, with the rights of config/rbac
)

func TestConfigServer(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute) // the machine can be busy
	RunSpecs(t, "config server program")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	program, err = gexec.Build("github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/config-server")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gexec.CleanupBuildArtifacts)
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
