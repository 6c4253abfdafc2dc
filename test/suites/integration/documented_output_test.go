package integration

import (
	"context"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var (
	toldBlock = regexp.MustCompile("(?ms)^```console (boots|explain)\n(.*?)^```")
	// What no two runs have alike.
	toldTime   = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
	toldTook   = regexp.MustCompile(`(\s)-?(?:\d+(?:\.\d+)?(?:ns|µs|ms|s|m|h|d))+(:|\s|$)`)
	toldUUID   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	toldBlanks = regexp.MustCompile(` +`)
)

// toldSite is what the documentation of boots and explain shows: one Machine whose host boots, and one whose labels are
// of two pools.
type toldSite struct {
	*tenant.Tenant
	// names are the documentation's, by what they are called here.
	names *strings.Replacer
	infra *bootstrapv1.PoolbootConfig
}

func newToldSite(ctx context.Context) *toldSite {
	GinkgoHelper()
	s := &toldSite{Tenant: tenant.New(ctx, lab, 0, func(p *poolv1.MachineConfigPool) {
		if p.Spec.PoolRole == "infra" {
			p.Spec.NodeLabels = map[string]string{"example.com/tier": "infra"}
		}
	})}
	s.Create(ctx, s.Pool("storage"))
	s.AddHost(ctx, "rack1-u12")
	s.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
	s.infra = s.Config(ctx, "infra")
	asking(ctx, s.Tenant, s.infra)
	s.Deploy(ctx, tenant.Deployment{Name: "both", Replicas: 1, Labels: map[string]string{
		"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/storage": ""}})
	both := s.Config(ctx, "both")
	Eventually(ctx, s.Condition(both, bootstrapv1.PoolDecidedCondition)).Should(HavePrefix("False"))
	s.names = strings.NewReplacer(s.Namespace+"/"+s.Namespace, "metal/edge", s.Namespace, "metal", s.infra.Name, "infra-9pq4c", both.Name, "both-x7k2m", home, "192.0.2.12")
	return s
}

// expectTold holds what the commands of a block print against what is shown.
func (s *toldSite) expectTold(ctx context.Context, block string) {
	GinkgoHelper()
	shell := &terminal{dir: GinkgoT().TempDir()}
	here := strings.NewReplacer("infra-9pq4c", s.infra.Name, " metal", " "+s.Namespace)
	comparable := func(text string) string {
		text = toldUUID.ReplaceAllString(text, "UUID")
		text = toldTook.ReplaceAllString(toldTime.ReplaceAllString(s.names.Replace(text), "TIME"), "${1}TOOK${2}")
		text = toldTook.ReplaceAllString(toldBlanks.ReplaceAllString(text, " "), "${1}TOOK${2}")
		return strings.ReplaceAll(strings.TrimSpace(text), " \n", "\n")
	}
	for _, shown := range strings.Split(strings.TrimPrefix(block, "$ "), "\n$ ") {
		line, output, _ := strings.Cut(shown, "\n")
		Eventually(ctx, func() string { return comparable(shell.run(ctx, here.Replace(line))) }).Should(Equal(comparable(output)), line)
	}
}

var _ = Describe("What the documentation shows of a cluster", func() {
	It("is what kubectl poolboot boots and explain print", func(ctx SpecContext) {
		document, err := os.ReadFile("../../../docs/kubectl-poolboot.md")
		Expect(err).NotTo(HaveOccurred())
		blocks := map[string]string{}
		for _, block := range toldBlock.FindAllStringSubmatch(string(document), -1) {
			blocks[block[1]] = block[2]
		}
		s := newToldSite(ctx)
		Eventually(ctx, s.Condition(s.infra, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False WaitingForKubelet"))
		Eventually(ctx, func(ctx context.Context) (bool, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)
			return s.infra.Status.Boot.ServedTime != nil, err
		}).Should(BeTrue())
		s.expectTold(ctx, blocks["boots"])

		By("being Ready")
		becomeReady(ctx, s.Tenant, s.infra)
		Eventually(ctx, func() []corev1.Taint { return s.Node(ctx, s.infra).Spec.Taints }).Should(BeEmpty())
		Eventually(ctx, func(ctx context.Context) (bool, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)
			return s.infra.Status.Boot.TokenRevokedTime != nil, err
		}).Should(BeTrue())
		_, err = lab.Kubectl(ctx, lab.Workload, "label", "node", s.infra.Name, "example.com/tier=gold", "--overwrite")
		Expect(err).NotTo(HaveOccurred())
		s.expectTold(ctx, blocks["explain"])
	})
})
