package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// managedAttachDetachAnnotation is set by the kubelet only, when it registers.
const managedAttachDetachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"

var infraLabels = map[string]string{"node-role.kubernetes.io/infra": ""}

var _ = Describe("Machines of two pools", func() {
	It("boot straight into their pools: each version of their Nodes is in its pool", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 5, setKubeletSections)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 2, Labels: infraLabels})
		t.Deploy(ctx, tenant.Deployment{Name: "worker", Replicas: 2})
		for _, role := range []string{"infra", "worker"} {
			Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, role) }).Should(HaveLen(2))
			for _, config := range t.Configs(ctx, role) {
				expectJoined(ctx, t, &config)
				Expect(config.Status.PoolRole).To(Equal(role))
				verdict := site.Judge(listVersions(ctx, history, config.Status.NodeRef.Name), role, t.Pools(ctx))
				Expect(verdict.Versions).To(BeNumerically(">", 1))
				Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
				Expect(readHostFile(&config, "/etc/workertest")).To(Equal("worker"))
				expectKubelet(t.Node(ctx, &config), role)
				if role == "infra" {
					Expect(readHostFile(&config, "/etc/infratest")).To(Equal("infra"))
				}
			}
		}
	})
})

// setKubeletSections sets spec.kubelet.configuration of the pools worker and infra. The section of infra overrides
// maxPods and inherits systemReserved.
func setKubeletSections(p *poolv1.MachineConfigPool) {
	sections := map[string]string{"worker": `"maxPods":77,"systemReserved":{"cpu":"150m"}`, "infra": `"maxPods":57`}
	p.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",%s}`, sections[p.Spec.PoolRole])}
}

// expectKubelet expects a Node's capacity and allocatable resources to match setKubeletSections.
func expectKubelet(node *corev1.Node, role string) {
	GinkgoHelper()
	maxPods := map[string]int64{"worker": 77, "infra": 57}
	Expect(node.Status.Capacity.Pods().Value()).To(Equal(maxPods[role]), "the custom pool's own maxPods wins")
	Expect(node.Status.Capacity.Cpu().MilliValue()-node.Status.Allocatable.Cpu().MilliValue()).To(Equal(int64(150)), "systemReserved is inherited from the pool worker")
}

// expectJoined waits until the Node of a config is Ready in its pool and schedulable, and its token and join credential
// are revoked.
func expectJoined(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	EventuallyWithOffset(1, t.Condition(config, bootstrapv1.NodeInPoolCondition)).WithContext(ctx).Should(HavePrefix("True"))
	// kube-controller-manager and Cluster API remove their taints independently of Poolboot. A Node can be Ready before
	// the kubelet has added its annotations.
	EventuallyWithOffset(1, func() *corev1.Node { return t.Node(ctx, config) }).WithContext(ctx).Should(And(
		HaveField("Spec.Taints", Not(ContainElement(HaveField("Key", BeElementOf(poolv1.NodeUnassignedTaint, corev1.TaintNodeNotReady, clusterv1.NodeUninitializedTaint.Key))))),
		HaveField("Annotations", HaveKey(managedAttachDetachAnnotation))))
	EventuallyWithOffset(1, func() (string, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
		return config.Annotations[bootstrapv1.TokenStateAnnotation] + config.Status.Boot.CredentialID, err
	}).WithContext(ctx).Should(BeEquivalentTo(bootstrapv1.TokenStateRevoked))
	EventuallyWithOffset(1, lab.Hardware.Host(config.Status.HostRef.Name).Joined).WithContext(ctx).Should(BeTrue(), "the sentinel file")
}

// listVersions returns the recorded versions of a Node, up to the current one. It waits for the watch to catch up.
func listVersions(ctx context.Context, history *site.NodeHistory, name string) []site.NodeVersion {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	Eventually(ctx, func() (seen []string) {
		for _, version := range history.Of(name) {
			seen = append(seen, version.Node.ResourceVersion)
		}
		return seen
	}).Should(ContainElement(node.ResourceVersion), "the watch on Nodes")
	return history.Of(name)
}

// readHostFile reads a file on the disk of a config's host.
func readHostFile(config *bootstrapv1.PoolbootConfig, path string) (string, error) {
	content, err := lab.Hardware.Host(config.Status.HostRef.Name).ReadFile(path)
	return string(content), err
}
