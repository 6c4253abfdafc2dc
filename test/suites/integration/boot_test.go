package integration

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var infraLabels = map[string]string{"node-role.kubernetes.io/infra": "", "rack.node.cluster.x-k8s.io/id": "r7", "example.com/not-synced": "x"}

var _ = Describe("A booting Machine", func() {
	It("has its MachineDeployment's labels on its Node before its host gets its configuration", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: func(spec *bootstrapv1.BootSpec) {
			spec.Node.Labels = map[string]string{"example.com/own": "yes"}
			spec.Node.Taints = []nodev1.Taint{{Key: "example.com/own", Effect: corev1.TaintEffectNoSchedule}}
		}})
		config := t.Config(ctx, "infra")
		host := waitForConfiguration(ctx, t, config)

		Eventually(ctx, func() []site.NodeVersion { return history.Of(config.Status.NodeRef.Name) }).ShouldNot(BeEmpty())
		first := history.Of(config.Status.NodeRef.Name)[0].Node
		// The config server records the time after it has answered.
		Eventually(ctx, func(ctx context.Context) (*metav1.MicroTime, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.Requests.ServedTime, err
		}).ShouldNot(BeNil())
		Expect(first.CreationTimestamp.Time).To(BeTemporally("<=", config.Status.Requests.ServedTime.Time))
		Expect(first.Labels).To(And(
			HaveKeyWithValue("node-role.kubernetes.io/infra", ""),
			HaveKeyWithValue("rack.node.cluster.x-k8s.io/id", "r7"),
			HaveKeyWithValue("example.com/own", "yes"),
			HaveKeyWithValue(poolv1.NodePoolLabel, "infra"),
			HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, config.Status.HostRef.UID),
			Not(HaveKey("example.com/not-synced")),
		))
		Expect(first.Spec.Taints).To(ContainElements(
			HaveField("Key", poolv1.NodeUnassignedTaint), HaveField("Key", "example.com/own"), HaveField("Key", clusterv1.NodeUninitializedTaint.Key)))
		Expect(first.Spec.ProviderID).To(Equal("metal3://" + t.Namespace + "/" + t.HostName(0) + "/" + t.Machine(ctx, config).Spec.InfrastructureRef.Name))
		Expect(first.Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, HavePrefix("rendered-infra-")))

		Expect(host.readFile("/etc/workertest")).To(Equal("worker"))
		Expect(host.readFile("/etc/infratest")).To(Equal("infra"))
		env, err := host.readFile("/etc/poolboot/kubelet.env")
		Expect(err).NotTo(HaveOccurred())
		Expect(env).To(And(ContainSubstring("example.com/own=yes"), ContainSubstring(poolv1.NodeUnassignedTaint)))
		Expect(env).NotTo(ContainSubstring("node-role.kubernetes.io"), "the kubelet refuses to start with such labels")
	})

	It("is in the worker pool by default", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "plain", Replicas: 1})
		config := t.Config(ctx, "plain")
		host := waitForConfiguration(ctx, t, config)
		Expect(config.Status.PoolRole).To(Equal("worker"))
		Expect(t.Node(ctx, config).Labels).To(HaveKey("node-role.kubernetes.io/worker"))
		_, err := host.readFile("/etc/infratest")
		Expect(err).To(HaveOccurred())
	})

	It("gets its Node again, in its pool, when it is deleted before the kubelet has registered", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		first := t.Node(ctx, config)
		Expect(lab.WorkloadClient.Delete(ctx, first)).To(Succeed())
		again := &corev1.Node{}
		Eventually(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(first), again) }).Should(Succeed())
		Expect(again.UID).NotTo(Equal(first.UID))
		Expect(again.Labels).To(HaveKey("node-role.kubernetes.io/infra"))
		Expect(listTaintKeys(again.Spec.Taints)).To(ContainElement(poolv1.NodeUnassignedTaint))
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.NodeRef.UID, err
		}).Should(Equal(string(again.UID)))
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False WaitingForKubelet"))
	})

	It("is replaced, and leaves no Node, when a MachineHealthCheck finds that its host never joined", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		node := t.Node(ctx, config)
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "infra"}, Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: t.Namespace,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "infra"}},
			Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionFalse, TimeoutSeconds: ptr.To[int32](1)}}},
		}}
		t.Create(ctx, check)
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(lab.ManagementClient.Delete(ctx, check)).To(Succeed())
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Satisfy(apierrors.IsNotFound))
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, "infra") }).Should(HaveLen(1))
	})

	It("is named after its host with nodeNameSource Host", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: func(spec *bootstrapv1.BootSpec) { spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		Expect(config.Status.NodeRef.Name).To(Equal(t.HostName(0)))
		Expect(lab.WorkloadClient.Delete(ctx, t.Node(ctx, config))).To(Succeed())
	})

	It("gets one data Secret, whose token is not a join credential, and is Ready after that", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Expect(config.Status.DataSecretName).To(Equal(config.Name))
		Expect(config.Status.Initialization.DataSecretCreated).To(Equal(ptr.To(true)))

		secret := &corev1.Secret{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
		Expect(secret.Type).To(Equal(clusterv1.ClusterSecretType))
		Expect(secret.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, t.Namespace))
		Expect(metav1.IsControlledBy(secret, config)).To(BeTrue())
		Expect(secret.Data).To(HaveKeyWithValue("format", []byte("ignition")))
		Expect(string(secret.Data["value"])).NotTo(ContainSubstring("bootstrap-kubelet.conf"), "a pointer has no join credential")
		Eventually(ctx, func() *string { return t.Machine(ctx, config).Spec.Bootstrap.DataSecretName }).Should(Equal(ptr.To(config.Name)))
	})
})

