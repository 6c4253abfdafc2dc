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

// moveTrap is what kubectl poolboot move-check says of a trap.
type moveTrap struct{ Effect, Object, Cure string }

// checkMove runs kubectl poolboot move-check, and returns its exit code and its traps but for notes.
func checkMove(ctx context.Context, s *site.Site, t *tenant.Tenant) (code int, traps []moveTrap) {
	GinkgoHelper()
	binDir, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	document, err := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), "move-check", "-o", "json", "-n", t.Namespace, "--kubeconfig", s.Management.Kubeconfig).Output()
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		code = exited.ExitCode()
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

func isTrap(effect, object string) types.GomegaMatcher {
	return And(HaveField("Effect", effect), HaveField("Object", object))
}

// leaveBlocked puts on a host without a Machine what Metal3 leaves on one that its Machine has released.
func leaveBlocked(ctx context.Context, s *site.Site, t *tenant.Tenant) string {
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

func unblock(ctx context.Context, s *site.Site, t *tenant.Tenant, name string) {
	GinkgoHelper()
	changeHost(ctx, s, t, name, func(bmh *bmov1alpha1.BareMetalHost) { delete(bmh.Annotations, clusterctlv1.BlockMoveAnnotation) })
}

// abortMove begins a move that something holds back, and ends it as a person would.
func abortMove(ctx context.Context, s *site.Site, t *tenant.Tenant, begin func(context.Context) error) {
	GinkgoHelper()
	moving, abort := context.WithCancel(ctx)
	defer abort()
	ended := make(chan error, 1)
	go func() { ended <- begin(moving) }()
	Eventually(ctx, func() (*bool, error) { return pausedCluster(ctx, s, t) }).Should(HaveValue(BeTrue()), "clusterctl pauses the Cluster first")
	Consistently(ended).ShouldNot(Receive(), "and then waits")
	abort()
	Eventually(ctx, ended).Should(Receive(HaveOccurred()))
	Expect(pausedCluster(ctx, s, t)).To(HaveValue(BeTrue()), "which leaves the Cluster paused")
}

func pausedCluster(ctx context.Context, s *site.Site, t *tenant.Tenant) (*bool, error) {
	cluster := &clusterv1.Cluster{}
	err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), cluster)
	return cluster.Spec.Paused, err
}

// unpause does what move-check says of a Cluster that is paused.
func unpause(ctx context.Context, s *site.Site, t *tenant.Tenant) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(t.Cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(false)
	Expect(s.ManagementClient.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}
