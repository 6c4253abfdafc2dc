package hosts_test

import (
	"context"
	"crypto/sha512"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/yaml"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// wrapperExample matches the objects in the documentation of spec.kubelet.wrapper: the pool and its MachineConfig.
var wrapperExample = regexp.MustCompile("(?ms)^```yaml\n([^`]*?    wrapper:\n[^`]*?)^---\n(.*?)^```")

// hangingWrapper is a program on the host that never starts the kubelet.
const hangingWrapper = "/opt/hangs"

// readWrapperExample returns the objects in the documentation of spec.kubelet.wrapper.
func readWrapperExample() (p poolv1.MachineConfigPool, config poolv1.MachineConfig) {
	GinkgoHelper()
	text, err := os.ReadFile(sourcetree.Path("docs", "pools.md"))
	Expect(err).NotTo(HaveOccurred())
	found := wrapperExample.FindAllStringSubmatch(string(text), -1)
	Expect(found).To(HaveLen(1))
	Expect(yaml.UnmarshalStrict([]byte(found[0][1]), &p)).To(Succeed())
	// The containerd of these hosts is not in /usr/bin.
	Expect(yaml.UnmarshalStrict([]byte(strings.ReplaceAll(found[0][2], "/usr/bin/containerd", "/opt/containerd/bin/containerd")), &config)).To(Succeed())
	return p, config
}

// wrappedHost is a running host in the pool of the documentation. It joins as all hosts do: its kubelet obtains a
// certificate with a token, after Poolboot's check of the effective unit.
type wrappedHost struct {
	*runningHost
	ran    poolv1.MachineConfigPool
	config poolv1.MachineConfig
	// others are more MachineConfigs of the pool.
	others []poolv1.MachineConfig
}

// ofPool returns another MachineConfig of the pool.
func (h *wrappedHost) ofPool(name string, config map[string]any) poolv1.MachineConfig {
	GinkgoHelper()
	of := machineConfig(name, h.ran.Spec.PoolRole, config)
	of.Labels = h.config.Labels
	return of
}

// render renders the pool with a wrapper, and returns the name of the rendered config.
func (h *wrappedHost) render(wrapper ...string) string {
	GinkgoHelper()
	h.ran.Spec.Kubelet.Wrapper = wrapper
	rendered, err := pool.Render(h.ran.Spec.PoolRole, []poolv1.MachineConfigPool{poolOf(poolv1.RoleWorker), h.ran}, append([]poolv1.MachineConfig{h.config,
		h.ofPool("51-ran-host", map[string]any{
			"storage": files(file(hangingWrapper, 0o755, "#!/bin/sh\nexec sleep infinity\n")),
			// On a machine, systemd does this. In namespaces, it leaves it to what created them.
			"systemd": units(unit("shared.service", "[Unit]", "Before=kubens.service", "[Service]", "Type=oneshot", "RemainAfterExit=yes",
				"ExecStart=mount --make-rshared /", "[Install]", "RequiredBy=kubens.service"))})}, h.others...))
	Expect(err).NotTo(HaveOccurred())
	h.configs++
	name := fmt.Sprint("rendered-", h.configs)
	served, err := pool.Served(name, rendered.Spec)
	Expect(err).NotTo(HaveOccurred())
	h.pool.mu.Lock()
	defer h.pool.mu.Unlock()
	h.pool.rendered[name] = served
	return name
}

// newWrappedHost boots a host into the pool of the documentation, whose Node was pre-registered.
func newWrappedHost(ctx context.Context) (h *wrappedHost, name string) {
	GinkgoHelper()
	rack := newRack(ctx)
	p := newHostPool(ctx, rack)
	h = &wrappedHost{runningHost: &runningHost{pool: p}}
	h.ran, h.config = readWrapperExample()
	h.ran.Spec.Kubelet.AutoSizingReserved = ptr.To(true)
	name = h.render(h.ran.Spec.Kubelet.Wrapper...)

	Expect(kubeadm.Init(ctx, p.cluster, joinToken)).To(Succeed(), "a token whose requests for certificates are approved")
	config := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.settings.Namespace, Name: p.settings.Name, Annotations: map[string]string{bootstrapv1.PointerIDAnnotation: p.settings.PointerID}},
		Spec:       bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}},
	}
	pools := []poolv1.MachineConfigPool{poolOf(poolv1.RoleWorker), h.ran}
	reg, err := registration.Register(registration.Sources{NodeName: p.node, Pool: h.ran, Pools: pools, Config: config, RenderedConfig: name})
	Expect(err).NotTo(HaveOccurred())
	machine, err := join.MachineOf(join.Input{Config: config, Pool: &h.ran, Pools: pools, Registration: reg,
		Cluster: join.Cluster{Name: "edge", Server: "https://" + p.cluster.Endpoint, CA: p.cluster.CA},
		Offer: join.Offer{ServerURL: p.settings.Server, ServerCA: []byte(p.settings.CA),
			Agent: assignment.Agent{SHA512: map[string]string{runtime.GOARCH: fmt.Sprintf("%x", sha512.Sum512(p.program))}}},
	}, runtime.GOARCH)
	Expect(err).NotTo(HaveOccurred())
	lasting, err := machine.Lasting()
	Expect(err).NotTo(HaveOccurred())
	id, secret, _ := strings.Cut(joinToken, ".")
	overlay, err := machine.Overlay(join.Credential{ID: id, Secret: secret})
	Expect(err).NotTo(HaveOccurred())
	p.machine, err = ignition.Marshal(overlay)
	Expect(err).NotTo(HaveOccurred())
	userData := p.userData(name)
	p.machine, err = ignition.Marshal(lasting)
	Expect(err).NotTo(HaveOccurred())

	_, err = p.client.CoreV1().Nodes().Create(ctx, reg.Node(), metav1.CreateOptions{})
	Expect(err).NotTo(HaveOccurred())
	h.Host = newHostWithUserData(rack, p.node, baremetal.KubeletImage, userData)
	h.powerOn()
	return h, name
}

