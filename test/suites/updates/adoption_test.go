package updates

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// joinToken is a bootstrap token of kubeadm.
const joinToken = "abcdef.0123456789abcdef"

// joinUnit joins a cluster as another bootstrap provider does.
const joinUnit = `[Unit]
After=containerd.service network-online.target
Wants=network-online.target
ConditionPathExists=!/etc/kubernetes/kubelet.conf
[Service]
Type=oneshot
ExecStart=/usr/bin/kubeadm join --config=/etc/kubernetes/join.yaml
[Install]
WantedBy=multi-user.target
`

// ownersUserData is the user data of a host that does not know Poolboot, with files of its owner.
func ownersUserData(files map[string]string) []byte {
	GinkgoHelper()
	type object map[string]any
	var list []object
	for path, text := range files {
		list = append(list, object{"path": path, "mode": 0o644, "overwrite": true, "contents": object{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(text))}})
	}
	raw, err := json.Marshal(object{
		"ignition": object{"version": "3.4.0"}, "storage": object{"files": list},
		"systemd": object{"units": []object{{"name": "kubelet.service", "enabled": true}, {"name": "join.service", "enabled": true, "contents": joinUnit}}},
	})
	Expect(err).NotTo(HaveOccurred())
	return raw
}

var _ = Describe("A Node that Poolboot did not boot", Ordered, func() {
	var (
		t       *tenant.Tenant
		name    string
		config  *bootstrapv1.PoolbootConfig
		machine *baremetal.Host
	)
	read := func(ctx context.Context, path string) string {
		text, _ := machine.Run(ctx, "cat", path)
		return text
	}
	node := func(ctx context.Context) *corev1.Node {
		GinkgoHelper()
		node := &corev1.Node{}
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		return node
	}
	setAdoption := func(ctx context.Context, policy bootstrapv1.AdoptionPolicy) {
		GinkgoHelper()
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		before := config.DeepCopy()
		config.Spec.Host.Adoption = policy
		Expect(lab.ManagementClient.Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
	}

	BeforeAll(func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, joinToken)).To(Succeed())
		t = tenant.New(ctx, lab, 0)
		name = t.Namespace + "-owned"
		t.BootOtherHost(ctx, name, ownersUserData(map[string]string{
			"/etc/kubernetes/join.yaml": string(kubeadm.JoinConfiguration(lab.Workload, joinToken)), "/etc/infratest": "owner", "/etc/workertest": "worker",
		}))
		Eventually(ctx, func(g Gomega) {
			node := &corev1.Node{}
			g.Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			g.Expect(util.IsNodeReady(node)).To(BeTrue())
		}).Should(Succeed())
		machine = lab.Hardware.Host(name)
	}, NodeTimeout(5*time.Minute))

	It("stays as it was found, and reports what its pool would change, once its host has an agent", func(ctx SpecContext) {
		labels := node(ctx).Labels
		config = t.Adopt(ctx, name, "infra", bootstrapv1.AdoptionPreview)
		updated := t.Condition(config, bootstrapv1.UpdatedCondition)
		Eventually(ctx, updated).Should(And(HavePrefix("Unknown NoAgent"), ContainSubstring("kubectl poolboot install-agent "+name)))

		By("installing the agent")
		began := time.Now()
		t.RunInstaller(ctx, config)
		Eventually(ctx, updated).Should(And(HavePrefix("False AdoptionPreview"), ContainSubstring("with the effect Reboot: /etc/infratest: Content. To agree, set spec.host.adoption")))
		AddReportEntry("adoption", fmt.Sprintf("a preview %.1f s after the script was started", time.Since(began).Seconds()))
		Consistently(ctx, func() string { return read(ctx, "/etc/infratest") }).Should(Equal("owner"))
		Expect(node(ctx).Labels).To(Equal(labels))
		Expect(node(ctx).Annotations).NotTo(HaveKey(agentv1.BegunAnnotation))
		p := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(p.Status.HostCount).To(HaveValue(BeZero()), "it is in no pool")
	}, SpecTimeout(4*time.Minute))

	It("follows its pool once somebody agrees", func(ctx SpecContext) {
		began, boot := time.Now(), machine.BootID()
		setAdoption(ctx, bootstrapv1.AdoptionFollow)
		Eventually(ctx, t.Condition(config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True"))
		AddReportEntry("adoption", fmt.Sprintf("in its pool %.1f s after somebody agreed, with a reboot", time.Since(began).Seconds()))
		Expect(machine.BootID()).NotTo(Equal(boot))
		Expect(read(ctx, "/etc/infratest")).To(Equal("infra"))
		Expect(node(ctx).Labels).To(And(HaveKey("node-role.kubernetes.io/infra"), HaveKeyWithValue("poolboot.io/pool", "infra")))
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		Expect(node(ctx).Spec.Unschedulable).To(BeFalse())
	}, SpecTimeout(4*time.Minute))

	It("returns to what it was, and leaves", func(ctx SpecContext) {
		setAdoption(ctx, bootstrapv1.AdoptionPreview)
		Eventually(ctx, t.Condition(config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("False AdoptionPreview"))
		Expect(read(ctx, "/etc/infratest") + read(ctx, "/etc/workertest")).To(Equal("ownerworker"))
		Eventually(ctx, func() map[string]string { return node(ctx).Labels }).ShouldNot(Or(HaveKey("node-role.kubernetes.io/infra"), HaveKey("poolboot.io/pool")))
		t.RunInstaller(ctx, config, "remove")
		Expect(machine.Run(ctx, "find", "/etc/systemd/system", "/etc/poolboot", "/var/lib/poolboot", "-name", "*poolboot*")).Error().To(MatchError(And(
			ContainSubstring("/etc/poolboot"), ContainSubstring("/var/lib/poolboot"))), "they are gone")
		Expect(lab.ManagementClient.Delete(ctx, config)).To(Succeed())
		Eventually(ctx, func() map[string]string { return node(ctx).Annotations }).ShouldNot(HaveKey(HavePrefix("poolboot.io/")))
		Consistently(ctx, func() bool { return util.IsNodeReady(node(ctx)) }).Should(BeTrue())
	}, SpecTimeout(4*time.Minute))
})
