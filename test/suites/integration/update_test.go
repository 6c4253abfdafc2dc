package integration

import (
	"context"
	"os/exec"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// setNode changes a Node and its status as the host does.
func setNode(ctx context.Context, name string, change func(*corev1.Node)) error {
	node := &corev1.Node{}
	if err := lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return err
	}
	changed := node.DeepCopy()
	change(changed)
	status := changed.Status
	if err := lab.WorkloadClient.Patch(ctx, changed, client.MergeFrom(node)); err != nil {
		return err
	}
	before := changed.DeepCopy()
	changed.Status = status
	return lab.WorkloadClient.Status().Patch(ctx, changed, client.MergeFrom(before))
}

// setReady sets the condition Ready of a Node.
func setReady(isReady bool) func(*corev1.Node) {
	return func(node *corev1.Node) {
		status := corev1.ConditionFalse
		if isReady {
			status = corev1.ConditionTrue
		}
		node.Status.NodeInfo.KubeletVersion = "v1.36.3"
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, Reason: "Kubelet", Message: "set by the test",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	}
}

// report sets what the agent of a host reports.
func report(state agentv1.State, revision string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Annotations[agentv1.ReportVersionAnnotation] = "1"
		node.Annotations[agentv1.StateAnnotation], node.Annotations[agentv1.TargetAnnotation] = string(state), revision
		switch state {
		case agentv1.Done:
			node.Annotations[agentv1.CurrentAnnotation] = revision
		case agentv1.Draining:
			node.Annotations[agentv1.EffectAnnotation] = revision + " " + string(update.EffectReboot)
		}
	}
}

// agent behaves as the agent of a host until ctx is done: it adopts what it is told first, and updates with a drain and
// a reboot to everything else. It leaves the reboots by Metal3 to the test.
func agent(ctx context.Context, name string) {
	for ctx.Err() == nil {
		node := &corev1.Node{}
		if err := lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node); err == nil {
			is := node.Annotations
			desired, state := is[agentv1.DesiredAnnotation], agentv1.State(is[agentv1.StateAnnotation])
			isAbout := is[agentv1.TargetAnnotation] == desired
			switch {
			case desired == "" || is[agentv1.CurrentAnnotation] == desired && isAbout:
			case is[agentv1.CurrentAnnotation] == "":
				_ = setNode(ctx, name, report(agentv1.Done, desired))
			case !isAbout:
				_ = setNode(ctx, name, report(agentv1.Draining, desired))
			case state == agentv1.Draining && is[agentv1.DrainedAnnotation] == desired:
				_ = setNode(ctx, name, report(agentv1.Rebooting, desired))
			case state == agentv1.Rebooting && is[agentv1.Metal3RebootsAnnotation] == desired:
			case state == agentv1.Rebooting && util.IsNodeReady(node):
				_ = setNode(ctx, name, setReady(false))
			case state == agentv1.Rebooting:
				_ = setNode(ctx, name, setReady(true))
				_ = setNode(ctx, name, report(agentv1.Verifying, desired))
			case state == agentv1.Verifying:
				_ = setNode(ctx, name, report(agentv1.Done, desired))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// joinHosts lets hosts with agents join, and waits until they have adopted what they booted with.
func joinHosts(ctx context.Context, t *tenant.Tenant, deployment string, number int) []string {
	GinkgoHelper()
	Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return t.Configs(ctx, deployment) }).Should(HaveLen(number))
	running, stop := context.WithCancel(context.Background())
	DeferCleanup(stop)
	var nodes []string
	configs := t.Configs(ctx, deployment)
	for i := range configs {
		waitForConfiguration(ctx, t, &configs[i])
		name := configs[i].Status.NodeRef.Name
		Eventually(ctx, func() error {
			return setNode(ctx, name, func(node *corev1.Node) {
				setReady(true)(node)
				node.Annotations[agentv1.ReportVersionAnnotation], node.Annotations[agentv1.AgentAnnotation] = "1", "v0.1.0"
			})
		}).Should(Succeed())
		Eventually(ctx, t.Condition(&configs[i], bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		go agent(running, name)
		Eventually(ctx, t.Condition(&configs[i], bootstrapv1.UpdatedCondition)).Should(HavePrefix("True Done"))
		nodes = append(nodes, name)
	}
	return nodes
}

// maxUnavailableOf returns how many of these Nodes were unavailable at the same time, at most, in any version.
func maxUnavailableOf(history *site.NodeHistory, nodes []string) (most int) {
	unavailable, joined := map[string]bool{}, map[string]bool{}
	for _, version := range history.Versions() {
		name := version.Node.Name
		isReady := util.IsNodeReady(version.Node) && !version.Deleted
		joined[name] = joined[name] || isReady
		unavailable[name] = joined[name] && (!isReady || version.Node.Spec.Unschedulable)
		count := 0
		for _, name := range nodes {
			if unavailable[name] {
				count++
			}
		}
		most = max(most, count)
	}
	return most
}

// toldRevisions returns the revisions that a host was told.
func toldRevisions(history *site.NodeHistory, name string) map[string]bool {
	revisions := map[string]bool{}
	for _, version := range history.Of(name) {
		if revision := version.Node.Annotations[agentv1.DesiredAnnotation]; revision != "" {
			revisions[revision] = true
		}
	}
	return revisions
}

// attachVolume attaches the volume of a claim to a Node.
func attachVolume(ctx context.Context, claim, node string) *storagev1.VolumeAttachment {
	GinkgoHelper()
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: claim}}
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	volume.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: claim}
	volume.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: claim}
	Expect(lab.WorkloadClient.Create(ctx, volume)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, volume)) })
	attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: claim}}
	attachment.Spec.Attacher, attachment.Spec.NodeName, attachment.Spec.Source.PersistentVolumeName = "example.com", node, &volume.Name
	Expect(lab.WorkloadClient.Create(ctx, attachment)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, attachment)) })
	detached := attachment.DeepCopy()
	attachment.Status.Attached = true
	Expect(lab.WorkloadClient.Status().Patch(ctx, attachment, client.MergeFrom(detached))).To(Succeed())
	return attachment
}

