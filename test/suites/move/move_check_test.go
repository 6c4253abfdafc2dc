package move

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// moveTrap is a trap that kubectl poolboot move-check reports.
type moveTrap struct {
	Effect, Object string
	Remedy         string `json:"cure"`
}

// checkMove runs kubectl poolboot move-check, and returns its exit code and its traps except notes.
func checkMove(ctx context.Context, s *site.Site, t *tenant.Tenant) (code int, traps []moveTrap) {
	GinkgoHelper()
	binDir, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	document, err := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), "move-check", "-o", "json", "-n", t.Namespace, "--kubeconfig", s.Management.Kubeconfig).Output()
	if exitErr := (*exec.ExitError)(nil); errors.As(err, &exitErr) {
		code = exitErr.ExitCode()
	} else {
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(code).To(Or(BeZero(), Equal(2)))
	var checked struct{ Traps []moveTrap }
	Expect(json.Unmarshal(document, &checked)).To(Succeed())
	for _, trap := range checked.Traps {
		if trap.Effect != "Note" {
			traps = append(traps, trap)
		}
	}
	return code, traps
}

// expectSafe waits until no trap is left. Metal3 works on hosts for seconds after they have joined or were moved, and
// installs them again if they are moved meanwhile.
func expectSafe(ctx context.Context, s *site.Site, t *tenant.Tenant) {
	GinkgoHelper()
	Eventually(ctx, func() []moveTrap {
		_, traps := checkMove(ctx, s, t)
		return traps
	}).Should(BeEmpty())
}

func matchTrap(effect, object string) types.GomegaMatcher {
	return And(HaveField("Effect", effect), HaveField("Object", object))
}

// blockMove sets the annotation on an available host that Metal3 leaves on a host when its Machine is deleted. It
// blocks clusterctl move. The function returns the host's name.
func blockMove(ctx context.Context, s *site.Site, t *tenant.Tenant) string {
	GinkgoHelper()
	var hosts bmov1alpha1.BareMetalHostList
	Expect(s.ManagementClient.List(ctx, &hosts, client.InNamespace(t.Namespace))).To(Succeed())
	for _, bmh := range hosts.Items {
		if bmh.Spec.ConsumerRef == nil && bmh.Status.Provisioning.State == bmov1alpha1.StateAvailable {
			changeHost(ctx, s, t, bmh.Name, func(bmh *bmov1alpha1.BareMetalHost) {
				metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, clusterctlv1.BlockMoveAnnotation, "")
			})
			return bmh.Name
		}
	}
	Fail("no BareMetalHost is available")
	return ""
}

func unblockMove(ctx context.Context, s *site.Site, t *tenant.Tenant, name string) {
	GinkgoHelper()
	changeHost(ctx, s, t, name, func(bmh *bmov1alpha1.BareMetalHost) { delete(bmh.Annotations, clusterctlv1.BlockMoveAnnotation) })
}

// abortMove starts a move that is blocked, and cancels it.
func abortMove(ctx context.Context, s *site.Site, t *tenant.Tenant, start func(context.Context) error) {
	GinkgoHelper()
	moveCtx, abort := context.WithCancel(ctx)
	defer abort()
	done := make(chan error, 1)
	go func() { done <- start(moveCtx) }()
	Eventually(ctx, func() (*bool, error) { return isClusterPaused(ctx, s, t) }).Should(HaveValue(BeTrue()), "clusterctl pauses the Cluster first")
	Consistently(done).ShouldNot(Receive(), "clusterctl waits")
	abort()
	Eventually(ctx, done).Should(Receive(HaveOccurred()))
	Expect(isClusterPaused(ctx, s, t)).To(HaveValue(BeTrue()), "the canceled move leaves the Cluster paused")
}

func isClusterPaused(ctx context.Context, s *site.Site, t *tenant.Tenant) (*bool, error) {
	cluster := &clusterv1.Cluster{}
	err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), cluster)
	return cluster.Spec.Paused, err
}

// unpause unpauses the Cluster, as move-check advises.
func unpause(ctx context.Context, s *site.Site, t *tenant.Tenant) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(false)
	Expect(s.ManagementClient.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}
