package controlplane

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// stage is a stage in the update of a host, by its Node.
type stage struct {
	name string
	is   func(*corev1.Node) bool
}

func inState(state agentv1.State) func(*corev1.Node) bool {
	return func(node *corev1.Node) bool {
		return agentv1.State(node.Annotations[agentv1.StateAnnotation]) == state && node.Annotations[agentv1.BegunAnnotation] != ""
	}
}

func isDrained(node *corev1.Node) bool { return node.Annotations[agentv1.DrainedAnnotation] != "" }

// The stages of an update that reboots, as far as a spec can see one before it ends.
var (
	draining  = stage{"drain", func(node *corev1.Node) bool { return inState(agentv1.Draining)(node) && !isDrained(node) }}
	changing  = stage{"change", func(node *corev1.Node) bool { return isDrained(node) && !inState(agentv1.Verifying)(node) }}
	rebooting = stage{"reboot", inState(agentv1.Rebooting)}
	verifying = stage{"verification", inState(agentv1.Verifying)}
)

// waitForStage waits until the update of a host of the control plane is in a stage, and returns the name of its Node.
func waitForStage(ctx context.Context, s stage) (name string) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		nodes := &corev1.NodeList{}
		err := lab.WorkloadClient.List(ctx, nodes, client.HasLabels{"node-role.kubernetes.io/control-plane"})
		for i := range nodes.Items {
			if node := &nodes.Items[i]; s.is(node) {
				name = node.Name
			}
		}
		return name, err
	}).WithTimeout(5*time.Minute).WithPolling(50*time.Millisecond).ShouldNot(BeEmpty(), "the %s of a host", s.name)
	return name
}

