package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// expectNoLeaks expects no secret of this run in the logs, metrics, events and objects of the suite's programs and
// clusters.
func expectNoLeaks(ctx context.Context) {
	GinkgoHelper()
	for name, program := range map[string]*site.Program{"manager-metrics": lab.Manager, "config-server-metrics": lab.ConfigServer} {
		text, err := program.Exposition(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(ContainSubstring("poolboot_"))
		secrets.Record(name, string(text))
	}
	findings, err := secrets.Leaks()
	Expect(err).NotTo(HaveOccurred())
	Expect(findings.Leaks).To(BeEmpty())
	Expect(findings.Secrets).To(BeNumerically(">", 0))
	for _, file := range []string{"manager.log", "config-server.log", "cluster-api.log", "metal3.log", "management/audit.log", "workload/audit.log",
		"management/kube-apiserver.log", "workload/kube-apiserver.log", "output-of-management-objects.log", "output-of-edge-objects.log"} {
		Expect(findings.Files).To(HaveKeyWithValue(file, BeNumerically(">", 1000)))
	}
}

// userSecret is the content of a file that only root can read on the hosts of a pool.
const userSecret = "a-users-own-8c1f2e7d90"

// newSecretMachineConfig returns a MachineConfig with that file, and with further files.
func newSecretMachineConfig(t *tenant.Tenant, name, role string, files ...string) *poolv1.MachineConfig {
	content := fmt.Sprintf(`{"path":"/etc/password","mode":384,"contents":{"source":"data:;base64,%s"}}`, base64.StdEncoding.EncodeToString([]byte(userSecret)))
	return t.IgnitionMachineConfig(name, role, fmt.Appendf(nil, `{"ignition":{"version":"3.4.0"},"storage":{"files":[%s]}}`,
		strings.Join(append([]string{content}, files...), ",")))
}

var _ = Describe("Secrets", func() {
	BeforeEach(func() { secrets.AddUserSecret("a file of a MachineConfig", userSecret) })

	It("are not in answers to unauthorized clients, nor in the output of kubectl poolboot", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Create(ctx, newSecretMachineConfig(t, "52-password", "infra"))
		Eventually(ctx, func(ctx context.Context) ([]poolv1.MachineConfigSource, error) {
			p := t.Pool("infra")
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(p), p)
			return p.Status.Configuration.Source, err
		}).Should(ContainElement(HaveField("Name", "52-password")))
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		pointer := t.Pointer(ctx, config)
		expectJoined(ctx, t, config)
		Expect(readHostFile(config, "/etc/password")).To(Equal(userSecret))

		By("requesting with a revoked token, a wrong token, and no token")
		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(401), "the config server knows that the token is revoked")
		for _, token := range []string{pointer.Token, pointer.Token + "x", ""} {
			wrong := pointer
			wrong.Token = token
			status, body, err := fetchPointer(ctx, wrong)
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Equal(401))
			secrets.Record("the-config-server", body)
		}

		By("running kubectl poolboot")
		changed := filepath.Join(GinkgoT().TempDir(), "change.yaml")
		Expect(os.WriteFile(changed, fmt.Appendf(nil, `{"apiVersion":"poolboot.io/v1alpha1","kind":"MachineConfig","metadata":{"name":"52-password","labels":{"role":"infra"}},
			"spec":{"config":{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/password","mode":384,"contents":{"source":"data:,another"}}]}}}}`), 0o600)).To(Succeed())
		for _, command := range []string{
			"boots", "boots -o wide", "boots -o json", "diff -f " + changed,
			"explain machine " + t.Machine(ctx, config).Name, "explain node " + config.Status.NodeRef.Name, "explain host " + config.Status.HostRef.Name,
		} {
			secrets.Record("kubectl-poolboot", runPoolboot(ctx, t, command))
		}
	}, SpecTimeout(3*time.Minute))

	It("are not in error messages, conditions or logs", func(ctx SpecContext) {
		By("creating invalid MachineConfigs with secrets in them")
		t := tenant.New(ctx, lab, 1)
		escaped := t.MachineConfig("53-escape", "infra", "/etc/password", userSecret+"%zz")
		butane := &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{Butane: "variant: fcos\nversion: 1.5.0\npasswd:\n  users: " + userSecret + "\n"}}
		butane.Name = "54-butane"
		flag := newSecretMachineConfig(t, "55-flag", "infra", `{"path":"/etc/default/kubelet","contents":{"source":"data:,A=`+userSecret+`%20--node-labels=a=b"}}`)
		for _, refused := range []*poolv1.MachineConfig{escaped, butane, flag} {
			refused.Namespace = t.Namespace
			err := lab.ManagementClient.Create(ctx, refused)
			Expect(err).To(HaveOccurred(), refused.Name)
			secrets.Record("the-webhooks", err.Error())
		}

		By("rendering MachineConfigs that can't be merged")
		half := func(name, content string) *poolv1.MachineConfig {
			return newSecretMachineConfig(t, name, "infra", fmt.Sprintf(`{"path":"/etc/sysconfig/kubelet","append":[{"source":"data:,%s"}]}`, content))
		}
		t.Create(ctx, half("56-first", userSecret+"%20--node-"), half("57-second", "labels=a=b"))
		infra := t.Pool("infra")
		Eventually(ctx, func() (bool, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)
			return conditions.IsTrue(infra, poolv1.RenderDegradedCondition), err
		}).Should(BeTrue())

		By("preparing a boot for a cluster that refuses the manager's credential")
		nobody, err := lab.Workload.UserKubeconfig("nobody")
		Expect(err).NotTo(HaveOccurred())
		refusing := tenant.NewEmpty(ctx, lab)
		refusing.CreateCluster(ctx, clusterapi.ClusterOptions{Kubeconfig: nobody})
		refusing.Create(ctx, refusing.Pool("worker"), newSecretMachineConfig(refusing, "00-worker", "worker"))
		refusing.AddHosts(ctx, 1)
		refusing.Deploy(ctx, tenant.Deployment{Name: "worker", Replicas: 1})
		config := refusing.Config(ctx, "worker")
		Eventually(ctx, refusing.Condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("False WorkloadClusterUnreachable"))
		status, body, err := fetchPointer(ctx, refusing.Pointer(ctx, config))
		Expect(err).NotTo(HaveOccurred())
		Expect(status).To(Equal(503))
		secrets.Record("the-config-server", body)
		for _, command := range []string{"boots", "explain machine " + refusing.Machine(ctx, config).Name} {
			secrets.Record("kubectl-poolboot", runPoolboot(ctx, refusing, command))
		}
	}, SpecTimeout(3*time.Minute))
})

// runPoolboot returns the output of kubectl poolboot in a tenant's namespace.
func runPoolboot(ctx context.Context, t *tenant.Tenant, command string) string {
	GinkgoHelper()
	binDir, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	args := append(strings.Fields(command), "-n", t.Namespace, "--kubeconfig", lab.Management.Kubeconfig)
	output, _ := exec.CommandContext(ctx, filepath.Join(binDir, "kubectl-poolboot"), args...).CombinedOutput()
	Expect(string(output)).To(ContainSubstring(t.Namespace), command)
	return string(output)
}
