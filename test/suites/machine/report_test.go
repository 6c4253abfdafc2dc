package machine

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A machine whose Ignition fails", func() {
	It("reports a first boot that fails, with the stage", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Create(ctx, butane(t, "60-missing", `
variant: fcos
version: 1.5.0
storage:
  filesystems:
  - {device: /dev/missing, format: ext4, path: /var/lib/data}
`))
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: map[string]string{"node-role.kubernetes.io/infra": ""}})
		config := t.Config(ctx, "infra")
		m := waitForMachine(ctx, t)
		DeferCleanup(m.PowerCut)
		Eventually(ctx, t.Condition(config, bootstrapv1.IgnitionSucceededCondition)).Should(And(HavePrefix("False IgnitionFailed: "), ContainSubstring("disks")))
		Expect(config.Status.Requests.IgnitionFailure).To(And(HaveField("Stage", "disks"), HaveField("Log", And(ContainSubstring("/dev/missing"), ContainSubstring("Ignition failed: "), Not(ContainSubstring("Full config"))))))
		AddReportEntry("the reported log", config.Status.Requests.IgnitionFailure.Log)
		Eventually(ctx, m.Console).Should(ContainSubstring("Reported to the config server that Ignition failed in the stage disks"))
		token := t.Pointer(ctx, config).Token
		Expect(m.Console()).NotTo(ContainSubstring(token))
	}, SpecTimeout(20*time.Minute))
})
