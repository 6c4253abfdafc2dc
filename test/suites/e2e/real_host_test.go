package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const gatewayRole = "node-role.kubernetes.io/gateway"

// gateScript is the program of gate.service, which the kubelets of the pool gateway require. It fails in the first
// boot, does not end in the second, and succeeds in all others.
const gateScript = `[ -e /run/gate ] || echo boot >>/var/lib/gate
touch /run/gate
case $(wc -l </var/lib/gate) in
1) exit 1 ;;
2) exec sleep infinity ;;
esac
`

// newGatewayConfig returns the MachineConfig of the pool gateway: the gate, a unit that fails and that nothing
// requires, and a first boot that is slow to complete.
func newGatewayConfig(t *tenant.Tenant) *poolv1.MachineConfig {
	raw, err := json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.4.0"},
		"storage": map[string]any{"files": []any{map[string]any{"path": "/opt/gate", "mode": 0o755,
			"contents": map[string]any{"source": "data:;base64," + base64.StdEncoding.EncodeToString([]byte(gateScript))}}}},
		"systemd": map[string]any{"units": []any{
			map[string]any{"name": "gate.service", "contents": "[Unit]\nBefore=kubelet.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh /opt/gate\n"},
			map[string]any{"name": "kubelet.service", "dropins": []any{map[string]any{"name": "50-gate.conf", "contents": "[Unit]\nRequires=gate.service\n"}}},
			map[string]any{"name": "ignition-firstboot-complete.service", "dropins": []any{
				map[string]any{"name": "50-slow.conf", "contents": "[Service]\nExecStartPre=/bin/sleep 2\n"}}},
			map[string]any{"name": "optional.service", "enabled": true,
				"contents": "[Unit]\nBefore=kubelet.service\n[Service]\nType=oneshot\nExecStart=/bin/false\n[Install]\nWantedBy=multi-user.target\n"},
		}},
	})
	Expect(err).NotTo(HaveOccurred())
	return t.IgnitionMachineConfig("51-gateway", "gateway", raw)
}

// gateway is a host of the pool gateway.
type gateway struct {
	*baremetal.Host
	config *bootstrapv1.PoolbootConfig
	// joinUnit is the unit that joins, and joinFile the first file that it writes.
	joinUnit, joinFile string
	// boot is the ID of the last boot that was seen.
	boot string
}

// waitForBoot waits until another boot of the host is so far that units are started.
func (g *gateway) waitForBoot(ctx context.Context) {
	GinkgoHelper()
	previous := g.boot
	Eventually(ctx, func() string {
		g.boot = g.BootID()
		if _, err := g.ReadFile("/run/gate"); err != nil {
			g.boot = ""
		}
		return g.boot
	}).ShouldNot(Or(BeEmpty(), Equal(previous)), "boot of "+g.Name())
}

// property returns a property of a unit.
func (g *gateway) property(ctx context.Context, unit, name string) string {
	value, _ := g.Run(ctx, "systemctl", "show", "--property="+name, "--value", unit) // an error before systemd listens
	return strings.TrimSpace(value)
}

// microseconds returns a property of a unit that is a time since the host booted. It is 0 if the event did not happen.
func (g *gateway) microseconds(ctx context.Context, unit, name string) int {
	number, _ := strconv.Atoi(g.property(ctx, unit, name))
	return number
}

// registrations returns how often the kubelet has registered its Node, in all boots.
func (g *gateway) registrations(ctx context.Context) int {
	journal, _ := g.Journal(ctx, "--unit=kubelet.service") // an error between the boots
	return strings.Count(journal, "Successfully registered node")
}

// reboot reboots the host gracefully.
func (g *gateway) reboot(ctx context.Context) {
	_, _ = g.Run(ctx, "systemctl", "reboot") // its connection can end first
}

