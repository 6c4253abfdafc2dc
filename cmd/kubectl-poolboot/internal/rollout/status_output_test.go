package rollout

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("The output of status", func() {
	It("says since when a host is in the stage of its update", func() {
		rebooting := newHost("a", oldConfig, newConfig, metav1.ConditionFalse, bootstrapv1.UpdateRebootingReason, "it reboots") // not Done for fifteen minutes
		rebooting.Status.Update.Stage, rebooting.Status.Update.StageTime = bootstrapv1.UpdateRebooting, &metav1.Time{Time: time.Now().Add(-2 * time.Minute)}
		Expect(newSite(nil, rebooting).run("status", "infra").Out).To(And(ContainSubstring("2m"), Not(ContainSubstring("15m"))))
	})

	It("prints the versions of agents with -o wide", func() {
		a := done("a")
		a.Status.Update.AgentVersion = "v0.1.0"
		r := newSite(nil, a, done("b")).run("status", "infra", "-o", "wide")
		Expect(clitest.Rows(r.Out)).To(Equal([]string{
			"HOST NODE STATE CURRENT DESIRED SINCE AGENT MESSAGE",
			"bmh-a a Done rendered-infra-1 rendered-infra-1 15m v0.1.0 Node a runs rendered-infra-1",
			"bmh-b b Done rendered-infra-1 rendered-infra-1 15m <none> Node b runs rendered-infra-1",
		}))
	})

	It("refuses --timeout without --watch", func() {
		clitest.ExpectError(newSite(nil, done("a")).run("status", "infra", "--timeout", "5m"), 1, "--timeout needs --watch")
		clitest.ExpectError(newSite(nil, done("a")).run("status", "-A", "--timeout", "5m"), 1, "--timeout needs --watch")
	})

	It("prints JSON", func() {
		r := newSite(nil, done("a")).run("status", "infra", "-o", "json")
		Expect(clitest.ExpectSuccess(r)).To(And(HavePrefix("[\n"), ContainSubstring(`"poolbootConfig": "a-config"`), ContainSubstring(`"state": "Done"`)))
		Expect(newSite(nil, done("a")).run("status", "infra", "-o", "json", "-w").Out).To(MatchRegexp(`^\{"poolbootConfig":"a-config",.*\}\n$`))
	})
})