var _ = Describe("Hosts with agents", func() {
	It("follow their pool one after the other, drained, at every version of every Node, also if the manager is killed", func(ctx SpecContext) {
		const hosts = 3
		t := tenant.New(ctx, lab, hosts)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: hosts, Labels: infraLabels})
		nodes := joinHosts(ctx, t, "infra", hosts)
		configs := t.Configs(ctx, "infra")
		before := configs[0].Status.Boot.ServedConfiguration.Name
		for _, name := range nodes {
			Expect(toldRevisions(history, name)).To(HaveLen(1), "what a host should run does not change because it joined")
		}

		By("protecting a Pod of one host with a PodDisruptionBudget, and running a DaemonSet there")
		name := t.Namespace
		pod := newProtectedPod(name, nodes[1])
		Expect(lab.WorkloadClient.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error {
			return client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, pod, client.GracePeriodSeconds(0)))
		})
		unready := pod.DeepCopy()
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		Expect(lab.WorkloadClient.Status().Patch(ctx, pod, client.MergeFrom(unready))).To(Succeed())
		budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: pod.Labels}
		budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
		Expect(lab.WorkloadClient.Create(ctx, budget)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, budget)) })
		daemon := runDaemon(ctx, name, nodes[1])
		attachment := attachVolume(ctx, name, nodes[1])

		By("changing the pool")
		t.Create(ctx, t.MachineConfig("52-update", "infra", "/etc/update", "1"))
		blocked := &configs[1]
		Eventually(ctx, t.Condition(blocked, bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("False Draining"), ContainSubstring("default/"+name)))
		Expect(t.Machine(ctx, blocked).Annotations).NotTo(HaveKey(clusterv1.MachineSkipRemediationAnnotation), "nothing was changed yet")
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		Expect(infra.Status.Configuration.Name).NotTo(Equal(before))

		By("killing the manager while the budget blocks the drain")
		Expect(lab.Manager.Kill()).To(Succeed())
		Expect(lab.WorkloadClient.Delete(ctx, budget)).To(Succeed())
		Expect(lab.Manager.Start(ctx)).To(Succeed())
		Eventually(ctx, t.Condition(blocked, bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("False Draining"), ContainSubstring("PersistentVolumeClaim default/"+name)))
		Expect(lab.WorkloadClient.Delete(ctx, attachment)).To(Succeed())
		for i := range configs {
			Eventually(ctx, t.Condition(&configs[i], bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("True Done"), ContainSubstring(infra.Status.Configuration.Name)))
			Expect(configs[i].Status.Boot.ServedConfiguration.Name).To(Equal(infra.Status.Configuration.Name))
			node := t.Node(ctx, &configs[i])
			Expect(node.Spec.Unschedulable).To(BeFalse())
			Expect(node.Annotations).To(HaveKeyWithValue(poolv1.NodeCurrentConfigAnnotation, infra.Status.Configuration.Name))
			Eventually(ctx, func() map[string]string { return t.Machine(ctx, &configs[i]).Annotations }).ShouldNot(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		}
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(pod), &corev1.Pod{})).To(Satisfy(apierrors.IsNotFound))
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(daemon), &corev1.Pod{})).To(Succeed())
		Eventually(ctx, getPoolCondition(infra, poolv1.UpdatedCondition)).Should(HavePrefix("True"))
		Expect(maxUnavailableOf(history, nodes)).To(Equal(1))
		for _, name := range nodes {
			Expect(toldRevisions(history, name)).To(HaveLen(2))
		}

		By("reading when each host was updated, and whose change it was")
		binDir, err := process.BinDir()
		Expect(err).NotTo(HaveOccurred())
		updates, err := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), "rollout", "history", infra.Name, "-n", t.Namespace,
			"--kubeconfig", lab.Management.Kubeconfig, "--configuration", infra.Status.Configuration.Name).CombinedOutput()
		Expect(err).NotTo(HaveOccurred())
		for _, name := range nodes {
			Expect(string(updates)).To(MatchRegexp(`(?m)^` + name + ` +\S+Z +\S+Z +Done `))
		}
		Expect(string(updates)).To(MatchRegexp(`(?m)^MachineConfig 52-update +integration\.test +\S+Z +<none>$`))
	}, SpecTimeout(5*time.Minute))

	It("begin their update when the gate of their pool is open, and the owner of the workload cluster allows to read it", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		joinHosts(ctx, t, "infra", 1)
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		before := infra.DeepCopy()
		infra.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "change", Expression: `object.data.open == "yes"`,
			ObjectRef: poolv1.UpdateGateObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", Name: t.Namespace}}}
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
		gate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: t.Namespace}, Data: map[string]string{"open": "no"}}
		Expect(lab.WorkloadClient.Create(ctx, gate)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return lab.WorkloadClient.Delete(ctx, gate) })

		t.Create(ctx, t.MachineConfig("52-gate", "infra", "/etc/gate", "1"))
		open := getPoolCondition(infra, poolv1.UpdateGatesOpenCondition)
		Eventually(ctx, open).Should(And(HavePrefix("False GateUnreadable"), ContainSubstring("the user poolboot:update-gates of the workload cluster can't get ConfigMap default/"+t.Namespace)))
		ready := getPoolCondition(infra, poolv1.ReadyCondition)
		Eventually(ctx, ready).Should(And(HavePrefix("False GateUnreadable"), ContainSubstring("can't get ConfigMap")))

		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: gate.Name}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{gate.Name}, Verbs: []string{"get"}}}}
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: gate.Name},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: gate.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: poolv1.UpdateGatesUser}}}
		for _, object := range []client.Object{role, binding} {
			Expect(lab.WorkloadClient.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) error { return lab.WorkloadClient.Delete(ctx, object) })
		}
		Eventually(ctx, open).Should(And(HavePrefix("False GateClosed"), ContainSubstring("the gate change is closed")))
		Eventually(ctx, ready).Should(And(HavePrefix("False GateClosed"), ContainSubstring("the gate change is closed")))
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("False Waiting"), HaveSuffix(": see kubectl poolboot rollout plan infra -n "+t.Namespace)))

		closed := gate.DeepCopy()
		gate.Data["open"] = "yes"
		Expect(lab.WorkloadClient.Patch(ctx, gate, client.MergeFrom(closed))).To(Succeed())
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("True Done"), ContainSubstring(infra.Status.Configuration.Name)))
		Expect(open(ctx)).To(HavePrefix("True GatesOpen"))
	}, SpecTimeout(3*time.Minute))

	It("get their Node back before their kubelet starts, with the labels of the pool in which they are now", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "infra" }})
		joinHosts(ctx, t, "infra", 1)
		config := t.Config(ctx, "infra")
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		node := t.Node(ctx, config)
		Expect(lab.WorkloadClient.Delete(ctx, node)).To(Succeed())

		before := config.DeepCopy()
		requested := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond)) // as it is stored
		config.Status.Requests.RegistrationRequestedTime = &requested
		Expect(lab.ManagementClient.Status().Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, func() (*metav1.MicroTime, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.Update.RegisteredTime, err
		}).Should(And(Not(BeNil()), Satisfy(func(at *metav1.MicroTime) bool { return !at.Before(&requested) })))
		Expect(t.Node(ctx, config).UID).NotTo(Equal(node.UID))
		for _, version := range history.Of(node.Name) {
			Expect(version.Node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra")))
		}
	})
})

