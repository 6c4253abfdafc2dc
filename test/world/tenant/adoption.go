package tenant

import (
	"context"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// Adopt creates a PoolbootConfig, with the name of the Node, for a Node that Poolboot did not boot.
func (t *Tenant) Adopt(ctx context.Context, node, role string, policy bootstrapv1.AdoptionPolicy) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{clusterv1.ClusterNameLabel: t.Namespace}}}
	config.Spec.PoolRole = role
	config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: node, Adoption: policy}
	t.Create(ctx, config)
	return config
}

// RunInstaller runs on the host of an adopted Node, with arguments, what kubectl poolboot install-agent prints.
func (t *Tenant) RunInstaller(ctx context.Context, config *bootstrapv1.PoolbootConfig, args ...string) {
	GinkgoHelper()
	binDir, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	script, err := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), "install-agent", config.Name, "-n", t.Namespace, "--kubeconfig", t.site.Management.Kubeconfig).Output()
	Expect(err).NotTo(HaveOccurred())
	Expect(t.site.Hardware.Host(config.Spec.Host.NodeName).Run(ctx, append([]string{"sh", "-c", string(script), "sh"}, args...)...)).Error().NotTo(HaveOccurred())
}