var _ = Describe("Scaling a MachineDeployment", func() {
	It("prepares each new Machine, and cleans up Machines that are deleted before their Node is Ready", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 2)
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		waitForConfiguration(ctx, t, t.Config(ctx, "infra"))
		t.Scale(ctx, deployment, 2)
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, "infra") }).Should(HaveLen(2))
		configs := t.Configs(ctx, "infra")
		for i := range configs {
			waitForConfiguration(ctx, t, &configs[i])
		}
		registered := t.Node(ctx, &configs[1])
		before := registered.DeepCopy()
		registered.Status.NodeInfo.KubeletVersion = "v1.36.3"
		Expect(lab.WorkloadClient.Status().Patch(ctx, registered, client.MergeFrom(before))).To(Succeed())

		t.Scale(ctx, deployment, 0)
		for _, config := range configs {
			Eventually(ctx, func() error {
				return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(&config), &bootstrapv1.PoolbootConfig{})
			}).Should(Satisfy(apierrors.IsNotFound))
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: config.Status.NodeRef.Name}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + config.Status.Boot.CredentialID},
				&corev1.Secret{})).To(Satisfy(apierrors.IsNotFound))
		}
		var overlays corev1.SecretList
		Expect(lab.ManagementClient.List(ctx, &overlays, client.HasLabels{bootstrapv1.OverlayLabel})).To(Succeed())
		for _, config := range configs {
			Expect(overlays.Items).NotTo(ContainElement(HaveField("Labels", HaveKeyWithValue(bootstrapv1.OverlayLabel, string(config.UID)))))
		}
	})
})

var _ = Describe("The Machines of a Cluster", func() {
	It("wait until its control plane is initialized", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		t.CreateCluster(ctx, clusterapi.ClusterOptions{Uninitialized: true})
		t.Create(ctx, t.Pool("worker"), t.Pool("infra"))
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.DataSecretAvailableCondition)).Should(HavePrefix("False WaitingForControlPlane"))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False"))
		Expect(clusterapi.InitializeControlPlane(ctx, lab.ManagementClient, client.ObjectKeyFromObject(t.Cluster))).To(Succeed())
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
	})

	It("are not reconciled while it is paused", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		t.Pause(ctx, true)
		Eventually(ctx, t.Condition(config, clusterv1.PausedCondition)).Should(HavePrefix("True"))
		Expect(lab.WorkloadClient.Delete(ctx, t.Node(ctx, config))).To(Succeed())
		Consistently(ctx, func() error {
			return lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: config.Status.NodeRef.Name}, &corev1.Node{})
		}).Should(Satisfy(apierrors.IsNotFound))
		t.Pause(ctx, false)
		Eventually(ctx, t.Condition(config, clusterv1.PausedCondition)).Should(HavePrefix("False"))
	})
})

var _ = Describe("A PoolbootConfig whose status is lost, as after clusterctl move", func() {
	It("gets its status back, with the same Secret and the same token", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		before, hash := t.Pointer(ctx, config), config.Annotations[bootstrapv1.TokenHashAnnotation]

		loseStatus(ctx, t, config)
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Expect(config.Status.DataSecretName).To(Equal(config.Name))
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(config.Annotations).To(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, hash))
		Expect(t.Pointer(ctx, config)).To(Equal(before))
	})

	It("keeps the join credential of a host that already has its configuration", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		before := config.Status.DeepCopy()
		Expect(before.Boot.CredentialID).NotTo(BeEmpty())
		loseStatus(ctx, t, config)
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
		Expect(config.Status.Boot.CredentialID).To(Equal(before.Boot.CredentialID))
		Expect(config.Status.NodeRef).To(Equal(before.NodeRef))
	})
})

// loseStatus clears a config's status while its Cluster is paused.
func loseStatus(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	t.Pause(ctx, true)
	Eventually(ctx, t.Condition(config, clusterv1.PausedCondition)).Should(HavePrefix("True"))
	Eventually(ctx, func() error {
		if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return err
		}
		config.Status = bootstrapv1.PoolbootConfigStatus{}
		return lab.ManagementClient.Status().Update(ctx, config)
	}).Should(Succeed(), "the update can conflict with a controller's")
	t.Pause(ctx, false)
}

var _ = Describe("The workload cluster's API server", func() {
	It("can be down while a host asks: the host gets 503 until it is up, and then its configuration", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Expect(lab.Workload.StopAPIServer()).To(Succeed())
		t.AddHosts(ctx, 1)
		host := hosts.get(client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)})
		Eventually(ctx, host.statusCodes).Should(ContainElement(503))
		Expect(host.statusCodes()).To(HaveEach(503))
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("False WorkloadClusterUnreachable"))
		Expect(lab.Workload.StartAPIServer(context.WithoutCancel(ctx))).To(Succeed())
		waitForConfiguration(ctx, t, config)
		Expect(strings.Join(listTaintKeys(t.Node(ctx, config).Spec.Taints), " ")).To(ContainSubstring(poolv1.NodeUnassignedTaint))
	}, SpecTimeout(6*time.Minute))
})

func listTaintKeys(taints []corev1.Taint) []string {
	var keys []string
	for _, taint := range taints {
		keys = append(keys, taint.Key)
	}
	return keys
}

// waitForConfiguration waits until the host of a config has fetched its configuration, and returns the host.
func waitForConfiguration(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) *fakeHost {
	EventuallyWithOffset(1, t.Condition(config, bootstrapv1.BootPreparedCondition)).WithContext(ctx).Should(HavePrefix("True"))
	host := hosts.get(client.ObjectKey{Namespace: config.Status.HostRef.Namespace, Name: config.Status.HostRef.Name})
	EventuallyWithOffset(1, func() error { _, err := host.configuration(); return err }).WithContext(ctx).Should(Succeed())
	return host
}