// mountNamespace returns the mount namespace of a process.
func (h *wrappedHost) mountNamespace(ctx context.Context, pid string) string {
	GinkgoHelper()
	namespace, err := h.Run(ctx, "readlink", "/proc/"+pid+"/ns/mnt")
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(namespace)
}

// mainPID returns the process of a unit.
func (h *wrappedHost) mainPID(ctx context.Context, unit string) string {
	GinkgoHelper()
	pid, err := h.Run(ctx, "systemctl", "show", "--property=MainPID", "--value", unit)
	Expect(err).NotTo(HaveOccurred())
	Expect(pid).NotTo(Equal("0\n"), unit)
	return strings.TrimSpace(pid)
}

// expectHidden expects that the kubelet and the container runtime are in the namespace of kubens.service, and that
// systemd is not.
func (h *wrappedHost) expectHidden(ctx context.Context) {
	GinkgoHelper()
	kept, err := h.Run(ctx, "nsenter", "--mount=/run/kubens/mnt", "readlink", "/proc/self/ns/mnt")
	Expect(err).NotTo(HaveOccurred())
	for _, unit := range []string{ignition.KubeletUnit, "containerd.service"} {
		Expect(h.mountNamespace(ctx, h.mainPID(ctx, unit))).To(Equal(strings.TrimSpace(kept)), unit)
	}
	Expect(h.mountNamespace(ctx, "1")).NotTo(Equal(strings.TrimSpace(kept)))
}

