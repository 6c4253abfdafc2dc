package integration

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Invalid input", func() {
	It("is reported for a pool that does not exist, until it is created", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "storage", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "storage" }})
		config := t.Config(ctx, "storage")
		Eventually(ctx, t.Condition(config, bootstrapv1.PoolDecidedCondition)).Should(And(HavePrefix("False PoolNotFound"), ContainSubstring(`"storage"`)))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False PoolNotFound"))
		t.Create(ctx, t.Pool("storage"))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
	})

	It("is reported for a role label that no pool selects, until the pool is created", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "storage", Replicas: 1, Labels: map[string]string{"node-role.kubernetes.io/storage": ""}})
		config := t.Config(ctx, "storage")
		Eventually(ctx, t.Condition(config, bootstrapv1.PoolDecidedCondition)).Should(And(HavePrefix("False PoolNotFound"), ContainSubstring("node-role.kubernetes.io/storage="), ContainSubstring("spec.poolRole: worker")))
		Expect(config.Status.DataSecretName).To(BeEmpty(), "it does not boot as a worker")
		t.Create(ctx, t.Pool("storage"))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Expect(config.Status.PoolRole).To(Equal("storage"))
	})

	It("is reported for labels of two custom pools, until one label is removed", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Create(ctx, t.Pool("storage"))
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "both", Replicas: 1, Labels: map[string]string{"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/storage": ""}})
		config := t.Config(ctx, "both")
		Eventually(ctx, t.Condition(config, bootstrapv1.PoolDecidedCondition)).Should(And(HavePrefix("False PoolConflict"), ContainSubstring("infra"), ContainSubstring("storage")))
		before := deployment.DeepCopy()
		delete(deployment.Spec.Template.Labels, "node-role.kubernetes.io/storage")
		Expect(lab.ManagementClient.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		Expect(config.Status.PoolRole).To(Equal("infra"))
	})

	It("is reported for a control plane Machine", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		config := createStandaloneMachine(ctx, t, "cp", map[string]string{clusterv1.MachineControlPlaneLabel: ""})
		Eventually(ctx, t.Condition(config, bootstrapv1.DataSecretAvailableCondition)).Should(HavePrefix("False ControlPlaneNotSupported"))
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("False ControlPlaneNotSupported"))
	})

	It("is reported for a foreign Secret of the same name, which is not changed", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		taken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "own"}, StringData: map[string]string{"value": "mine"}}
		t.Create(ctx, taken)
		config := createStandaloneMachine(ctx, t, "own", nil)
		Eventually(ctx, t.Condition(config, bootstrapv1.DataSecretAvailableCondition)).Should(And(HavePrefix("False DataSecretNotOwned"), ContainSubstring("Secret own")))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(taken), taken)).To(Succeed())
		Expect(taken.Data).To(Equal(map[string][]byte{"value": []byte("mine")}))
	})

	It("is reported for a foreign Node of the same name, which is not changed", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.Machine(ctx, config).Name, Labels: map[string]string{"example.com/mine": "yes"}}}
		Expect(lab.WorkloadClient.Create(ctx, foreign)).To(Succeed())
		t.AddHosts(ctx, 1)
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False NodeNameTaken"), ContainSubstring(foreign.Name)))
		Eventually(ctx, listEvents(ctx, t.Namespace, "PoolbootConfig", config.Name, bootstrapv1.NodeNameTakenReason)).Should(ConsistOf(ContainSubstring(foreign.Name)))
		host := hosts.get(client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)})
		Eventually(ctx, host.statusCodes).Should(And(Not(BeEmpty()), HaveEach(503)))
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(foreign), foreign)).To(Succeed())
		Expect(foreign.Labels).NotTo(HaveKey("node-role.kubernetes.io/infra"))
		Expect(lab.WorkloadClient.Delete(ctx, foreign)).To(Succeed())
		waitForConfiguration(ctx, t, config)
	})

	It("is reported for a pool of a Cluster that does not exist", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		pool := t.Pool("worker")
		t.Create(ctx, pool)
		Eventually(ctx, getPoolCondition(pool, poolv1.RenderDegradedCondition)).Should(And(HavePrefix("True ClusterNotFound"), ContainSubstring(t.Namespace)))
	})

	It("is reported for a pool that renders more than etcd can store", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		pool := t.Pool("infra")
		Eventually(ctx, getSources(pool)).Should(HaveLen(2))
		for _, name := range []string{"60-big", "61-big"} {
			t.Create(ctx, t.MachineConfig(name, "infra", "/etc/"+name, strings.Repeat("x", 800_000)))
		}
		Eventually(ctx, getPoolCondition(pool, poolv1.RenderDegradedCondition)).Should(And(HavePrefix("True RenderFailed"), ContainSubstring("60-big"), ContainSubstring("61-big")))
		Expect(pool.Status.Configuration.Name).NotTo(BeEmpty(), "new Machines still boot, with the previous rendered config")
	})

	DescribeTable("is refused when it is applied",
		func(ctx SpecContext, object func(*tenant.Tenant) client.Object, messages ...string) {
			t := tenant.NewEmpty(ctx, lab)
			refused := object(t)
			refused.SetNamespace(t.Namespace)
			err := lab.ManagementClient.Create(ctx, refused)
			Expect(err).To(HaveOccurred())
			for _, text := range messages {
				Expect(err.Error()).To(ContainSubstring(text))
			}
		},
		Entry("a selector that can't be registered", func(t *tenant.Tenant) client.Object {
			pool := t.Pool("infra")
			pool.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "example.com/a", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}}}}
			return pool
		}, "spec.nodeSelector.matchExpressions[0]", "NotIn"),
		Entry("Ignition that does not parse", func(t *tenant.Tenant) client.Object {
			return newIgnitionMachineConfig(t, `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a","mode":"0644"}]}}`)
		}, "storage.files[0].mode"),
		Entry("Ignition of an unknown version", func(t *tenant.Tenant) client.Object {
			return newIgnitionMachineConfig(t, `{"ignition":{"version":"9.9.0"}}`)
		}, "9.9.0"),
		Entry("Butane with errors", func(t *tenant.Tenant) client.Object {
			config := t.MachineConfig("bad", "infra", "/etc/a", "a")
			config.Spec.Config, config.Spec.Butane = nil, "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - pathh: /etc/a\n"
			return config
		}, "butane", "pathh"),
		Entry("a reserved path", func(t *tenant.Tenant) client.Object {
			return t.MachineConfig("bad", "infra", "/etc/poolboot/kubelet.env", "a")
		},
			"/etc/poolboot/kubelet.env"),
		Entry("the kubelet's unit", func(t *tenant.Tenant) client.Object {
			return newIgnitionMachineConfig(t, `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"kubelet.service","contents":"[Service]\nExecStart=/usr/bin/kubelet"}]}}`)
		}, "kubelet.service"),
		Entry("a kubelet flag for labels", func(t *tenant.Tenant) client.Object {
			return newIgnitionMachineConfig(t, `{"ignition":{"version":"3.4.0"},"systemd":{"units":[{"name":"a.service","contents":"[Service]\nExecStart=/usr/bin/x --node-labels=a=b"}]}}`)
		}, "a.service", "--node-labels"),
		Entry("a rendered config that Poolboot did not render", func(t *tenant.Tenant) client.Object {
			return t.MachineConfig("rendered-infra-00000000000000000000000000000000", "infra", "/etc/a", "a")
		}, "rendered-"),
		Entry("a role that is not a DNS label", func(t *tenant.Tenant) client.Object { return newPoolWithRole(t, "In_fra") }, "spec.poolRole", "should match"),
		Entry("a role that is too long", func(t *tenant.Tenant) client.Object { return newPoolWithRole(t, strings.Repeat("a", 64)) }, "spec.poolRole", "63"),
		Entry("no role", func(t *tenant.Tenant) client.Object { return newPoolWithRole(t, "") }, "spec.poolRole"),
		Entry("a selector that selects no Node", func(t *tenant.Tenant) client.Object {
			pool := t.Pool("infra")
			pool.Spec.NodeSelector = &metav1.LabelSelector{}
			return pool
		}, "spec.nodeSelector", "would match nothing: leave it out"),
		Entry("a label with another value than the selector's", func(t *tenant.Tenant) client.Object {
			pool := t.Pool("infra")
			pool.Spec.Node.Labels = map[string]string{"node-role.kubernetes.io/infra": "yes"}
			return pool
		}, "spec.node.labels"),
		Entry("a taint with two values", func(t *tenant.Tenant) client.Object {
			pool := t.Pool("infra")
			for _, value := range []string{"a", "b"} {
				pool.Spec.Node.Taints = append(pool.Spec.Node.Taints, nodev1.Taint{Key: "example.com/a", Value: value, Effect: corev1.TaintEffectNoSchedule})
			}
			return pool
		}, "spec.node.taints[1]", "Duplicate"),
		Entry("a control plane pool with the name that OpenShift has for it as its role", func(t *tenant.Tenant) client.Object { return t.Pool("master") }, "spec.poolRole", "control-plane"),
		Entry("two types of join", func(*tenant.Tenant) client.Object {
			config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
			config.Spec.Join = bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet, Kubeadm: bootstrapv1.KubeadmJoin{CRISocket: "/run/a.sock"}}
			return config
		}, "spec.join.kubeadm", "only be set with type Kubeadm"),
		Entry("poolRetention Host with configSource Inline, which fixes the pool before a host is chosen", func(*tenant.Tenant) client.Object {
			template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
			spec := &template.Spec.Template.Spec
			spec.Join.Type, spec.ConfigSource.Type, spec.PoolRetention = bootstrapv1.JoinTypeKubelet, bootstrapv1.ConfigSourceTypeInline, bootstrapv1.PoolRetentionHost
			return template
		}, "spec.template.spec.poolRetention", "Host needs configSource.type Server"),
		Entry("nodeNameSource Host with configSource Inline, which fixes the name before a host is chosen", func(*tenant.Tenant) client.Object {
			config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "bad"}}
			config.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
			config.Spec.ConfigSource.Type, config.Spec.NodeNameSource = bootstrapv1.ConfigSourceTypeInline, bootstrapv1.NodeNameSourceHost
			return config
		}, "spec.nodeNameSource"),
	)

	It("is refused when a rendered config is changed", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		pool := t.Pool("infra")
		Eventually(ctx, getSources(pool)).Should(HaveLen(2))
		rendered := &poolv1.MachineConfig{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: pool.Status.Configuration.Name}, rendered)).To(Succeed())
		before := rendered.DeepCopy()
		rendered.Spec.KernelArguments = []string{"changed"}
		Expect(lab.ManagementClient.Patch(ctx, rendered, client.MergeFrom(before))).To(MatchError(ContainSubstring("rendered")))
	})
})

