package controlplane

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// hook is what keeps Cluster API from draining a Machine of the control plane.
const hook = clusterv1.PreDrainDeleteHookAnnotationPrefix + "/poolboot"

// stopAPIServer is a unit that makes the API server of its host hang.
const stopAPIServer = `[Service]
ExecStart=/bin/sh -c 'while :; do pkill -STOP -x kube-apiserver; sleep 1; done'
[Install]
WantedBy=multi-user.target
`

// updated reads the condition Updated of a PoolbootConfig.
func updated(config *bootstrapv1.PoolbootConfig) func(context.Context) (string, error) {
	return t.Condition(config, bootstrapv1.UpdatedCondition)
}

// held returns the names of the Machines that Cluster API does not drain because of an update.
func held(ctx context.Context) (names []string) {
	GinkgoHelper()
	for _, machine := range controlPlaneMachines(ctx) {
		if metav1.HasAnnotation(machine.ObjectMeta, hook) {
			names = append(names, machine.Name)
		}
	}
	return names
}

// adoptNewHosts lets the pool adopt all hosts of the control plane, and installs the agent on those that have none.
func adoptNewHosts(ctx context.Context) {
	GinkgoHelper()
	p := t.Pool(poolv1.RoleControlPlane)
	err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)
	before := p.DeepCopy()
	p.Spec.Adoption, p.Spec.Updates.MinReadySeconds, p.Spec.Updates.ReadyDeadlineSeconds = poolv1.PoolAdoptionFollow, ptr.To[int32](2), 300
	if apierrors.IsNotFound(err) {
		t.Create(ctx, p)
	} else {
		Expect(lab.ManagementClient.Patch(ctx, p, client.MergeFrom(before))).To(Succeed())
	}
	for _, host := range controlPlaneHosts(ctx) {
		if _, err := host.ReadFile(assignment.ProgramPath); err == nil {
			continue
		}
		var config *bootstrapv1.PoolbootConfig
		Eventually(ctx, func(g Gomega) {
			config = configOf(ctx, g, host.Name())
			g.Expect(updated(config)(ctx)).To(HavePrefix("Unknown NoAgent"))
		}).Should(Succeed())
		t.RunInstaller(ctx, config)
	}
}

// configOf returns the PoolbootConfig that adopts a Node.
func configOf(ctx context.Context, g Gomega, node string) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	configs := &bootstrapv1.PoolbootConfigList{}
	g.Expect(lab.ManagementClient.List(ctx, configs, client.InNamespace(t.Namespace))).To(Succeed())
	found := slices.IndexFunc(configs.Items, func(config bootstrapv1.PoolbootConfig) bool { return config.Spec.Host.NodeName == node })
	g.Expect(found).NotTo(Equal(-1), "a PoolbootConfig adopts Node %s", node)
	return &configs.Items[found]
}

// expectFollowing waits until all hosts of the control plane have the configuration of their pool, and expects that no
// update left anything behind.
func expectFollowing(ctx context.Context) {
	GinkgoHelper()
	expectComplete(ctx)
	Eventually(ctx, func(g Gomega) {
		p := t.Pool(poolv1.RoleControlPlane)
		g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		g.Expect(conditions.IsTrue(p, poolv1.UpdatedCondition)).To(BeTrue(), conditions.GetMessage(p, poolv1.UpdatedCondition))
		g.Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(planeHosts)))
		for _, host := range controlPlaneHosts(ctx) {
			config, node := configOf(ctx, g, host.Name()), &corev1.Node{}
			g.Expect(updated(config)(ctx)).To(HavePrefix("True"))
			g.Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: host.Name()}, node)).To(Succeed())
			g.Expect(node.Spec.Unschedulable).To(BeFalse(), "%s is cordoned", node.Name)
			g.Expect(node.Annotations).NotTo(Or(HaveKey(agentv1.BegunAnnotation), HaveKey(agentv1.CordonedAnnotation), HaveKey(agentv1.DrainedAnnotation)))
		}
		g.Expect(held(ctx)).To(BeEmpty())
	}).WithTimeout(10 * time.Minute).Should(Succeed())
}

