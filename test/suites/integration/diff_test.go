package integration

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var (
	liveBlock = regexp.MustCompile("(?ms)^```console live\n(.*?)^```")
	namedFile = regexp.MustCompile("(?ms)^```\\w+\n# ([\\w./-]+)\n(.*?)^```")
)

// terminal runs commands in a directory, with the real kubectl, its plugin, and the management cluster.
type terminal struct {
	dir  string
	code int
}

func (t *terminal) run(ctx context.Context, line string) string {
	if line == "echo $?" {
		return strconv.Itoa(t.code) + "\n"
	}
	binDir, err := process.BinDir()
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	shell := exec.CommandContext(ctx, "sh", "-c", line)
	shell.Dir = t.dir
	shell.Env = append(os.Environ(), "PATH="+binDir+":"+os.Getenv("PATH"), "KUBECONFIG="+lab.Management.Kubeconfig)
	output, err := shell.CombinedOutput()
	if exitErr := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exitErr) {
		ExpectWithOffset(1, err).NotTo(HaveOccurred())
	}
	t.code = shell.ProcessState.ExitCode()
	return string(output)
}

// write writes a file to the terminal's directory.
func (t *terminal) write(name, content string) {
	path := filepath.Join(t.dir, name)
	ExpectWithOffset(1, os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	ExpectWithOffset(1, os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

var _ = Describe("kubectl poolboot", func() {
	It("shows before kubectl apply the new rendered config of a pool, and the affected Machines", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		shell := &terminal{dir: GinkgoT().TempDir()}
		shell.write("change.yaml", `apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata: {name: 51-infra, labels: {role: infra}}
spec:
  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/infratest, mode: 0644, contents: {source: "data:,changed"}}]}}
`)
		diff := "kubectl poolboot diff -f change.yaml -n " + t.Namespace
		shown := shell.run(ctx, diff)
		Expect(shell.code).To(Equal(1), shown)
		Expect(shown).To(And(
			HavePrefix("MachineConfigPool "+t.Namespace+"/infra (Cluster "+t.Namespace+")\n"),
			ContainSubstring("config:   "+config.Status.Boot.ServedConfiguration.Name+" -> rendered-infra-"),
			ContainSubstring("machines: 1\n    Machine "+t.Machine(ctx, config).Name+", Node "+config.Status.NodeRef.Name+"\n"),
			ContainSubstring("~ file /etc/infratest\n"), ContainSubstring("+  changed\n"), Not(ContainSubstring("/worker (Cluster"))))

		rendered := shell.run(ctx, "kubectl poolboot render --live --pool infra -n "+t.Namespace)
		Expect(shell.code).To(BeZero(), rendered)
		Expect(rendered).To(ContainSubstring(config.Status.Boot.ServedConfiguration.Name))
		Expect(shell.run(ctx, "kubectl get pbpool,pbmconf -o yaml -n "+t.Namespace+" > all.yaml && kubectl poolboot render -f all.yaml --pool infra")).To(Equal(rendered))
		Expect(shell.run(ctx, "kubectl poolboot __completeNoDesc boots -n "+t.Namespace+" ''")).To(HavePrefix(t.Machine(ctx, config).Name + "\n:4\n"))
		page, err := os.ReadFile(sourcetree.Path("docs", "kubectl-poolboot.md"))
		Expect(err).NotTo(HaveOccurred())
		script := regexp.MustCompile("(?s)```sh\n(cat > ~/.local/bin/kubectl_complete-poolboot.*?)```").FindStringSubmatch(string(page))
		Expect(shell.run(ctx, "export HOME=$PWD PATH=$PWD/.local/bin:$PATH; mkdir -p .local/bin\n"+script[1]+
			"kubectl __completeNoDesc poolboot boots -n "+t.Namespace+" '' 2> /dev/null")).To(HavePrefix(t.Machine(ctx, config).Name + "\n:4\n"))

		promised := regexp.MustCompile(`-> (rendered-infra-\w+)`).FindStringSubmatch(shown)[1]
		Expect(shell.run(ctx, "kubectl apply -f change.yaml -n "+t.Namespace)).To(ContainSubstring("51-infra"))
		Expect(shell.run(ctx, diff)).To(BeEmpty())
		Expect(shell.code).To(BeZero())
		Eventually(ctx, func(ctx context.Context) (string, error) {
			infra := t.Pool("infra")
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)
			if err != nil || !infra.Status.Configuration.IsDefined() {
				return "", err
			}
			return infra.Status.Configuration.Name, nil
		}).Should(Equal(promised))
	})

	It("shows before kubectl apply the labels and taints that existing Nodes get and keep, and the Pods that are evicted", func(ctx SpecContext) {
		gpu := nodev1.Taint{Key: "example.com/gpu", Effect: corev1.TaintEffectNoExecute}
		t := tenant.New(ctx, lab, 1, func(pool *poolv1.MachineConfigPool) {
			pool.Spec.Node.Labels = map[string]string{"example.com/tier": "silver"}
		})
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		node := t.Node(ctx, config)
		Expect(node.Labels).To(HaveKeyWithValue("example.com/tier", "silver"))
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: t.Namespace}}
		Expect(lab.WorkloadClient.Create(ctx, namespace)).To(Succeed())
		stays, leaves := newPod(node, t.Namespace, "stays"), newPod(node, t.Namespace, "leaves")
		stays.Spec.Tolerations = []corev1.Toleration{{Key: gpu.Key, Operator: corev1.TolerationOpExists}}
		for _, pod := range []*corev1.Pod{stays, leaves} {
			// The service account is created shortly after the namespace.
			Eventually(ctx, func(ctx context.Context) error { return lab.WorkloadClient.Create(ctx, pod) }).Should(Succeed())
		}

		shell := &terminal{dir: GinkgoT().TempDir()}
		Expect(shell.run(ctx, "kubectl get pbconf -o name -n "+t.Namespace)).To(HaveSuffix("/" + config.Name + "\n"))
		pool := t.Pool("infra")
		pool.TypeMeta = metav1.TypeMeta{APIVersion: poolv1.GroupVersion.String(), Kind: "MachineConfigPool"}
		pool.Spec.Node.Labels = map[string]string{"example.com/tier": "gold", "example.com/new": "yes"}
		pool.Spec.Node.Taints = []nodev1.Taint{gpu}
		content, err := json.Marshal(pool)
		Expect(err).NotTo(HaveOccurred())
		shell.write("pool.json", string(content))
		diff := "kubectl poolboot diff -f pool.json"
		shown := shell.run(ctx, diff)
		Expect(shell.code).To(Equal(1), shown)
		Expect(shown).To(HaveSuffix("  Node " + node.Name + `
      + label example.com/new: yes
      + taint example.com/gpu:NoExecute
      = label example.com/tier: silver stays
      evicts Pod ` + t.Namespace + "/leaves\n"))

		By("comparing with the result of kubectl apply")
		Expect(shell.run(ctx, "kubectl apply -f pool.json")).To(ContainSubstring("infra configured"))
		Expect(shell.run(ctx, diff)).To(BeEmpty())
		Expect(shell.code).To(BeZero())
		Eventually(ctx, func(ctx context.Context) []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).Should(ContainElement(
			And(HaveField("Key", gpu.Key), HaveField("Effect", gpu.Effect))))
		Expect(t.Node(ctx, config).Labels).To(And(HaveKeyWithValue("example.com/tier", "silver"), HaveKeyWithValue("example.com/new", "yes")))
		isLeaving := func(pod *corev1.Pod) func(context.Context) (bool, error) {
			return func(ctx context.Context) (bool, error) {
				err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(pod), pod)
				return apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil, client.IgnoreNotFound(err)
			}
		}
		Eventually(ctx, isLeaving(leaves)).Should(BeTrue())
		Expect(isLeaving(stays)(ctx)).To(BeFalse())
	})

	It("converts the documentation's OpenShift objects to valid objects, and prints the documented output for them", func(ctx SpecContext) {
		document, err := os.ReadFile(sourcetree.Path("docs", "kubectl-poolboot.md"))
		Expect(err).NotTo(HaveOccurred())
		shell := &terminal{dir: GinkgoT().TempDir()}
		for _, file := range namedFile.FindAllSubmatch(document, -1) {
			shell.write(string(file[1]), string(file[2]))
		}
		DeferCleanup(func(ctx SpecContext) {
			for _, kind := range []client.Object{&bootstrapv1.PoolbootConfig{}, &poolv1.MachineConfigPool{}, &poolv1.MachineConfig{}} {
				// A pool can only be deleted after its Machines.
				Eventually(ctx, func(ctx context.Context) error {
					return lab.ManagementClient.DeleteAllOf(ctx, kind, client.InNamespace(site.Namespace))
				}).Should(Succeed())
			}
		})
		applied := shell.run(ctx, "kubectl apply -f machineconfigs/99-worker.yaml && "+
			"kubectl poolboot convert -f pools.yaml -f machineconfigs/51-infra.yaml --cluster edge -n default | kubectl apply -f -")
		Expect(shell.code).To(BeZero(), applied)
		Expect(applied).To(And(ContainSubstring("/51-infra created"), ContainSubstring("/worker created"), ContainSubstring("/infra created")))
		createMachineRecord(ctx)

		commands := 0
		for _, block := range liveBlock.FindAllSubmatch(document, -1) {
			for _, shown := range strings.Split(strings.TrimPrefix(string(block[1]), "$ "), "\n$ ") {
				line, output, _ := strings.Cut(shown, "\n")
				Expect(strings.TrimSuffix(shell.run(ctx, line), "\n")).To(Equal(strings.TrimSuffix(output, "\n")), line)
				commands++
			}
		}
		Expect(commands).To(BeNumerically(">=", 4))
	})
})