// These specs follow two hosts of the pool gateway, one that joins by kubelet and one that joins by kubeadm, through
// their boots. Each depends on those before it.
var _ = Describe("Real hosts of a pool, which join by kubelet and by kubeadm,", Ordered, func() {
	var (
		t        *tenant.Tenant
		history  *site.NodeHistory
		worker   *bootstrapv1.PoolbootConfig
		gateways []*gateway
		bound    = &bindings{pods: map[types.UID]*corev1.Pod{}}
	)
	each := func(do func(g *gateway)) {
		for _, g := range gateways {
			By(g.Name() + " with " + g.joinUnit)
			do(g)
		}
	}

	BeforeAll(func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
		Expect(lab.Workload.StartScheduler()).To(Succeed())
		var err error
		watching, end := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(end)
		history, err = site.RecordNodes(watching, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		Expect(site.Follow(watching, lab.WorkloadClient, &corev1.PodList{}, bound.seen)).To(Succeed())

		t = tenant.New(ctx, lab, 3)
		t.Create(ctx, t.Pool("gateway"), newGatewayConfig(t))
		setGateway := func(join bootstrapv1.Join) func(*bootstrapv1.BootSpec) {
			return func(spec *bootstrapv1.BootSpec) { spec.PoolRole, spec.Join = "gateway", join }
		}
		t.Deploy(ctx, tenant.Deployment{Name: "kubelet", Replicas: 1, Config: setGateway(bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet})})
		t.Deploy(ctx, tenant.Deployment{Name: "kubeadm", Replicas: 1, Image: site.KubeadmImageURL, Config: setGateway(
			bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{IgnorePreflightErrors: ignoredPreflightErrors}})})
		t.Deploy(ctx, tenant.Deployment{Name: "worker", Replicas: 1})
		worker = t.Config(ctx, "worker")
		gateways = []*gateway{
			{config: t.Config(ctx, "kubelet"), joinUnit: ignition.KubeletUnit, joinFile: ignition.KubeconfigPath},
			{config: t.Config(ctx, "kubeadm"), joinUnit: "poolboot-join.service", joinFile: ignition.BootstrapKubeconfigPath},
		}
		createPods(ctx, t)
		for _, g := range gateways {
			Eventually(ctx, t.Condition(g.config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
			g.Host = lab.Hardware.Host(g.config.Status.HostRef.Name)
		}
	}, NodeTimeout(5*time.Minute))

	It("start their join after the first boot is complete", func(ctx SpecContext) {
		each(func(g *gateway) {
			g.waitForBoot(ctx)
			Eventually(ctx, g.microseconds).WithArguments("poolboot-check.service", "ExecMainStartTimestampMonotonic").ShouldNot(BeZero())
			Expect(g.microseconds(ctx, "ignition-firstboot-complete.service", "ActiveEnterTimestampMonotonic")).To(And(Not(BeZero()),
				BeNumerically("<", g.microseconds(ctx, "poolboot-check.service", "ExecMainStartTimestampMonotonic"))), "the join starts when Ignition can't run again")
		})
	}, SpecTimeout(3*time.Minute))

	It("do not start the kubelet if a unit that it requires fails, and say so", func(ctx SpecContext) {
		each(func(g *gateway) {
			Eventually(ctx, g.property).WithArguments("gate.service", "Result").Should(Equal("exit-code"))
			Eventually(ctx, g.Console).Should(ContainSubstring("Dependency failed for "))
			Expect(g.microseconds(ctx, "kubelet.service", "ExecMainStartTimestampMonotonic")).To(BeZero(), "the kubelet was never started")
			Eventually(ctx, t.Condition(g.config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False " + bootstrapv1.WaitingForKubeletReason))
			Expect(t.Node(ctx, g.config).Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionFalse), HaveField("Message", ContainSubstring("its kubelet has not registered yet")))))
			g.reboot(ctx)
		})
	}, SpecTimeout(3*time.Minute))

	It("start the kubelet after a unit of the pool that is ordered before it", func(ctx SpecContext) {
		each(func(g *gateway) {
			g.waitForBoot(ctx)
			Eventually(ctx, g.Run).WithArguments("systemctl", "list-jobs", "--plain", "--no-legend").Should(And(
				MatchRegexp(`gate.service +start +running`), MatchRegexp(`kubelet.service +start +waiting`)))
			if g.joinUnit != ignition.KubeletUnit { // kubeadm has written its files, and waits for systemd to start the kubelet
				Eventually(ctx, g.ReadFile).WithArguments(g.joinFile).ShouldNot(BeEmpty())
				Eventually(ctx, g.ReadFile).WithArguments("/var/lib/kubelet/kubeadm-flags.env").ShouldNot(BeEmpty())
			}
			Expect(g.microseconds(ctx, "kubelet.service", "ExecMainStartTimestampMonotonic")).To(BeZero())
			_, err := g.ReadFile(ignition.KubeconfigPath)
			Expect(err).To(MatchError(ContainSubstring("no such file")), "the kubelet has not written its kubeconfig")
		})
	}, SpecTimeout(3*time.Minute))

	It("join after a power loss and after a reboot in the middle of the join", func(ctx SpecContext) {
		each(func(g *gateway) {
			setPaused(ctx, g.config, true) // the Node gets Ready and is not complete
			Expect(g.Reset(context.WithoutCancel(ctx))).To(Succeed())
			g.waitForBoot(ctx)
			Eventually(ctx, g.ReadFile).WithArguments(ignition.KubeconfigPath).WithPolling(crashPollingInterval).ShouldNot(BeEmpty(), "the kubelet has started")
			g.reboot(ctx)
		})
		each(func(g *gateway) {
			g.waitForBoot(ctx)
			Eventually(ctx, func() bool { return util.IsNodeReady(t.Node(ctx, g.config)) }).Should(BeTrue())
			Eventually(ctx, g.Joined).Should(BeTrue(), "the sentinel file")
		})
	}, SpecTimeout(5*time.Minute))

	It("run no Pod before their Node is complete", func(ctx SpecContext) {
		each(func(g *gateway) {
			Eventually(ctx, func() *corev1.Node { return t.Node(ctx, g.config) }).Should(And(Satisfy(util.IsNodeReady),
				HaveField("Spec.Taints", ConsistOf(HaveField("Key", poolv1.NodeUnassignedTaint)))), "it is Ready, and only Poolboot's taint is left")
		})
		Eventually(ctx, listPods).WithArguments(t, "deployment").Should(And(HaveLen(gatewayReplicas), HaveEach(HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", corev1.PodScheduled), HaveField("Status", corev1.ConditionFalse), HaveField("Message", ContainSubstring("node(s) had untolerated taint(s)"))))))))
		Consistently(ctx, func() []corev1.Pod {
			return slices.Concat(listPods(ctx, t, "deployment"), listPods(ctx, t, "daemonset"))
		}).Should(
			And(HaveLen(gatewayReplicas), HaveEach(HaveField("Spec.NodeName", BeEmpty()))), "the scheduler has no Node for the Deployment, and the DaemonSet has no Pods")
		each(func(g *gateway) {
			setPaused(ctx, g.config, false)
			expectJoined(ctx, t, g.config)
		})
	}, SpecTimeout(3*time.Minute))

	It("run the Pods of a Deployment and of a DaemonSet for the pool, and no other Node of the cluster does", func(ctx SpecContext) {
		expectJoined(ctx, t, worker)
		var nodes []string
		each(func(g *gateway) { nodes = append(nodes, g.config.Status.NodeRef.Name) })
		for _, kind := range []string{"deployment", "daemonset"} {
			Eventually(ctx, listPods).WithArguments(t, kind).Should(And(Not(BeEmpty()), HaveEach(HaveField("Status.Phase", corev1.PodRunning))))
			Expect(listPods(ctx, t, kind)).To(HaveEach(HaveField("Spec.NodeName", BeElementOf(nodes))))
		}
		Expect(listPods(ctx, t, "daemonset")).To(ConsistOf(HaveField("Spec.NodeName", nodes[0]), HaveField("Spec.NodeName", nodes[1])))
		Expect(listPods(ctx, t, "deployment")).To(HaveLen(gatewayReplicas))

		By("comparing the versions of Nodes and Pods")
		each(func(g *gateway) {
			name := g.config.Status.NodeRef.Name
			var complete string // the version in which the Node was complete
			for _, version := range listVersions(ctx, history, name) {
				Expect(complete == "" || !hasUnassignedTaint(version.Node)).To(BeTrue(), "the taint does not return")
				if complete == "" && !hasUnassignedTaint(version.Node) {
					complete = version.Node.ResourceVersion
					Expect(util.IsNodeReady(version.Node)).To(BeTrue())
				}
			}
			Expect(complete).NotTo(BeEmpty())
			for _, pod := range bound.of(name) {
				// All kinds have versions of the same etcd, in one order.
				Expect(resourceversion.CompareResourceVersion(pod.ResourceVersion, complete)).To(BeNumerically(">", 0), "%s was bound after the Node was complete", pod.Name)
			}
			Expect(bound.of(name)).NotTo(BeEmpty())
		})
	}, SpecTimeout(3*time.Minute))

	It("keep their Nodes, with labels and taints, when the kubelet restarts, on a reboot and on a power loss", func(ctx SpecContext) {
		for what, restart := range map[string]func(g *gateway){
			"kubelet":    func(g *gateway) { Expect(g.Run(ctx, "systemctl", "restart", "kubelet.service")).To(BeEmpty()) },
			"reboot":     func(g *gateway) { g.reboot(ctx) },
			"power loss": func(g *gateway) { Expect(g.Reset(context.WithoutCancel(ctx))).To(Succeed()) },
		} {
			By(what)
			before, registered := map[*gateway]*corev1.Node{}, map[*gateway]int{}
			each(func(g *gateway) {
				before[g], registered[g] = t.Node(ctx, g.config), g.registrations(ctx)
				restart(g)
			})
			each(func(g *gateway) {
				// systemd waits 90 s for a container that is being created when the host reboots.
				Eventually(ctx, g.registrations).WithTimeout(4*time.Minute).Should(BeNumerically(">", registered[g]), "the kubelet has registered again")
				Eventually(ctx, func() *corev1.Node { return t.Node(ctx, g.config) }).Should(And(Satisfy(util.IsNodeReady), HaveField("Spec.Taints", BeEmpty()),
					Satisfy(func(node *corev1.Node) bool {
						return (node.Status.NodeInfo.BootID == before[g].Status.NodeInfo.BootID) == (what == "kubelet")
					})))
				Expect(t.Node(ctx, g.config)).To(And(HaveField("UID", before[g].UID), HaveField("Labels", before[g].Labels)))
				Eventually(ctx, g.Joined).Should(BeTrue(), "the sentinel file")
			})
		}
	}, SpecTimeout(8*time.Minute))

	It("are Ready although a unit that nothing requires failed, which systemctl shows", func(ctx SpecContext) {
		each(func(g *gateway) {
			Expect(g.Run(ctx, "systemctl", "list-units", "--failed", "--plain", "--no-legend")).To(MatchRegexp(`^optional.service .*\n$`))
			Expect(g.property(ctx, "gate.service", "Result")).To(Equal("success"))
		})
	})

	It("were in their pool in each version of their Nodes, and ran Ignition once", func(ctx SpecContext) {
		each(func(g *gateway) {
			verdict := site.Judge(listVersions(ctx, history, g.config.Status.NodeRef.Name), "gateway", t.Pools(ctx))
			Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
			Expect(countDeployments(g.config)).To(Equal(1))
		})
	})
})

// gatewayReplicas is the number of the Deployment's Pods.
const gatewayReplicas = 4

// createPods creates a Deployment and a DaemonSet with Pods that tolerate nothing and select the pool gateway.
func createPods(ctx context.Context, t *tenant.Tenant) {
	GinkgoHelper()
	meta := func(kind string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: t.Namespace + "-" + kind, Labels: podLabels(t, kind)}
	}
	pods := func(kind string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: podLabels(t, kind)}, Spec: corev1.PodSpec{
			NodeSelector: map[string]string{gatewayRole: ""}, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "pause", Image: "localhost/pause:1", ImagePullPolicy: corev1.PullNever}}}}
	}
	deployment := &appsv1.Deployment{ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](gatewayReplicas), Selector: &metav1.LabelSelector{MatchLabels: podLabels(t, "deployment")}, Template: pods("deployment")}}
	daemonSet := &appsv1.DaemonSet{ObjectMeta: meta("daemonset"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: podLabels(t, "daemonset")}, Template: pods("daemonset")}}
	for _, object := range []client.Object{deployment, daemonSet} {
		Expect(lab.WorkloadClient.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(lab.WorkloadClient.Delete(ctx, object)).To(Succeed()) })
	}
}

func podLabels(t *tenant.Tenant, kind string) map[string]string {
	return map[string]string{"example.com/tenant": t.Namespace, "example.com/kind": kind}
}

// listPods lists the Pods of a kind of createPods.
func listPods(ctx context.Context, t *tenant.Tenant, kind string) []corev1.Pod {
	GinkgoHelper()
	var list corev1.PodList
	Expect(lab.WorkloadClient.List(ctx, &list, client.MatchingLabels(podLabels(t, kind)))).To(Succeed())
	return list.Items
}

// bindings are the first versions of Pods that name a Node.
type bindings struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
}

func (b *bindings) seen(_ watch.EventType, pod *corev1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pod.Spec.NodeName != "" && b.pods[pod.UID] == nil {
		b.pods[pod.UID] = pod
	}
}

// of returns the Pods that were bound to a Node.
func (b *bindings) of(node string) []*corev1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Collect(maps.Values(b.pods)), func(pod *corev1.Pod) bool { return pod.Spec.NodeName != node })
}
