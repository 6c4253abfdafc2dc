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

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const deploymentName = "infra"

var _ = Describe("A cluster with a paused pool, joined Nodes with and without a Machine, and booting hosts", Ordered, func() {
	var (
		t *tenant.Tenant
		// b has the hosts with an enrollment token, named first and other. annotated is a BareMetalHost with a pool
		// annotation.
		b                       *enrollmentToken
		annotated, first, other string
		// history has each version of all Nodes, since before the first boot.
		history *site.NodeHistory
		// config is the rendered config of the paused pool's Nodes.
		config string
		// uids are the UIDs of the joined Nodes, by name.
		uids = map[string]types.UID{}
		// revisions are what the agents of the hosts that joined first were told, by Node.
		revisions map[string]string
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, source, 3, tenant.TakeHosts)
		var err error
		history, err = site.RecordNodes(context.WithoutCancel(ctx), source.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		preparePool(ctx, source, t)
		t.Deploy(ctx, tenant.Deployment{Name: deploymentName, Replicas: 1, Labels: map[string]string{"node-role.kubernetes.io/infra": ""}})
		expectNodesJoined(ctx, source, t, 1, uids)
		b = newEnrollmentToken(ctx, t)
		annotated, first, other = t.BootAnnotatedHost(ctx, t.Namespace+"-annotated", "infra").Name, t.Namespace+"-1", t.Namespace+"-2"
		b.powerOn(ctx, first)
		expectNodesJoined(ctx, source, t, 1, uids, annotated, first)
		config = t.Configs(ctx, deploymentName)[0].Status.Boot.ServedConfiguration.Name
		revisions = revisionsOf(ctx, source, t)

		changePool(ctx, source, t, func(infra *poolv1.MachineConfigPool) { infra.Spec.Paused = new(true) })
		t.Create(ctx, t.MachineConfig("52-infra", "infra", laterFile, "later"))
		Eventually(ctx, func() poolv1.MachineConfigPoolStatus { return getPool(ctx, source, t).Status }).Should(
			HaveField("UpdatedHostCount", HaveValue(BeZero())), "the change is rendered and waits")
		Expect(getPool(ctx, source, t).Status.Configuration.Name).To(Equal(config))
	}, NodeTimeout(3*time.Minute))

	It("completes its boots and keeps its Nodes after clusterctl move", func(ctx SpecContext) {
		options := clusterctl.MoveOptions{FromKubeconfig: newKubeconfig(source), ToKubeconfig: newKubeconfig(target), Namespace: t.Namespace}
		blocked := blockMove(ctx, source, t)
		code, traps := checkMove(ctx, source, t)
		Expect(traps).To(ConsistOf(matchTrap("Lost", "BareMetalHost "+t.Namespace+"/"+annotated), matchTrap("Hangs", "BareMetalHost "+t.Namespace+"/"+blocked)))
		Expect(code).To(Equal(2))
		abortMove(ctx, source, t, func(ctx context.Context) error { return tryMove(ctx, options) })
		_, traps = checkMove(ctx, source, t)
		Expect(traps).To(ContainElement(matchTrap("Hangs", "Cluster "+t.Namespace+"/"+t.Cluster.Name)))
		Expect(tryMove(ctx, options)).To(MatchError(ContainSubstring("are paused")))
		unpause(ctx, source, t)
		unblockMove(ctx, source, t, blocked)

		addUnansweredMachine(ctx, source, t, 2)
		b.powerOn(ctx, other)
		holdForMove(ctx, source, t, annotated)
		expectSafe(ctx, source, t)
		Expect(target.ConfigServer.Start(ctx)).To(Succeed())
		stopIronic(source)
		move(ctx, options)
		t = initializeMoved(ctx, t, target)
		resumeAfterMove(ctx, target, t, annotated)

		expectNodesJoined(ctx, target, t, 2, uids, annotated, first, other)
		b.expectUsedUp(ctx, target, t, first, other)
		expectHostUIDLabels(ctx, target, t)
		expectNodesInPool(ctx, target, t, history, config)
		now := revisionsOf(ctx, target, t)
		for node, revision := range revisions {
			Expect(now).To(HaveKeyWithValue(node, revision), "a move changes nothing that a host is told, also in a paused pool")
		}
		expectCleanedUp(ctx, source, t.Namespace)
	}, SpecTimeout(4*time.Minute))

	It("completes its boots and an update, and keeps its Nodes, when a backup is restored in another management cluster", func(ctx SpecContext) {
		beginUpdate(ctx, target, t, history) // hosts stage it from the config server
		addUnansweredMachine(ctx, target, t, 3)
		holdForMove(ctx, target, t, annotated)
		expectSafe(ctx, target, t)
		held := holdForBackup(ctx, target, t)
		backup := GinkgoT().TempDir()
		stopIronic(target)
		move(ctx, clusterctl.MoveOptions{FromKubeconfig: newKubeconfig(target), ToDirectory: backup, Namespace: t.Namespace})
		expectStatusSaved(backup, t, held)
		Expect(target.Manager.Kill()).To(Succeed())
		Expect(source.ConfigServer.Start(ctx)).To(Succeed())
		source.StartIronic()
		move(ctx, clusterctl.MoveOptions{ToKubeconfig: newKubeconfig(source), FromDirectory: backup, Namespace: t.Namespace})
		t = initializeMoved(ctx, t, source)
		for _, name := range held {
			resumeAfterMove(ctx, source, t, name)
		}

		expectNodesJoined(ctx, source, t, 3, uids, annotated, first, other)
		b.expectUsedUp(ctx, source, t, first, other)
		expectHostUIDLabels(ctx, source, t)
		expectNodesInPool(ctx, source, t, history, expectUpdated(ctx, source, t, history))
	}, SpecTimeout(7*time.Minute))
})