// The hosts of the control plane follow their pool. Each spec depends on those before it.
var _ = Describe("The pool of a control plane on hosts", Ordered, func() {
	var (
		hosts   []*baremetal.Host
		configs []*bootstrapv1.PoolbootConfig
		change  *poolv1.MachineConfig
	)
	boots := func() (ids []string) {
		for _, host := range hosts {
			ids = append(ids, host.BootID())
		}
		return ids
	}
	// runs expects all hosts to run a rendered config other than before.
	runs := func(ctx context.Context, before string) {
		GinkgoHelper()
		p := t.Pool(poolv1.RoleControlPlane)
		Eventually(ctx, func(g Gomega) {
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.Configuration.Name).NotTo(Or(BeEmpty(), Equal(before)))
			g.Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(planeHosts)))
		}).WithTimeout(8 * time.Minute).Should(Succeed())
		for _, config := range configs {
			Eventually(ctx, updated(config)).Should(HavePrefix("True"))
		}
	}
	It("is the only one that their Nodes can be in, so an agent that is installed for another one waits", func(ctx SpecContext) {
		host := controlPlaneHosts(ctx)[0]
		config := t.Adopt(ctx, host.Name(), "infra", bootstrapv1.AdoptionPreview)
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.ConfigServer.URL, err
		}).ShouldNot(BeEmpty())
		t.RunInstaller(ctx, config)
		Eventually(ctx, host.Journal).WithArguments("--unit=" + ignition.InstallAgentUnit).Should(ContainSubstring("no PoolbootConfig adopts Node " + host.Name()))
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False " + bootstrapv1.ControlPlaneNodeReason))
		t.RunInstaller(ctx, config, "remove")
		Expect(lab.ManagementClient.Delete(ctx, config)).To(Succeed())
		Eventually(ctx, func() (map[string]string, error) {
			node := &corev1.Node{}
			err := lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: host.Name()}, node)
			return node.Annotations, err
		}).ShouldNot(HaveKey(HavePrefix("poolboot.io/")))
	}, SpecTimeout(3*time.Minute))

	It("adopts them without a change where nothing differs", func(ctx SpecContext) {
		hosts = controlPlaneHosts(ctx)
		before := boots()
		p := t.Pool(poolv1.RoleControlPlane)
		p.Spec.Updates.MinReadySeconds, p.Spec.Updates.ReadyDeadlineSeconds = ptr.To[int32](2), 90
		p.Spec.Node.Labels = map[string]string{"example.com/etcd": "stacked"}
		t.Create(ctx, p)
		began := time.Now()
		for _, host := range hosts {
			config := t.Adopt(ctx, host.Name(), poolv1.RoleControlPlane, bootstrapv1.AdoptionPreview)
			configs = append(configs, config)
			Eventually(ctx, updated(config)).Should(HavePrefix("Unknown NoAgent"))
			t.RunInstaller(ctx, config)
			Eventually(ctx, updated(config)).Should(And(HavePrefix("False AdoptionPreview"), ContainSubstring(rollout.PreviewNothing)))
			show("%s: adopted, its agent is installed, and its pool changes nothing on it", host.Name())
		}
		measured("adoption", "previews of %d hosts after %.0f s", planeHosts, time.Since(began).Seconds())
		began = time.Now()
		for _, config := range configs {
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
			agreed := config.DeepCopy()
			agreed.Spec.Host.Adoption = bootstrapv1.AdoptionFollow
			Expect(lab.ManagementClient.Patch(ctx, agreed, client.MergeFrom(config))).To(Succeed())
		}
		runs(ctx, "")
		measured("adoption", "%d hosts in their pool %.0f s after somebody agreed", planeHosts, time.Since(began).Seconds())
		Expect(boots()).To(Equal(before), "no host was rebooted")
		for _, host := range hosts {
			node := &corev1.Node{}
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: host.Name()}, node)).To(Succeed())
			Expect(node.Labels).To(And(HaveKeyWithValue("example.com/etcd", "stacked"), HaveKeyWithValue(poolv1.NodePoolLabel, poolv1.RoleControlPlane), HaveKey("node-role.kubernetes.io/control-plane")))
		}
	}, SpecTimeout(12*time.Minute))

	It("reboots them one after the other for a change, without a lost write", func(ctx SpecContext) {
		p := t.Pool(poolv1.RoleControlPlane)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		before := boots()
		w, etcd, updates, began := startWriter(ctx), watchEtcd(ctx), watchUpdates(ctx), time.Now()
		show("a client writes every %s, and a MachineConfig changes /etc/motd, for which hosts reboot", writeInterval)
		t.Create(ctx, t.MachineConfig("50-motd", poolv1.RoleControlPlane, "/etc/motd", "control-plane"))
		Eventually(ctx, func() []string { return held(ctx) }).Should(HaveLen(planeHosts-1), "Cluster API drains no other Machine")
		runs(ctx, p.Status.Configuration.Name)
		took := time.Since(began)
		writes, pause := w.expectNothingLost(ctx)
		Eventually(ctx, updates.Took).Should(HaveLen(planeHosts))
		measured("update", "%d hosts, %.0f s for each (%s), at most %d away at a time, %d writes, none lost, the longest pause between two %.1f s",
			planeHosts, took.Seconds()/planeHosts, updates.Seconds(), updates.Most(), writes, pause.Seconds())
		Expect(updates.Most()).To(Equal(1))
		Expect(etcd.Fewest()).To(Equal(planeHosts - 1))
		for i, id := range boots() {
			Expect(id).NotTo(Equal(before[i]))
			Expect(hosts[i].ReadFile("/etc/motd")).To(BeEquivalentTo("control-plane"))
		}
		Eventually(ctx, func() []string { return held(ctx) }).Should(BeEmpty())
	}, SpecTimeout(12*time.Minute))

	It("has an update that breaks the API server undone by its host, and changes no other", func(ctx SpecContext) {
		p := t.Pool(poolv1.RoleControlPlane)
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		w, etcd, before := startWriter(ctx), watchEtcd(ctx), p.Status.Configuration.Name
		raw, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.4.0"}, "systemd": map[string]any{"units": []any{
			map[string]any{"name": "stop-api-server.service", "enabled": true, "contents": stopAPIServer}}}})
		Expect(err).NotTo(HaveOccurred())
		change = t.IgnitionMachineConfig("51-broken", poolv1.RoleControlPlane, raw)
		t.Create(ctx, change)
		stopped := func(g Gomega) {
			count := 0
			for _, config := range configs {
				if is, err := updated(config)(ctx); err == nil && is != "" {
					g.Expect(is).NotTo(HavePrefix("True"))
					if ok, _ := HavePrefix("False " + bootstrapv1.UpdateDegradedReason).Match(is); ok {
						g.Expect(is).To(ContainSubstring("kube-apiserver"))
						count++
					}
				}
			}
			g.Expect(count).To(Equal(1))
			g.Expect(lab.APIServers()).To(Equal(planeHosts))
		}
		Eventually(ctx, stopped).WithTimeout(8 * time.Minute).Should(Succeed())
		Consistently(ctx, stopped).WithTimeout(15 * time.Second).Should(Succeed())
		_, pause := w.expectNothingLost(ctx)
		measured("undo", "the longest pause between two writes %.1f s", pause.Seconds())
		Expect(etcd.Fewest()).To(BeNumerically(">=", planeHosts-1))
		Expect(lab.ManagementClient.Delete(ctx, change)).To(Succeed())
		for _, config := range configs {
			Eventually(ctx, updated(config)).Should(HavePrefix("True"))
		}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
		Expect(p.Status.Configuration.Name).To(Equal(before))
	}, SpecTimeout(15*time.Minute))

	Context("with hosts that follow it", describeTogether)
})
