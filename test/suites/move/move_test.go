package move

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctl "sigs.k8s.io/cluster-api/cmd/clusterctl/client"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const deployment = "infra"

var _ = Describe("A cluster with a paused pool, Nodes that have joined, with and without a Machine, and hosts that still ask", Ordered, func() {
	var (
		t *tenant.Tenant
		// b are hosts without a Machine that come with a token, annotated is one that a BareMetalHost's annotation
		// brought.
		b                       *batch
		annotated, first, other string
		// history is every version of every Node, from before the first boot.
		history *site.NodeHistory
		// config is the rendered config that the paused pool's Nodes run.
		config string
		// uids are those of the Nodes that have joined.
		uids = map[string]types.UID{}
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, here, 3, tenant.TakeHosts)
		var err error
		history, err = site.RecordNodes(context.WithoutCancel(ctx), here.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: deployment, Replicas: 1, Labels: map[string]string{"node-role.kubernetes.io/infra": ""}})
		everyNodeJoins(ctx, here, t, 1, uids)
		b = newBatch(ctx, t)
		annotated, first, other = t.BootAnnotatedHost(ctx, t.Namespace+"-annotated", "infra").Name, t.Namespace+"-1", t.Namespace+"-2"
		b.powerOn(ctx, first)
		everyNodeJoins(ctx, here, t, 1, uids, annotated, first)
		config = t.Configs(ctx, deployment)[0].Status.Configuration.Name

		paused := pool(ctx, here, t)
		before := paused.DeepCopy()
		paused.Spec.Paused = new(true)
		Expect(here.ManagementClient.Patch(ctx, paused, client.MergeFrom(before))).To(Succeed())
		t.Create(ctx, t.MachineConfig("52-infra", "infra", "/etc/later", "later"))
		Eventually(ctx, func() poolv1.MachineConfigPoolStatus { return pool(ctx, here, t).Status }).Should(
			HaveField("UpdatedMachineCount", HaveValue(BeZero())), "what waits was rendered")
		Expect(pool(ctx, here, t).Status.Configuration.Name).To(Equal(config))
	}, NodeTimeout(3*time.Minute))

	It("goes on where it was after clusterctl move", func(ctx SpecContext) {
		options := clusterctl.MoveOptions{FromKubeconfig: kubeconfig(here), ToKubeconfig: kubeconfig(there), Namespace: t.Namespace}
		blocked := leaveBlocked(ctx, here, t)
		code, traps := checkMove(ctx, here, t)
		Expect(traps).To(ConsistOf(isTrap("Lost", "BareMetalHost "+t.Namespace+"/"+annotated), isTrap("Hangs", "BareMetalHost "+t.Namespace+"/"+blocked)))
		Expect(code).To(Equal(2))
		abortMove(ctx, here, t, func(ctx context.Context) error { return tryMove(ctx, options) })
		_, traps = checkMove(ctx, here, t)
		Expect(traps).To(ContainElement(isTrap("Hangs", "Cluster "+t.Namespace+"/"+t.Cluster.Name)))
		Expect(tryMove(ctx, options)).To(MatchError(ContainSubstring("are paused")))
		unpause(ctx, here, t)
		unblock(ctx, here, t, blocked)

		askWithoutAnswer(ctx, here, t, 2)
		b.powerOn(ctx, other)
		holdForMove(ctx, here, t, annotated)
		Eventually(ctx, func() ([]moveTrap, error) {
			_, traps := checkMove(ctx, here, t)
			return traps, nil
		}).Should(BeEmpty())
		Expect(there.ConfigServer.Start(ctx)).To(Succeed())
		leave(here)
		move(ctx, options)
		t = arrive(ctx, t, there)
		release(ctx, there, t, annotated)

		everyNodeJoins(ctx, there, t, 2, uids, annotated, first, other)
		b.expectFull(ctx, there, t, first, other)
		expectNodeLabelRules(ctx, there, t)
		expectEveryNodeInPool(ctx, there, t, history, config)
		expectNothingLeft(ctx, here, t.Namespace)
	}, SpecTimeout(4*time.Minute))

	It("goes on where it was when a backup is restored in another management cluster", func(ctx SpecContext) {
		askWithoutAnswer(ctx, there, t, 3)
		holdForMove(ctx, there, t, annotated)
		backup := GinkgoT().TempDir()
		leave(there)
		move(ctx, clusterctl.MoveOptions{FromKubeconfig: kubeconfig(there), ToDirectory: backup, Namespace: t.Namespace})
		Expect(there.Manager.Kill()).To(Succeed())
		Expect(here.ConfigServer.Start(ctx)).To(Succeed())
		Expect(here.StartIronic(ctx)).To(Succeed())
		move(ctx, clusterctl.MoveOptions{ToKubeconfig: kubeconfig(here), FromDirectory: backup, Namespace: t.Namespace})
		t = arrive(ctx, t, here)
		release(ctx, here, t, annotated)

		everyNodeJoins(ctx, here, t, 3, uids, annotated, first, other)
		b.expectFull(ctx, here, t, first, other)
		expectNodeLabelRules(ctx, here, t)
		expectEveryNodeInPool(ctx, here, t, history, config)
	}, SpecTimeout(4*time.Minute))
})