// newProtectedPod returns a Pod that runs on a Node, and is gone as soon as it is evicted.
func newProtectedPod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
}

// runDaemon runs a DaemonSet on a Node, and returns its Pod.
func runDaemon(ctx context.Context, name, node string) *corev1.Pod {
	GinkgoHelper()
	Expect(setNode(ctx, node, func(n *corev1.Node) { n.Labels["example.com/daemon"] = name })).To(Succeed())
	labels := map[string]string{"daemon": name}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	set.Spec.Template.Labels = labels
	set.Spec.Template.Spec = corev1.PodSpec{
		Containers:   []corev1.Container{{Name: "daemon", Image: "daemon"}},
		NodeSelector: map[string]string{"example.com/daemon": name},
		Tolerations:  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	Expect(lab.WorkloadClient.Create(ctx, set)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) error { return lab.WorkloadClient.Delete(ctx, set) })
	pods := &corev1.PodList{}
	Eventually(ctx, func() ([]corev1.Pod, error) {
		err := lab.WorkloadClient.List(ctx, pods, client.InNamespace("default"), client.MatchingLabels(labels))
		return pods.Items, err
	}).Should(HaveLen(1))
	pod := &pods.Items[0]
	if pod.Spec.NodeName == "" { // there is no scheduler
		binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node}}
		Expect(lab.WorkloadClient.SubResource("binding").Create(ctx, pod, binding)).To(Succeed())
	}
	return pod
}
