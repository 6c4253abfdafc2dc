package diff

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = DescribeTable("diff, of a restart that a file requests, says what it does to each host", func(kind, reboot, effect string) {
	host := clitest.PoolbootConfig("infra", "a", "node-a")
	record.RevokeToken(host)
	rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "rendered-a", Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}}
	host.Status.Boot.ServedConfiguration.Name, host.Status.Update.DesiredRevision = rendered.Name, strings.Repeat("0", 64)
	pools := []string{clitest.Pool("infra-1", "worker"), clitest.Pool("infra-1", "infra")}
	restarts := strings.Replace(pools[1], "spec:\n", "spec:\n  updates: {restart: {id: monday, kind: "+kind+"}}\n", 1)
	r := runDiff(clitest.NewFakeConnection(pools, host, rendered), "-f", clitest.WriteFile("new.yaml", restarts))
	Expect(r.Code).To(Equal(1))
	Expect(r.Out).To(And(ContainSubstring("  reboot:   "+reboot+"\n"), ContainSubstring("Node node-a: "+effect), ContainSubstring("  + updates.restart.id: monday\n")))
},
	Entry("a reboot", "Reboot", "yes: restart", "Reboot"),
	Entry("of kubelets", "Kubelet", "no: Restart kubelet.service", "Restart"),
)