// arrive has the stand-in for a control plane provider say on the other site what a real one would find out again, and
// returns the tenant there.
func arrive(ctx context.Context, t *tenant.Tenant, s *site.Site) *tenant.Tenant {
	GinkgoHelper()
	Expect(clusterapi.InitializeControlPlane(ctx, s.ManagementClient, client.ObjectKeyFromObject(t.Cluster))).To(Succeed())
	return t.MovedTo(s)
}

// askWithoutAnswer adds a machine whose host's request is recorded but never answered, because the config server goes
// away: its Node stands, so that clusterctl takes the Machine for provisioned, and the host asks on.
func askWithoutAnswer(ctx context.Context, s *site.Site, t *tenant.Tenant, replicas int32) {
	GinkgoHelper()
	Expect(s.ConfigServer.Stop()).To(Succeed())
	machines := &clusterv1.MachineDeployment{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: deployment}, machines)).To(Succeed())
	t.Scale(ctx, machines, replicas)
	var asking *bootstrapv1.PoolbootConfig
	Eventually(ctx, func() *bootstrapv1.PoolbootConfig {
		for _, config := range t.Configs(ctx, deployment) {
			if config.Status.Boot.RequestedTime == nil && !record.HasJoined(&config) {
				asking = &config
			}
		}
		return asking
	}).ShouldNot(BeNil())
	Eventually(ctx, func() (string, error) {
		err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(asking), asking)
		return asking.Status.DataSecretName, err
	}).ShouldNot(BeEmpty())
	before := asking.DeepCopy()
	asking.Status.Boot.RequestedTime = ptr.To(metav1.NowMicro())
	Expect(s.ManagementClient.Status().Patch(ctx, asking, client.MergeFrom(before))).To(Succeed())
	Eventually(ctx, func() bool { return t.Machine(ctx, asking).Status.NodeRef.IsDefined() }).Should(
		BeTrue(), "the Machine's nodeRef, without which clusterctl refuses to move it")
}

