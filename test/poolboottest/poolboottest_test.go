package poolboottest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

func TestPoolbootTest(t *testing.T) {
	ctrl.SetLogger(GinkgoLogr)
	RegisterFailHandler(Fail)
	RunSpecs(t, "Poolboot in envtest")
}

var _ = Describe("SetupWithManager", Ordered, func() {
	var env *envtest.Environment

	// newManager returns a manager with controller-runtime's defaults, whose scheme does not have Poolboot's kinds.
	newManager := func() ctrl.Manager {
		GinkgoHelper()
		mgr, err := ctrl.NewManager(env.Config, ctrl.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
		Expect(err).NotTo(HaveOccurred())
		return mgr
	}

	BeforeAll(func() {
		bin, err := process.BinDir()
		Expect(err).NotTo(HaveOccurred())
		env = &envtest.Environment{BinaryAssetsDirectory: bin}
		_, err = env.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(env.Stop)
	})

	It("refuses an environment that was not started", func(ctx SpecContext) {
		Expect(SetupWithManager(ctx, &envtest.Environment{}, nil, Options{})).To(MatchError(ContainSubstring("call its Start first")))
	})

	It("refuses an environment without Cluster API", func(ctx SpecContext) {
		Expect(SetupWithManager(ctx, env, newManager(), Options{})).To(MatchError(ContainSubstring("add their folder to the environment's CRDDirectoryPaths")))
	})

	It("works with several managers of one process, and whatever their scheme and cache are", func(ctx SpecContext) {
		clusterAPI, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
		Expect(err).NotTo(HaveOccurred())
		_, err = envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(strings.TrimSpace(string(clusterAPI)), "core", "config", "crd", "bases")}, ErrorIfPathMissing: true,
		})
		Expect(err).NotTo(HaveOccurred())
		scheme := runtime.NewScheme()
		Expect(controllers.AddToScheme(scheme)).To(Succeed())
		c, err := client.New(env.Config, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())

		for _, name := range []string{"first", "second"} {
			running, stop := context.WithCancel(context.Background())
			DeferCleanup(stop)
			mgr := newManager()
			Expect(SetupWithManager(running, env, mgr, Options{OverlayNamespace: name})).To(Succeed())
			Expect(c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})).To(Succeed())
			bad := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Spec: poolv1.MachineConfigSpec{Butane: "variant: none"}}
			Expect(c.Create(ctx, bad)).To(Satisfy(apierrors.IsInvalid), "the webhooks answer before the manager has started")

			ended := make(chan error)
			go func() { ended <- mgr.Start(running) }()
			cluster := &clusterv1.Cluster{ObjectMeta: bad.ObjectMeta, Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "127.0.0.1", Port: 6443}}}
			Expect(c.Create(ctx, cluster)).To(Succeed())
			pool := &poolv1.MachineConfigPool{ObjectMeta: bad.ObjectMeta, Spec: poolv1.MachineConfigPoolSpec{ClusterName: name, PoolRole: "worker"}}
			Expect(c.Create(ctx, pool)).To(Succeed())
			Eventually(func() (poolv1.MachineConfigPoolStatus, error) {
				err := c.Get(ctx, client.ObjectKeyFromObject(pool), pool)
				return pool.Status, err
			}, "1m").Should(HaveField("Configuration.Name", HavePrefix("rendered-")))
			stop()
			Expect(<-ended).To(Succeed())
		}
	})
})

// The command is in docs/dev/envtest.md.
var _ = It("builds the example outside the tree, with the command in the documentation", func(ctx SpecContext) {
	guide, err := os.ReadFile(sourcetree.Path("docs", "dev", "envtest.md"))
	Expect(err).NotTo(HaveOccurred())
	_, command, found := strings.Cut(string(guide), "```sh\n")
	Expect(found).To(BeTrue())
	command, _, _ = strings.Cut(command, "```")
	folder := GinkgoT().TempDir()
	Expect(os.CopyFS(folder, os.DirFS("example"))).To(Succeed())
	build := exec.CommandContext(ctx, "bash", "-ec", command+"go list -test -deps ./... >/dev/null")
	build.Dir, build.Env = folder, append(os.Environ(), "CLONE="+sourcetree.Path())
	output, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", output)
})
