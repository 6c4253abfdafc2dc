package integration

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// command is a command in the documentation, with the output that the documentation shows.
type command struct{ line, output string }

// parseCommands returns the commands of the block of a page under docs that begins with ```console <name>.
func parseCommands(page, name string) (commands []command) {
	GinkgoHelper()
	document, err := os.ReadFile(sourcetree.Path("docs", page))
	Expect(err).NotTo(HaveOccurred())
	block := regexp.MustCompile("(?ms)^```console " + name + "\n(.*?)^```").FindSubmatch(document)
	Expect(block).NotTo(BeNil(), "docs/%s has no block of commands %q", page, name)
	for _, shown := range strings.Split(strings.TrimPrefix(string(block[1]), "$ "), "\n$ ") {
		line, output, _ := strings.Cut(shown, "\n")
		for strings.HasSuffix(line, "\\") {
			var more string
			more, output, _ = strings.Cut(output, "\n")
			line += "\n" + more
		}
		commands = append(commands, command{line, output})
	}
	return commands
}

var _ = Describe("The commands in the documentation", func() {
	It("install the alerts, the dashboards and the metrics of objects", func(ctx SpecContext) {
		const operator = "github.com/prometheus-operator/prometheus-operator"
		output, err := exec.CommandContext(ctx, "go", "-C", sourcetree.Path("hack", "tools", "prometheus-operator"), "mod", "download", "-json", operator).Output()
		Expect(err).NotTo(HaveOccurred(), "%s", output)
		var module struct{ Dir string }
		Expect(json.Unmarshal(output, &module)).To(Succeed())
		_, err = envtest.InstallCRDs(lab.Management.Config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(module.Dir, "example", "prometheus-operator-crd")}, ErrorIfPathMissing: true, MaxTime: time.Minute})
		Expect(err).NotTo(HaveOccurred())

		shell := &terminal{dir: sourcetree.Path()}
		for _, namespace := range []string{"monitoring", "observability"} {
			Expect(lab.ManagementClient.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
		}
		for _, shown := range slices.Concat(parseCommands("metrics.md", "alerts"), parseCommands("tasks.md", "dashboards")) {
			Expect(shell.run(ctx, shown.line)).To(ContainSubstring(shown.output), shown.line)
			Expect(shell.code).To(BeZero(), shown.line)
		}
		rule := &unstructured.Unstructured{}
		rule.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"})
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: "poolboot-system", Name: "poolboot-alerts"}, rule)).To(Succeed())
		Expect(rule.Object["spec"]).To(HaveKeyWithValue("groups", Not(BeEmpty())))
		Expect(rule.GetLabels()).To(HaveKeyWithValue(clusterv1.ProviderNameLabel, "bootstrap-poolboot"))
	})
	It("renew the Machines of a pool on a site without an available host", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		old := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, old)
		makeNodeReady(ctx, t, old)
		pool := func() (*poolv1.MachineConfigPool, error) {
			infra := t.Pool("infra")
			return infra, lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: infra.Name}, infra)
		}
		updated := func() (*metav1.Condition, error) {
			infra, err := pool()
			return meta.FindStatusCondition(infra.Status.Conditions, poolv1.UpdatedCondition), err
		}
		Eventually(ctx, updated).Should(HaveField("Status", metav1.ConditionTrue))
		shell := &terminal{dir: GinkgoT().TempDir()}
		shell.write("change.yaml", `apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata: {name: 51-infra, labels: {role: infra}}
spec:
  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/infratest, mode: 0644, contents: {source: "data:,renewed"}}]}}
`)
		Expect(shell.run(ctx, "kubectl apply -f change.yaml -n "+t.Namespace)).To(ContainSubstring("51-infra"))
		Eventually(ctx, updated).Should(HaveField("Message", And(ContainSubstring(old.Name), ContainSubstring("docs/pools.md#renewing-machines"))))
		document, err := os.ReadFile(sourcetree.Path("docs", "pools.md"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(document)).To(ContainSubstring("\n## Renewing Machines\n"), "the condition's message links to this section")

		commands := parseCommands("pools.md", "rollout")
		here := strings.NewReplacer("-n edge", "-n "+t.Namespace)
		run := func(shown command) string {
			output := shell.run(ctx, here.Replace(shown.line))
			Expect(output).To(ContainSubstring(shown.output), shown.line)
			Expect(shell.code).To(BeZero(), shown.line)
			return output
		}
		Expect(run(commands[0])).To(MatchRegexp(old.Name + ` .* infra\n`))
		last := len(commands) - 1
		for _, shown := range commands[1:last] {
			run(shown)
		}
		var renewed *bootstrapv1.PoolbootConfig
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig {
			configs := t.Configs(ctx, "infra")
			for i := range configs {
				if configs[i].UID != old.UID {
					renewed = &configs[i]
				}
			}
			return configs
		}).Should(And(HaveLen(1), Not(ContainElement(HaveField("UID", old.UID)))))
		waitForConfiguration(ctx, t, renewed)
		Expect(renewed.Status.HostRef.Name).To(Equal(old.Status.HostRef.Name))
		makeNodeReady(ctx, t, renewed)
		run(commands[last])
	})

	It("upgrade the hosts of a pool", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		old := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, old)
		makeNodeReady(ctx, t, old)
		shell := &terminal{dir: GinkgoT().TempDir()}
		page, err := os.ReadFile(sourcetree.Path("docs", "tasks.md"))
		Expect(err).NotTo(HaveOccurred())
		for _, file := range namedFile.FindAllStringSubmatch(string(page), -1) {
			shell.write(file[1], file[2])
		}
		withoutFreeHost := parseCommands("pools.md", "rollout")[1]
		for _, shown := range append([]command{withoutFreeHost}, parseCommands("tasks.md", "upgrade")...) {
			output := shell.run(ctx, strings.ReplaceAll(shown.line, "-n edge", "-n "+t.Namespace))
			Expect(output).To(ContainSubstring(shown.output), shown.line)
			Expect(shell.code).To(BeZero(), shown.line)
		}
		upgraded := old
		Eventually(ctx, func() bool {
			for _, config := range t.Configs(ctx, "infra") {
				upgraded = &config
			}
			return upgraded.UID != old.UID && upgraded.Status.HostRef.Name == old.Status.HostRef.Name
		}).Should(BeTrue())
		waitForConfiguration(ctx, t, upgraded)
		Expect(t.Machine(ctx, upgraded).Spec.Version).To(Equal("v1.36.4"))
		host := &bmov1alpha1.BareMetalHost{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: upgraded.Status.HostRef.Name}, host)).To(Succeed())
		Expect(host.Spec.Image.URL).To(HaveSuffix("worker-v1.36.4.qcow2"))
		makeNodeReady(ctx, t, upgraded)
	})

	It("show the configuration that a host gets", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		shell := &terminal{dir: GinkgoT().TempDir()}
		here := strings.NewReplacer("-n edge", "-n "+t.Namespace, "infra-x7k2p", config.Name)
		printed := map[string]string{}
		for _, shown := range parseCommands("dev/config-server.md", "curl") {
			program, _, _ := strings.Cut(shown.line, " ")
			printed[program] = shell.run(ctx, here.Replace(shown.line))
			Expect(shell.code).To(BeZero(), "%s: %s", shown.line, printed[program])
		}
		content := func(name string) string {
			content, err := os.ReadFile(filepath.Join(shell.dir, name))
			Expect(err).NotTo(HaveOccurred())
			return string(content)
		}
		Expect(content("answer.ign")).To(ContainSubstring("sha512-" + strings.Fields(printed["sha512sum"])[0]))
		for _, file := range []string{"/etc/workertest", "/etc/infratest"} {
			Expect(content("pool.ign")).To(ContainSubstring(file))
		}
		parsed, err := ignition.Parse([]byte(content("machine.ign")))
		Expect(err).NotTo(HaveOccurred(), "the file must be one complete document")
		var paths []string
		for _, file := range parsed.Storage.Files {
			paths = append(paths, file.Path)
		}
		Expect(paths).To(And(ContainElements("/etc/poolboot/kubelet.env", "/etc/kubernetes/bootstrap-kubelet.conf"), Not(ContainElement("/etc/infratest"))))

		By("reporting that Ignition failed")
		reason := func(ctx context.Context) (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return conditions.GetReason(config, bootstrapv1.IgnitionSucceededCondition), err
		}
		for _, shown := range parseCommands("dev/config-server.md", "report") {
			printed := shell.run(ctx, shown.line)
			Expect(shell.code).To(BeZero(), "%s: %s", shown.line, printed)
		}
		Eventually(ctx, reason).Should(Equal(bootstrapv1.IgnitionFailedReason))
		Expect(config.Status.Requests.IgnitionFailure).To(And(HaveField("Stage", "files"), HaveField("Log", "failed to write /etc/infratest: no space left on device")))
		Expect(conditions.GetReason(config, clusterv1.ReadyCondition)).To(Equal(bootstrapv1.IgnitionFailedReason))
		Eventually(ctx, func() string {
			return shell.run(ctx, "kubectl events --for poolbootconfig/"+config.Name+" -n "+t.Namespace)
		}).Should(MatchRegexp(`Warning +IgnitionFailed .*stage files \(failed to write /etc/infratest: no space left on device\)`))
		Expect(unwrap(shell.run(ctx, "kubectl poolboot boots -n "+t.Namespace))).To(ContainSubstring("no space left on device"))
		Expect(shell.code).To(BeZero())

		By("booting the host again")
		for _, shown := range parseCommands("dev/config-server.md", "curl") {
			if strings.Contains(shown.line, "answer.ign") {
				shell.run(ctx, here.Replace(shown.line))
			}
		}
		Eventually(ctx, reason).Should(Equal(bootstrapv1.IgnitionRetriedReason))
		makeNodeReady(ctx, t, config)
		Eventually(ctx, reason).Should(Equal(bootstrapv1.IgnitionSucceededReason))
	})
})
