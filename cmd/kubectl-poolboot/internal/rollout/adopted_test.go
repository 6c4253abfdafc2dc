package rollout

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("status", func() {
	It("leaves out an adopted host that is as it was found, and counts it once it follows, and until it has returned", func() {
		host := clitest.AdoptedConfig("a", bootstrapv1.AdoptionPreviewReason, "Node a is as it was found. Its pool changes nothing on it")
		r := newSite(nil, done("b"), host).run("status")
		Expect(clitest.Rows(r.Out)[1]).To(HavePrefix("infra rendered-infra-1 1/1"))
		Expect(newSite(nil, done("b"), host.DeepCopy()).run("status", "infra").Out).NotTo(ContainSubstring("as-found"))

		follows := clitest.AdoptedConfig("a", bootstrapv1.UpdateWaitingReason, "Node a runs as-found, and waits for other hosts")
		follows.Spec.Host.Adoption = bootstrapv1.AdoptionFollow
		Expect(clitest.Rows(newSite(nil, follows).run("status", "infra").Out)[1]).To(HavePrefix("a a Waiting as-found rendered-infra-1"))

		returns := newHost("a", newConfig, newConfig, metav1.ConditionFalse, "Waiting", "Node a runs it, and waits for other hosts")
		returns.Spec.Host = host.Spec.Host
		r = newSite(nil, returns).run("status", "infra")
		Expect(clitest.Rows(r.Out)[1]).To(HavePrefix("bmh-a a Waiting rendered-infra-1 as-found"))
		Expect(r.ErrOut).To(ContainSubstring("0 of 1 hosts"))
	})
})