// ready returns the Node if it is Ready.
func (h *wrappedHost) ready(ctx context.Context) func(Gomega) *corev1.Node {
	return func(g Gomega) *corev1.Node {
		node, err := h.pool.client.CoreV1().Nodes().Get(ctx, h.pool.node, metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(node).To(Satisfy(util.IsNodeReady))
		return node
	}
}

var _ = Describe("The wrapper of a pool", Ordered, func() {
	const nsenter, kubens = "/usr/bin/nsenter", "--mount=/run/kubens/mnt"
	var (
		h *wrappedHost
		// current is the name of the rendered config that the host runs.
		current string
		pod     *corev1.Pod
	)

	BeforeAll(func(ctx SpecContext) { h, current = newWrappedHost(ctx) }, NodeTimeout(3*time.Minute))

	// pauses returns the processes of Pods.
	pauses := func(ctx context.Context) []string {
		output, _ := h.Run(ctx, "ps", "-C", "pause", "-o", "pid=") // it fails if there are none
		return strings.Fields(output)
	}

	It("starts the kubelet of a host that boots, which registers its Node as always", func(ctx SpecContext) {
		Eventually(ctx, func(g Gomega) { h.ready(ctx)(g) }).Should(Succeed())
		waitForBoot(ctx, h.Host)
		h.expectHidden(ctx)
		Expect(h.Run(ctx, "systemctl", "show", "--property=Result,ActiveState", "poolboot-check.service")).
			To(And(ContainSubstring("Result=success"), ContainSubstring("ActiveState=active")))
		Expect(h.Run(ctx, "sh", "-c", "tr '\\0' ' ' </proc/"+h.mainPID(ctx, ignition.KubeletUnit)+"/cmdline")).
			To(And(HavePrefix("/usr/bin/kubelet --config="), ContainSubstring(" --node-labels="), ContainSubstring("poolboot.io/pool=ran")))
		node := h.ready(ctx)(Default)
		Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/ran", ""), HaveKeyWithValue("poolboot.io/pool", "ran")))

		By("reserving resources by the size of the host")
		cpus := node.Status.Capacity.Cpu().Value()
		Expect(node.Status.Capacity.Cpu().MilliValue() - node.Status.Allocatable.Cpu().MilliValue()).To(Equal(max(500, 60+12*(cpus-1))))
		const gib = float64(1 << 30)
		memory := node.Status.Capacity.Memory().AsApproximateFloat64() / gib
		reserved := 0.25*min(memory, 4) + 0.06*(min(max(memory, 8), 128)-8) + 0.02*max(memory-128, 0) + 0.1 // the eviction threshold of the kubelet
		Expect(memory - node.Status.Allocatable.Memory().AsApproximateFloat64()/gib).To(BeNumerically("~", reserved, 0.01))
		Expect(h.Run(ctx, "journalctl", "--unit=kubelet.service", "--grep=the kubelet reserves cpu=")).To(ContainSubstring("for the system"))

		revision := h.pool.assign(ctx, current)
		Eventually(ctx, h.pool.state(ctx)).Should(Equal("Done " + revision))
		Expect(h.annotation(ctx, agentv1.DriftAnnotation)).To(BeEmpty())
	}, SpecTimeout(3*time.Minute))

	It("hides the mounts of Pods from systemd, and shows those of the host to Pods", func(ctx SpecContext) {
		var err error
		pod, err = h.pool.client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"},
			Spec: corev1.PodSpec{NodeName: h.pool.node,
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Volumes:     []corev1.Volume{{Name: "memory", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}},
				Containers: []corev1.Container{{Name: "pause", Image: "localhost/pause:1", ImagePullPolicy: corev1.PullNever,
					VolumeMounts: []corev1.VolumeMount{{Name: "memory", MountPath: "/memory"}}}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, func(g Gomega) {
			pod, err = h.pool.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
		}).Should(Succeed())

		mounts := func(pid string) string {
			table, err := h.Run(ctx, "cat", "/proc/"+pid+"/mountinfo")
			Expect(err).NotTo(HaveOccurred())
			return table
		}
		const volume = "/kubernetes.io~empty-dir/memory"
		Expect(mounts(h.mainPID(ctx, ignition.KubeletUnit))).To(ContainSubstring(volume))
		Expect(mounts("1")).NotTo(Or(ContainSubstring(volume), ContainSubstring("/run/containerd/")))
		Expect(pauses(ctx)).To(HaveLen(2), "that of the Pod and that of the container")
		var ofPods strings.Builder
		for _, pid := range pauses(ctx) {
			ofPods.WriteString(mounts(pid))
		}
		Expect(ofPods.String()).To(ContainSubstring(" /memory rw"), "the container has its volume")

		By("mounting something on the host")
		Expect(h.Run(ctx, "mount", "-t", "tmpfs", "of-the-host", "/mnt")).To(BeEmpty())
		Expect(mounts(h.mainPID(ctx, ignition.KubeletUnit))).To(ContainSubstring("of-the-host"))
		Expect(h.Run(ctx, "umount", "/mnt")).To(BeEmpty())

		By("creating the first network namespace on the host")
		const enterAll = "for n in $(ls /run/netns); do nsenter --net=/run/netns/$n true || exit; echo ${n%%-*}; done"
		Expect(h.Run(ctx, nsenter, kubens, "sh", "-c", enterAll)).To(Equal("cni\n"), "that of the Pod")
		Expect(h.Run(ctx, "ip", "netns", "add", "host")).To(BeEmpty())
		Expect(h.Run(ctx, nsenter, kubens, "sh", "-c", enterAll)).To(Equal("cni\nhost\n"))
		Expect(h.Run(ctx, "ip", "netns", "delete", "host")).To(BeEmpty())
		Expect(h.Run(ctx, nsenter, kubens, "sh", "-c", enterAll)).To(Equal("cni\n"))
	}, SpecTimeout(2*time.Minute))

	It("changes on a running host with the predicted restart of the kubelet, and nothing else", func(ctx SpecContext) {
		boot, containers, runtime := waitForBoot(ctx, h.Host), pauses(ctx), h.mainPID(ctx, "containerd.service")
		h.ran.Spec.Kubelet.AutoSizingReserved = nil
		next := h.render("/usr/bin/nice", "--adjustment=5", nsenter, kubens)
		predicted, reboots := h.pool.predicted(current, next, activeUnits(ctx, h.Host))
		Expect(predicted).To(Equal([]string{
			update.Action{Type: update.DaemonReload}.String(), update.Action{Type: update.Restart, Unit: ignition.KubeletUnit}.String()}))
		Expect(reboots).To(BeFalse())
		cursor := journalCursor(ctx, h.Host)
		revision := h.pool.assign(ctx, next)
		Eventually(ctx, h.pool.state(ctx)).Should(Equal("Done " + revision))
		current = next

		Expect(happenings(ctx, h.Host, cursor)).To(Equal(predicted))
		Eventually(ctx, func(g Gomega) { // without autoSizingReserved, which the pool had before
			node := h.ready(ctx)(g)
			g.Expect(node.Status.Allocatable.Cpu().Cmp(*node.Status.Capacity.Cpu())).To(BeZero())
		}).Should(Succeed())
		Expect(h.Run(ctx, "ls", ignition.KubeletConfigDirectory)).NotTo(ContainSubstring("reserved"))
		Expect(h.Run(ctx, "ps", "-o", "nice=,comm=", "-p", h.mainPID(ctx, ignition.KubeletUnit))).To(MatchRegexp(`^\s*5 kubelet\n$`))
		h.expectHidden(ctx)
		Expect(waitForBoot(ctx, h.Host)).To(Equal(boot))
		Expect(pauses(ctx)).To(Equal(containers), "the Pods run on")
		Expect(h.mainPID(ctx, "containerd.service")).To(Equal(runtime))
	}, SpecTimeout(2*time.Minute))

	const ends = ignition.KubeletUnit + ": it ended, and systemd starts it again"
	DescribeTable("that does not start the kubelet is undone, and reported", func(ctx SpecContext, reason string, wrapper ...string) {
		revision := h.pool.assign(ctx, h.render(wrapper...))
		Eventually(ctx, h.pool.state(ctx)).Should(Equal("Degraded " + revision))
		Expect(h.reason(ctx)()).To(ContainSubstring(reason))
		if reason == ends { // the command in the reason shows how
			Expect(h.Run(ctx, "sh", "-c", regexp.MustCompile(`journalctl [^)]*`).FindString(h.reason(ctx)()))).To(ContainSubstring("kubelet.service: Scheduled restart job"))
		}
		Expect(readFile(ctx, h.Host, "/etc/systemd/system/kubelet.service.d/"+ignition.WrapperDropin)).To(ContainSubstring("ExecStart=/usr/bin/nice --adjustment=5 " + nsenter))
		Eventually(ctx, func(g Gomega) { h.ready(ctx)(g) }).Should(Succeed())
		h.expectHidden(ctx)
	},
		Entry("because its program does not exist", ends, "/usr/bin/no-such-program", SpecTimeout(3*time.Minute)),
		Entry("because it fails", ends, nsenter, "--mount=/run/no-such-namespace", SpecTimeout(3*time.Minute)),
		Entry("because it ends without it", ends, "/usr/bin/true", SpecTimeout(3*time.Minute)),
		Entry("because it hangs", "the kubelet has not reported", hangingWrapper, SpecTimeout(3*time.Minute)),
	)

	describePinning(func() *wrappedHost { return h }, "/usr/bin/nice", "--adjustment=5", nsenter, kubens)
	describeCheck(func() *wrappedHost { return h }, "/usr/bin/nice", "--adjustment=5", nsenter, kubens)
})
