package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/certificate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// kubeadmToken is a bootstrap token that kubeadm init creates. No host of these specs gets it.
const kubeadmToken = "abcdef.0123456789abcdef"

// ignoredPreflightErrors are the preflight errors for the kernel of the machine that runs all hosts.
var ignoredPreflightErrors = []string{"SystemVerification"}

var reservedTaint = corev1.Taint{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}

// These specs run all phases of the real kubeadm join, with the unit, the JoinConfiguration and the discovery file that
// Ignition wrote.
var _ = Describe("A host that joins with kubeadm", func() {
	BeforeEach(func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
	})

	It("registers its Node in its pool", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1, setKubeletSections)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		config := deployKubeadm(ctx, t, nil)
		expectJoined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)

		node := t.Node(ctx, config)
		Expect(node.Labels).To(And(HaveKey("node-role.kubernetes.io/infra"), HaveKeyWithValue("poolboot.io/pool", "infra"),
			HaveKeyWithValue("metal3.io/uuid", config.Status.HostRef.UID)))
		Expect(node.Spec.ProviderID).To(HavePrefix("metal3://" + t.Namespace + "/" + config.Status.HostRef.Name + "/"))
		Expect(node.Spec.Taints).To(ContainElement(reservedTaint))
		Expect(readHostFile(config, "/etc/infratest")).To(Equal("infra"))
		expectKubelet(node, "infra")
		machine := lab.Hardware.Host(config.Status.HostRef.Name)
		Eventually(ctx, machine.Run).WithArguments("systemctl", "show", "--property=ActiveState,Result", "poolboot-join.service").Should(
			And(ContainSubstring("ActiveState=active\n"), ContainSubstring("Result=success\n")))
		Expect(machine.Journal(ctx, "--unit=poolboot-join.service")).To(ContainSubstring("This node has joined the cluster"))
		Expect(readHostFile(config, "/var/lib/kubelet/kubeadm-flags.env")).To(And(
			ContainSubstring("poolboot.io/pool=infra"), ContainSubstring("--provider-id="+node.Spec.ProviderID),
			ContainSubstring("infra=reserved:NoSchedule")), "these flags restore them when the Node is deleted and registers again")
	})

	It("joins after a power loss, although kubeadm had stopped waiting for the kubelet", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		config := deployKubeadm(ctx, t, nil)
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		DeferCleanup(restartAfterFailure)
		prepareWithoutServing(ctx, t, config)
		restart := stopProgram(ctx, lab.Manager) // no certificate is approved
		start(ctx, lab.ConfigServer)
		Eventually(ctx, func() []certificatesv1.CertificateSigningRequest {
			return listClientRequests(ctx, config.Status.NodeRef.Name)
		}).ShouldNot(BeEmpty())
		Expect(readHostFile(config, "/etc/kubernetes/kubelet.conf")).NotTo(BeEmpty(), "the file exists before the certificate is issued")
		machine := lab.Hardware.Host(config.Status.HostRef.Name)
		Expect(machine.PowerCut()).To(Succeed())
		Expect(machine.Joined()).To(BeFalse())
		// kubeadm removes the kubelet's credential when it times out, after several minutes. The spec removes it at
		// once.
		Expect(machine.Remove("/etc/kubernetes/bootstrap-kubelet.conf")).To(Succeed())

		restart()
		Expect(machine.Reset(context.WithoutCancel(ctx))).To(Succeed())
		expectJoined(ctx, t, config)
	})
})

// deployKubeadm creates a MachineDeployment of one Machine of the pool infra that joins with kubeadm, and returns its
// config.
func deployKubeadm(ctx context.Context, t *tenant.Tenant, change func(*bootstrapv1.BootSpec)) *bootstrapv1.PoolbootConfig {
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Image: site.KubeadmImageURL,
		Config: func(spec *bootstrapv1.BootSpec) {
			spec.Join = bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{IgnorePreflightErrors: ignoredPreflightErrors}}
			spec.Node.Taints = []nodev1.Taint{{Key: reservedTaint.Key, Value: reservedTaint.Value, Effect: reservedTaint.Effect}}
			if change != nil {
				change(spec)
			}
		}})
	return t.Config(ctx, "infra")
}

// expectBornInPool expects each version of a joined Node to be in the pool infra, its join credential to be revoked,
// and its certificate to be approved by Poolboot after the Node was created.
func expectBornInPool(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, history *site.NodeHistory) {
	GinkgoHelper()
	verdict := site.Judge(listVersions(ctx, history, config.Status.NodeRef.Name), "infra", t.Pools(ctx))
	Expect(verdict.Versions).To(BeNumerically(">", 1))
	Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	Expect(listJoinTokens(ctx, config)).To(BeEmpty(), "the join credential is revoked")

	certificates := listClientRequests(ctx, config.Status.NodeRef.Name)
	Expect(certificates).NotTo(BeEmpty())
	created := findInAuditLog("create", "nodes", "", config.Status.NodeRef.Name)
	for _, request := range certificates {
		Expect(request.Status.Conditions).To(ConsistOf(HaveField("Reason", certificate.ApprovedReason)), "only Poolboot approved it")
		Expect(findInAuditLog("update", "certificatesigningrequests", "approval", request.Name)).To(BeNumerically(">", created), "the Node existed before the approval")
	}
}

// listClientRequests lists the requests for a client certificate of a Node's kubelet made with a join credential.
func listClientRequests(ctx context.Context, node string) []certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	var list certificatesv1.CertificateSigningRequestList
	Expect(lab.WorkloadClient.List(ctx, &list)).To(Succeed())
	return slices.DeleteFunc(list.Items, func(request certificatesv1.CertificateSigningRequest) bool {
		block, _ := pem.Decode(request.Spec.Request)
		csr, err := x509.ParseCertificateRequest(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
		return csr.Subject.CommonName != "system:node:"+node || !strings.HasPrefix(request.Spec.Username, "system:bootstrap:")
	})
}

// findInAuditLog returns the index of a successful request in the audit log of the workload cluster.
func findInAuditLog(verb, resource, subresource, name string) int {
	GinkgoHelper()
	var index int
	Eventually(func() (int, error) { // the API server logs a request after it answers
		requests, err := lab.Workload.Requests()
		index = slices.IndexFunc(requests, func(r controlplane.Request) bool {
			return r.Verb == verb && r.Object.Resource == resource && r.Object.Subresource == subresource && r.Object.Name == name && r.Response.Code < 300
		})
		return index, err
	}).Should(BeNumerically(">=", 0), "%s %s/%s %s", verb, resource, subresource, name)
	return index
}

// stopProgram kills a program and returns a function that restarts it. It is restarted at the end of the spec at the
// latest.
func stopProgram(ctx context.Context, program *site.Program) (restart func()) {
	kill(program)
	restart = sync.OnceFunc(func() { start(context.WithoutCancel(ctx), program) })
	DeferCleanup(restart)
	return restart
}