// newPoolWithRole returns a pool whose role differs from its name.
func newPoolWithRole(t *tenant.Tenant, role string) *poolv1.MachineConfigPool {
	pool := t.Pool("bad")
	pool.Spec.PoolRole = role
	return pool
}

func newIgnitionMachineConfig(t *tenant.Tenant, ignition string) *poolv1.MachineConfig {
	return t.IgnitionMachineConfig("bad", "infra", []byte(ignition))
}

// getPoolCondition returns a function that reads a condition of a pool as "Status Reason: message".
func getPoolCondition(pool *poolv1.MachineConfigPool, kind string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			return "", err
		}
		if c := conditions.Get(pool, kind); c != nil {
			return string(c.Status) + " " + c.Reason + ": " + c.Message, nil
		}
		return "", nil
	}
}

// createStandaloneMachine creates a Machine without a MachineDeployment, and its PoolbootConfig.
func createStandaloneMachine(ctx context.Context, t *tenant.Tenant, name string, labels map[string]string) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	all := map[string]string{clusterv1.ClusterNameLabel: t.Namespace}
	maps.Copy(all, labels)
	machine := &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all},
		Spec: clusterv1.MachineSpec{ClusterName: t.Namespace,
			Bootstrap:         clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PoolbootConfig", Name: name}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: name}},
	}
	t.Create(ctx, machine)
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))}}}
	config.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	t.Create(ctx, config)
	return config
}