// newPod returns a Pod on a Node. No kubelet starts it.
func newPod(node *corev1.Node, namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{
		NodeName: node.Name, Containers: []corev1.Container{{Name: "it", Image: "registry.example.com/it"}},
	}}
}

// createMachineRecord creates the documentation's Machine in the pool infra, and its PoolbootConfig.
func createMachineRecord(ctx context.Context) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{
		Name: "infra-x7k2m", Namespace: site.Namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: site.ClusterName},
		Annotations: map[string]string{clusterv1.PausedAnnotation: ""}, // Poolboot does not boot it
	}
	// The garbage collector deletes objects whose owner does not exist.
	machine := &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: site.ClusterName,
		Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PoolbootConfig", Name: meta.Name}},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: meta.Name},
	}}
	Expect(lab.ManagementClient.Create(ctx, machine)).To(Succeed())
	DeferCleanup(lab.ManagementClient.Delete, machine)
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: meta}
	config.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID}}
	config.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	Expect(lab.ManagementClient.Create(ctx, config)).To(Succeed())
	before := config.DeepCopy()
	config.Status.PoolRole, config.Status.NodeRef = "infra", bootstrapv1.NodeReference{Name: "host-7", UID: "1"}
	Expect(lab.ManagementClient.Status().Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
}
