package e2e

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
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

// kubeadmToken is a bootstrap token of kubeadm's own, as a cluster of kubeadm's has them. No host of these specs gets
// it.
const kubeadmToken = "abcdef.0123456789abcdef"

// ofThisMachine is what kubeadm finds wrong with the machine that all hosts share: its kernel and its control groups.
var ofThisMachine = []string{"SystemVerification"}

var reserved = corev1.Taint{Key: "infra", Value: "reserved", Effect: corev1.TaintEffectNoSchedule}

// All of kubeadm join runs here, by the unit, the JoinConfiguration and the discovery file that Ignition wrote. It ends
// where kubeadm calls systemctl to start the kubelet: the one here can't, so the image's kubelet.path starts the
// kubelet when kubeadm has written its flags, and kubeadm waits for it as ever.
var _ = Describe("A host that joins with kubeadm", func() {
	BeforeEach(func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
	})

	It("is born in its pool, by the real kubeadm join", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1, withKubelets)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		config := deployKubeadm(ctx, t, nil)
		joined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)

		node := t.Node(ctx, config)
		Expect(node.Labels).To(And(HaveKey("node-role.kubernetes.io/infra"), HaveKeyWithValue("node.cluster.x-k8s.io/pool", "infra"),
			HaveKeyWithValue("metal3.io/uuid", config.Status.HostRef.UID)))
		Expect(node.Spec.ProviderID).To(HavePrefix("metal3://" + t.Namespace + "/" + config.Status.HostRef.Name + "/"))
		Expect(node.Spec.Taints).To(ContainElement(reserved))
		Expect(onDisk(config, "/etc/infratest")).To(Equal("infra"))
		expectKubelet(node, "infra")
		Expect(onDisk(config, "/var/lib/kubelet/kubeadm-flags.env")).To(And(
			ContainSubstring("node.cluster.x-k8s.io/pool=infra"), ContainSubstring("--provider-id="+node.Spec.ProviderID),
			ContainSubstring("infra=reserved:NoSchedule")), "what brings them back when the Node is deleted and registers anew")
	})

	It("joins although kubeadm had given up waiting when the power went", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		config := deployKubeadm(ctx, t, nil)
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		DeferCleanup(revive)
		prepared(ctx, t, config)
		back := without(ctx, lab.Manager) // who approves certificates
		start(ctx, lab.ConfigServer)
		Eventually(ctx, func() []certificatesv1.CertificateSigningRequest { return requestsFor(ctx, config.Status.NodeRef.Name) }).ShouldNot(BeEmpty())
		Expect(onDisk(config, "/etc/kubernetes/kubelet.conf")).NotTo(BeEmpty(), "it stands before there is a certificate")
		machine := lab.Hardware.Host(config.Status.HostRef.Name)
		machine.PowerOff()
		Expect(machine.Joined()).To(BeFalse())
		// kubeadm takes the kubelet's credential away when it gives up, after minutes that this spec does not have.
		Expect(os.Remove(filepath.Join(machine.Root(), "/etc/kubernetes/bootstrap-kubelet.conf"))).To(Succeed())

		back()
		Expect(machine.Reboot(context.WithoutCancel(ctx))).To(Succeed())
		joined(ctx, t, config)
	})
})

// deployKubeadm makes a MachineDeployment of one machine of the pool infra that joins with kubeadm, and returns its
// config. The spec's end switches its host off: on one machine one host at a time can join with kubeadm, because it
// looks for the kubelet's health at one port.
func deployKubeadm(ctx context.Context, t *tenant.Tenant, change func(*bootstrapv1.BootSpec)) *bootstrapv1.PoolbootConfig {
	DeferCleanup(func() {
		if machine := lab.Hardware.Host(t.HostName(0)); machine != nil {
			machine.PowerOff()
		}
	})
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Image: site.KubeadmImageURL,
		Config: func(spec *bootstrapv1.BootSpec) {
			spec.Join = bootstrapv1.Join{Type: bootstrapv1.JoinKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{IgnorePreflightErrors: ofThisMachine}}
			spec.NodeTaints = []nodev1.Taint{{Key: reserved.Key, Value: reserved.Value, Effect: reserved.Effect}}
			if change != nil {
				change(spec)
			}
		}})
	return t.Config(ctx, "infra")
}

// expectBornInPool holds a Node that has joined, and the way it got its certificate, against what Poolboot promises.
func expectBornInPool(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, history *site.NodeHistory) {
	GinkgoHelper()
	verdict := site.Judge(versions(ctx, history, config.Status.NodeRef.Name), "infra", pools(ctx, t))
	Expect(verdict.Versions).To(BeNumerically(">", 1))
	Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	Expect(joinTokens(ctx, config)).To(BeEmpty(), "nobody can join with its credential any more")

	certificates := requestsFor(ctx, config.Status.NodeRef.Name)
	Expect(certificates).NotTo(BeEmpty())
	made := answered("create", "nodes", "", config.Status.NodeRef.Name)
	for _, request := range certificates {
		Expect(request.Status.Conditions).To(ConsistOf(HaveField("Reason", certificate.ApprovedReason)), "Poolboot approved it, and nobody else")
		Expect(answered("update", "certificatesigningrequests", "approval", request.Name)).To(BeNumerically(">", made), "the Node stood before")
	}
}

// requestsFor are the certificates that the kubelet of a Node has asked for with a join credential.
func requestsFor(ctx context.Context, node string) []certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	var list certificatesv1.CertificateSigningRequestList
	Expect(lab.WorkloadClient.List(ctx, &list)).To(Succeed())
	return slices.DeleteFunc(list.Items, func(request certificatesv1.CertificateSigningRequest) bool {
		block, _ := pem.Decode(request.Spec.Request)
		wanted, err := x509.ParseCertificateRequest(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
		return wanted.Subject.CommonName != "system:node:"+node || !strings.HasPrefix(request.Spec.Username, "system:bootstrap:")
	})
}

// answered is the place of a request among all that the workload cluster's API server has granted.
func answered(verb, resource, subresource, name string) int {
	GinkgoHelper()
	var place int
	Eventually(func() (int, error) { // the log has a request some time after its answer
		requests, err := lab.Workload.Requests()
		place = slices.IndexFunc(requests, func(r controlplane.Request) bool {
			return r.Verb == verb && r.Object.Resource == resource && r.Object.Subresource == subresource && r.Object.Name == name && r.Response.Code < 300
		})
		return place, err
	}).Should(BeNumerically(">=", 0), "%s %s/%s %s", verb, resource, subresource, name)
	return place
}

// without kills a program. It returns what starts it again; the spec's end does at the latest.
func without(ctx context.Context, program *site.Program) (back func()) {
	kill(program)
	back = sync.OnceFunc(func() { start(context.WithoutCancel(ctx), program) })
	DeferCleanup(back)
	return back
}