// holdDrain keeps the drain of a Node from ending until the returned function is called.
func holdDrain(ctx context.Context, node string) (release func(context.Context)) {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: "stays-", Finalizers: []string{"example.com/stays"}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false), Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "stays", Image: "none.example.com/stays", ImagePullPolicy: corev1.PullNever}},
		},
	}
	Expect(lab.WorkloadClient.Create(ctx, pod)).To(Succeed())
	return func(ctx context.Context) {
		GinkgoHelper()
		Expect(lab.WorkloadClient.Patch(ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		Expect(client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
	}
}

// describeTogether has the specs of a pool whose hosts follow it, while Cluster API or something that fails acts too.
func describeTogether() {
	// change creates a MachineConfig that reboots all hosts, and returns a function that expects the hosts to have it.
	change := func(ctx context.Context, name string) (expectDone func(context.Context, *writer, *etcdWatch)) {
		GinkgoHelper()
		began := time.Now()
		t.Create(ctx, t.MachineConfig("60-"+name, poolv1.RoleControlPlane, "/etc/"+name, "changed"))
		return func(ctx context.Context, w *writer, etcd *etcdWatch) {
			GinkgoHelper()
			expectFollowing(ctx)
			for _, host := range controlPlaneHosts(ctx) {
				Expect(host.ReadFile("/etc/" + name)).To(BeEquivalentTo("changed"))
			}
			writes, pause := w.expectNothingLost(ctx)
			measured(name, "%.0f s, %d writes, the longest pause between two %.1f s", time.Since(began).Seconds(), writes, pause.Seconds())
			Expect(pause).To(BeNumerically("<", 30*time.Second))
			if etcd != nil {
				Expect(etcd.Fewest()).To(Equal(planeHosts - 1))
			}
		}
	}
	// another returns a Machine of the control plane that is not that of a Node.
	another := func(ctx context.Context, node string) *clusterv1.Machine {
		GinkgoHelper()
		for _, machine := range controlPlaneMachines(ctx) {
			if machine.Status.NodeRef.Name != node {
				return &machine
			}
		}
		Fail("the control plane has no other Machine")
		return nil
	}

	BeforeAll(func(ctx SpecContext) {
		t.AddHost(ctx, t.HostName(planeHosts+workerHosts))
		t.Create(ctx, &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: t.Namespace,
			Selector:    metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: clusterv1.MachineControlPlaneLabel, Operator: metav1.LabelSelectorOpExists}}},
			Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
				{Type: "HostFrozen", Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](0)}}},
		}})
		adoptNewHosts(ctx)
		expectFollowing(ctx)
	}, NodeTimeout(10*time.Minute))

	It("lets Cluster API replace another host while one drains, and updates that one after it", func(ctx SpecContext) {
		w, etcd, releases := startWriter(ctx), watchEtcd(ctx), map[string]func(context.Context){}
		for _, host := range controlPlaneHosts(ctx) {
			releases[host.Name()] = holdDrain(ctx, host.Name())
		}
		expectDone := change(ctx, "remediation")
		waiting := waitForStage(ctx, draining)
		for node, release := range releases {
			if node != waiting {
				release(ctx)
			}
		}
		boot, failed := lab.Hardware.Host(waiting).BootID(), another(ctx, waiting)
		Eventually(ctx, func() []string { return held(ctx) }).Should(And(HaveLen(planeHosts-1), ContainElement(failed.Name)))
		annotate(ctx, failed, clusterv1.RemediateMachineAnnotation)
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(failed), failed) }).
			WithTimeout(5 * time.Minute).Should(Satisfy(apierrors.IsNotFound))
		expectComplete(ctx)
		Expect(lab.Hardware.Host(waiting).BootID()).To(Equal(boot), "Cluster API has gone first")
		Eventually(ctx, func() []string { return held(ctx) }).Should(HaveLen(planeHosts-1), "Cluster API takes none from now on")
		adoptNewHosts(ctx)
		releases[waiting](ctx)
		expectDone(ctx, w, etcd)
		Expect(lab.Hardware.Host(waiting).BootID()).NotTo(Equal(boot))
	}, SpecTimeout(20*time.Minute))

	DescribeTable("updates its hosts one after the other, in each stage of an update", func(ctx SpecContext, name string, fail func(context.Context, string)) {
		w, etcd, expectDone := startWriter(ctx), watchEtcd(ctx), change(ctx, name)
		for _, stage := range []stage{draining, changing, rebooting, verifying} {
			fail(ctx, waitForStage(ctx, stage))
		}
		expectDone(ctx, w, etcd)
	},
		Entry("if the manager crashes", SpecTimeout(15*time.Minute), "crash", func(ctx context.Context, _ string) {
			Expect(lab.Manager.Kill()).To(Succeed())
			Expect(lab.Manager.Start(context.WithoutCancel(ctx))).To(Succeed())
		}),
		Entry("if its host loses power", SpecTimeout(15*time.Minute), "power-loss", func(ctx context.Context, node string) {
			host := lab.Hardware.Host(node)
			Expect(host.PowerCut()).To(Succeed())
			Expect(host.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		}),
	)

	It("has a host back before Cluster API scales down, and updates none of one member", func(ctx SpecContext) {
		w, etcd, expectDone := startWriter(ctx), watchEtcd(ctx), change(ctx, "scale")
		away := waitForStage(ctx, rebooting)
		boot, removed := lab.Hardware.Host(away).BootID(), another(ctx, away)
		annotate(ctx, removed, clusterv1.DeleteMachineAnnotation)
		scaleControlPlane(ctx, 1)
		Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(removed), removed) }).
			WithTimeout(5 * time.Minute).Should(Satisfy(apierrors.IsNotFound))
		Expect(lab.Hardware.Host(away).BootID()).NotTo(Or(BeEmpty(), Equal(boot)))
		Expect(etcd.Fewest()).To(Equal(planeHosts - 1))
		Eventually(ctx, func() []clusterv1.Machine { return controlPlaneMachines(ctx) }).WithTimeout(5 * time.Minute).Should(HaveLen(1))

		By("changing the configuration of the only member")
		boot = controlPlaneHosts(ctx)[0].BootID()
		t.Create(ctx, t.MachineConfig("61-one", poolv1.RoleControlPlane, "/etc/one", "changed"))
		p := t.Pool(poolv1.RoleControlPlane)
		Eventually(ctx, func(g Gomega) {
			g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(*conditions.Get(p, poolv1.UpdateGatesOpenCondition)).To(And(HaveField("Reason", poolv1.ControlPlaneNotReadyReason), HaveField("Message", ContainSubstring("etcd has 1 member(s)"))))
		}).Should(Succeed())
		Expect(controlPlaneHosts(ctx)[0].BootID()).To(Equal(boot))
		scaleControlPlane(ctx, planeHosts)
		expectComplete(ctx)
		adoptNewHosts(ctx)
		expectDone(ctx, w, nil)
	}, SpecTimeout(25*time.Minute))
}