// everyNodeJoins waits until the Nodes of n Machines and of the hosts without one are Ready in their pool and can work.
// uids remembers them: a Node that has joined is the same for ever.
func everyNodeJoins(ctx context.Context, s *site.Site, t *tenant.Tenant, n int, uids map[string]types.UID, alone ...string) {
	GinkgoHelper()
	Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, deployment) }).Should(HaveLen(n))
	configs := t.Configs(ctx, deployment)
	for _, name := range alone {
		configs = append(configs, bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: name}})
	}
	for _, config := range configs {
		Eventually(t.Condition(&config, bootstrapv1.NodeInPoolCondition)).WithContext(ctx).Should(HavePrefix("True"))
		Eventually(t.Condition(&config, clusterv1.ReadyCondition)).WithContext(ctx).Should(HavePrefix("True"))
		Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, &config).Spec.Taints }).ShouldNot(
			ContainElement(HaveField("Key", poolv1.NodeUnassignedTaint)))
		Eventually(ctx, func() (string, error) {
			err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(&config), &config)
			return config.Annotations[bootstrapv1.TokenStateAnnotation] + config.Status.Boot.CredentialID, err
		}).Should(BeEquivalentTo(bootstrapv1.TokenStateRevoked))
		node := t.Node(ctx, &config)
		if uids[node.Name] == "" {
			uids[node.Name] = node.UID
		}
		Expect(node.UID).To(Equal(uids[node.Name]), node.Name)
	}
	Eventually(ctx, func() poolv1.MachineConfigPoolStatus { return pool(ctx, s, t).Status }).Should(
		HaveField("MachineCount", HaveValue(BeEquivalentTo(len(configs)))))
}

// expectEveryNodeInPool looks at every version of every Node since the first boot, and at what the Nodes run.
func expectEveryNodeInPool(ctx context.Context, s *site.Site, t *tenant.Tenant, history *site.NodeHistory, config string) {
	GinkgoHelper()
	var pools poolv1.MachineConfigPoolList
	Expect(s.ManagementClient.List(ctx, &pools, client.InNamespace(t.Namespace))).To(Succeed())
	Expect(pools.Items).To(HaveLen(2))
	var configs bootstrapv1.PoolbootConfigList
	Expect(s.ManagementClient.List(ctx, &configs, client.InNamespace(t.Namespace))).To(Succeed())
	for _, c := range configs.Items {
		verdict := site.Judge(history.Of(c.Status.NodeRef.Name), "infra", pools.Items)
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
		Expect(t.Node(ctx, &c).Annotations).To(And(
			HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, config), HaveKeyWithValue(poolv1.NodeDesiredConfigAnnotation, config)))
	}
}

// expectNothingLeft looks for what a moved cluster must not leave behind. The overlay of the host that asked ends with
// the credential in it; the time until then is cut short.
func expectNothingLeft(ctx context.Context, s *site.Site, namespace string) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&poolv1.MachineConfigPoolList{}, &poolv1.MachineConfigList{}, &bootstrapv1.PoolbootConfigList{}, &bootstrapv1.PoolbootConfigTemplateList{},
		&poolv1.EnrollmentList{}, &corev1.SecretList{}} {
		Eventually(ctx, func() ([]runtime.Object, error) {
			if err := s.ManagementClient.List(ctx, list, client.InNamespace(namespace)); err != nil {
				return nil, err
			}
			return meta.ExtractList(list)
		}).Should(BeEmpty())
	}
	overlays := func() ([]corev1.Secret, error) {
		list := &corev1.SecretList{}
		err := s.ManagementClient.List(ctx, list, client.HasLabels{bootstrapv1.OverlayLabel})
		return list.Items, err
	}
	left, err := overlays()
	Expect(err).NotTo(HaveOccurred())
	for _, overlay := range left {
		ends, err := time.Parse(time.RFC3339, overlay.Annotations[bootstrapv1.OverlayExpiresAnnotation])
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Until(ends)).To(BeNumerically("<=", join.Life))
		before := overlay.DeepCopy()
		overlay.Annotations[bootstrapv1.OverlayExpiresAnnotation] = time.Now().UTC().Format(time.RFC3339)
		Expect(client.IgnoreNotFound(s.ManagementClient.Patch(ctx, &overlay, client.MergeFrom(before)))).To(Succeed(), "the manager deletes them")
	}
	Eventually(ctx, func() (int, error) {
		list, err := overlays()
		return len(list), err
	}).Should(BeZero())
}

func pool(ctx context.Context, s *site.Site, t *tenant.Tenant) *poolv1.MachineConfigPool {
	found := &poolv1.MachineConfigPool{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: "infra"}, found)).To(Succeed())
	return found
}