// initializeMoved sets the control plane's status on the other site, as a control plane provider does after a move, and
// returns the tenant on that site.
func initializeMoved(ctx context.Context, t *tenant.Tenant, s *site.Site) *tenant.Tenant {
	GinkgoHelper()
	Expect(clusterapi.InitializeControlPlane(ctx, s.ManagementClient, client.ObjectKeyFromObject(t.Cluster))).To(Succeed())
	return t.MovedTo(s)
}

// addUnansweredMachine adds a Machine whose host has requested its configuration without an answer, because the config
// server is stopped. Its Node is pre-registered, therefore clusterctl moves the Machine, and the host keeps retrying.
func addUnansweredMachine(ctx context.Context, s *site.Site, t *tenant.Tenant, replicas int32) {
	GinkgoHelper()
	Expect(s.ConfigServer.Stop()).To(Succeed())
	machineDeployment := &clusterv1.MachineDeployment{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: deploymentName}, machineDeployment)).To(Succeed())
	t.Scale(ctx, machineDeployment, replicas)
	var unanswered *bootstrapv1.PoolbootConfig
	Eventually(ctx, func() *bootstrapv1.PoolbootConfig {
		for _, config := range t.Configs(ctx, deploymentName) {
			if config.Status.Requests.RequestedTime == nil && !record.HasJoined(&config) {
				unanswered = &config
			}
		}
		return unanswered
	}).ShouldNot(BeNil())
	Eventually(ctx, func() (string, error) {
		err := s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(unanswered), unanswered)
		return unanswered.Status.DataSecretName, err
	}).ShouldNot(BeEmpty())
	before := unanswered.DeepCopy()
	unanswered.Status.Requests.RequestedTime = ptr.To(metav1.NowMicro())
	Expect(s.ManagementClient.Status().Patch(ctx, unanswered, client.MergeFrom(before))).To(Succeed())
	Eventually(ctx, func() bool { return t.Machine(ctx, unanswered).Status.NodeRef.IsDefined() }).Should(
		BeTrue(), "clusterctl refuses to move a Machine without nodeRef")
}

// expectNodesJoined waits until the Nodes of n Machines and of the hosts without a Machine are Ready in their pool. It
// records the UIDs of new Nodes in uids, and expects the recorded UIDs of all others.
func expectNodesJoined(ctx context.Context, s *site.Site, t *tenant.Tenant, n int, uids map[string]types.UID, hosts ...string) {
	GinkgoHelper()
	Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, deploymentName) }).Should(HaveLen(n))
	configs := t.Configs(ctx, deploymentName)
	for _, name := range hosts {
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
		if record.MachineName(&config) != "" || record.HostKindOf(&config) == record.BareMetalHost {
			Eventually(ctx, func() (bootstrapv1.HostReference, error) {
				return config.Status.HostRef, s.ManagementClient.Get(ctx, client.ObjectKeyFromObject(&config), &config)
			}).ShouldNot(BeZero(), "%s names its BareMetalHost, also after a move", config.Name)
		}
	}
	Eventually(ctx, func() poolv1.MachineConfigPoolStatus { return getPool(ctx, s, t).Status }).Should(
		HaveField("HostCount", HaveValue(BeEquivalentTo(len(configs)))))
}

// expectNodesInPool expects each version of all Nodes since the first boot to be in the pool, and the Nodes to run
// config.
func expectNodesInPool(ctx context.Context, s *site.Site, t *tenant.Tenant, history *site.NodeHistory, config string) {
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
			HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, config), HaveKeyWithValue(agentv1.DesiredConfigAnnotation, config)))
	}
}

// expectCleanedUp expects no objects of a moved cluster on the old site. Overlays expire with their join credential:
// the function sets their expiration to now.
func expectCleanedUp(ctx context.Context, s *site.Site, namespace string) {
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
	listOverlays := func() ([]corev1.Secret, error) {
		list := &corev1.SecretList{}
		err := s.ManagementClient.List(ctx, list, client.HasLabels{bootstrapv1.OverlayLabel})
		return list.Items, err
	}
	remaining, err := listOverlays()
	Expect(err).NotTo(HaveOccurred())
	for _, overlay := range remaining {
		expiration, err := time.Parse(time.RFC3339, overlay.Annotations[bootstrapv1.OverlayExpiresAnnotation])
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Until(expiration)).To(BeNumerically("<=", join.Lifetime))
		before := overlay.DeepCopy()
		overlay.Annotations[bootstrapv1.OverlayExpiresAnnotation] = time.Now().UTC().Format(time.RFC3339)
		Expect(client.IgnoreNotFound(s.ManagementClient.Patch(ctx, &overlay, client.MergeFrom(before)))).To(Succeed(), "the manager deletes them")
	}
	Eventually(ctx, func() (int, error) {
		list, err := listOverlays()
		return len(list), err
	}).Should(BeZero())
}

func getPool(ctx context.Context, s *site.Site, t *tenant.Tenant) *poolv1.MachineConfigPool {
	found := &poolv1.MachineConfigPool{}
	Expect(s.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: "infra"}, found)).To(Succeed())
	return found
}
