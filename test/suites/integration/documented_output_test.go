package integration

import (
	"context"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var (
	outputBlock = regexp.MustCompile("(?ms)^```console (boots|explain|failed|rollout)\n(.*?)^```")
	// These differ between runs.
	outputTime     = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	outputDuration = regexp.MustCompile(`(\s)-?(?:\d+(?:\.\d+)?(?:ns|µs|ms|s|m|h|d))+(:|\s|$)`)
	outputUUID     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// unwrap returns the words of an output in one line: where a table is wrapped depends on the lengths of names.
func unwrap(output string) string { return strings.Join(strings.Fields(output), " ") }

// documentedOutput returns the blocks of commands and their output in a document, by name.
func documentedOutput(document string) map[string]string {
	GinkgoHelper()
	text, err := os.ReadFile(sourcetree.Path("docs", document))
	Expect(err).NotTo(HaveOccurred())
	blocks := map[string]string{}
	for _, block := range outputBlock.FindAllStringSubmatch(string(text), -1) {
		blocks[block[1]] = block[2]
	}
	return blocks
}

// documentedSite is the state that the documentation of boots and explain shows: a Machine whose host boots, and a
// Machine with the labels of two pools.
type documentedSite struct {
	*tenant.Tenant
	// names replaces the names of this run with the documentation's.
	names *strings.Replacer
	infra *bootstrapv1.PoolbootConfig
}

func newDocumentedSite(ctx context.Context) *documentedSite {
	GinkgoHelper()
	s := &documentedSite{Tenant: tenant.New(ctx, lab, 0, func(p *poolv1.MachineConfigPool) {
		if p.Spec.PoolRole == "infra" {
			p.Spec.Node.Labels = map[string]string{"example.com/tier": "infra"}
		}
	})}
	s.Create(ctx, s.Pool("storage"))
	s.AddHost(ctx, "rack1-u12")
	s.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
	s.infra = s.Config(ctx, "infra")
	waitForConfiguration(ctx, s.Tenant, s.infra)
	s.Deploy(ctx, tenant.Deployment{Name: "both", Replicas: 1, Labels: map[string]string{
		"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/storage": ""}})
	both := s.Config(ctx, "both")
	Eventually(ctx, s.Condition(both, bootstrapv1.PoolDecidedCondition)).Should(HavePrefix("False"))
	s.names = strings.NewReplacer(s.Namespace+"/"+s.Namespace, "metal/edge", s.Namespace, "metal", s.infra.Name, "infra-9pq4c", both.Name, "both-x7k2m", hostAddress, "192.0.2.12")
	return s
}

// waitForServed waits until the config server has recorded that the host got its configuration.
func (s *documentedSite) waitForServed(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(ctx context.Context) (bool, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)
		return s.infra.Status.Requests.ServedTime != nil, err
	}).Should(BeTrue())
}

// expectOutput expects the commands of a block to print the output that the block shows.
func (s *documentedSite) expectOutput(ctx context.Context, block string) {
	GinkgoHelper()
	shell := &terminal{dir: GinkgoT().TempDir()}
	replacer := strings.NewReplacer("infra-9pq4c", s.infra.Name, " metal", " "+s.Namespace)
	normalize := func(text string) string {
		text = outputUUID.ReplaceAllString(text, "UUID")
		text = outputDuration.ReplaceAllString(outputTime.ReplaceAllString(s.names.Replace(text), "TIME"), "${1}TOOK${2}")
		return outputDuration.ReplaceAllString(unwrap(text), "${1}TOOK${2}")
	}
	for _, shown := range strings.Split(strings.TrimPrefix(block, "$ "), "\n$ ") {
		line, output, _ := strings.Cut(shown, "\n")
		Eventually(ctx, func() string { return normalize(shell.run(ctx, replacer.Replace(line))) }).Should(Equal(normalize(output)), line)
	}
}

var _ = Describe("The documented output", func() {
	It("is the output of kubectl poolboot boots, explain and rollout", func(ctx SpecContext) {
		blocks := documentedOutput("kubectl-poolboot.md")
		s := newDocumentedSite(ctx)
		Eventually(ctx, s.Condition(s.infra, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False WaitingForKubelet"))
		s.waitForServed(ctx)
		s.expectOutput(ctx, blocks["boots"])

		By("making the Node Ready, with an agent that has what it is told")
		makeNodeReady(ctx, s.Tenant, s.infra)
		Expect(setNode(ctx, s.infra.Status.NodeRef.Name, func(node *corev1.Node) {
			node.Annotations[agentv1.ReportVersionAnnotation], node.Annotations[agentv1.AgentAnnotation] = "1", "v0.1.0"
		})).To(Succeed())
		running, stop := context.WithCancel(context.Background())
		DeferCleanup(stop)
		go agent(running, s.infra.Status.NodeRef.Name)
		Eventually(ctx, s.Condition(s.infra, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True Done"))
		Eventually(ctx, func() []corev1.Taint { return s.Node(ctx, s.infra).Spec.Taints }).Should(BeEmpty())
		Eventually(ctx, func(ctx context.Context) (bool, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)
			return s.infra.Status.Boot.TokenRevokedTime != nil, err
		}).Should(BeTrue())
		_, err := lab.Kubectl(ctx, lab.Workload, "label", "node", s.infra.Name, "example.com/tier=gold", "--overwrite")
		Expect(err).NotTo(HaveOccurred())
		s.expectOutput(ctx, blocks["explain"])
		s.expectOutput(ctx, blocks["rollout"])
	})

	It("is what kubectl prints about a first boot that fails", func(ctx SpecContext) {
		s := newDocumentedSite(ctx)
		Eventually(ctx, s.Condition(s.infra, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False WaitingForKubelet"))
		s.waitForServed(ctx)
		// In the way of Ignition 2.27 on a host that has no such disk.
		failure := "device unit dev-sda.device timeout"
		before := s.infra.DeepCopy()
		s.infra.Status.Requests.IgnitionFailure = bootstrapv1.IgnitionFailure{ReportedTime: metav1.NowMicro(), Stage: "disks",
			Log: "disks: createPartitions: op(1): [started]  waiting for devices [/dev/sda]\n" +
				"disks: createPartitions: op(1): [failed]   waiting for devices [/dev/sda]: " + failure + "\n" +
				"Ignition failed: create partitions failed: failed to wait on disks devs: " + failure}
		Expect(lab.ManagementClient.Status().Patch(ctx, s.infra, client.MergeFrom(before))).To(Succeed())
		s.expectOutput(ctx, documentedOutput("conditions.md")["failed"])
	})
})
