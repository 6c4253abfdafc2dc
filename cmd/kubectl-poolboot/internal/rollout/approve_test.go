package rollout

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("approve", func() {
	const earlier, present = "rendered-infra-6db67f471f5b8ea1b6a6ed0ff73d6a3e", "rendered-infra-8c1f02a9d47f1f02f3f4f3a0a1b2c3d4"
	manual := func(p *poolv1.MachineConfigPool) {
		p.Spec.Updates.Approval = poolv1.ApprovalManual
		p.Status.Configuration.Name, p.Status.RenderedConfiguration = present, present
	}
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	approved := func(ctx context.Context, s *site) string {
		GinkgoHelper()
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		return p.Annotations[poolv1.ApprovedConfigurationAnnotation]
	}

	It("names what the pool renders, and does nothing a second time", func(ctx SpecContext) {
		s := newSite(manual)
		Expect(words(clitest.ExpectSuccess(s.run("approve", "infra")))).To(Equal(present + " is approved for MachineConfigPool edge/infra: its hosts begin their updates to it"))
		Expect(approved(ctx, s)).To(Equal(present))
		Expect(clitest.ExpectSuccess(s.run("approve", "infra", "--configuration", "infra@8c1f02a9"))).To(Equal(present + " is already approved for MachineConfigPool edge/infra\n"))
	})

	It("refuses a config that is superseded, and names the present one", func(ctx SpecContext) {
		s := newSite(manual)
		for _, given := range []string{earlier, "infra@6db67f47", "nope"} {
			clitest.ExpectError(s.run("approve", "infra", "--configuration", given), 1,
				"--configuration: "+given+" is not what MachineConfigPool edge/infra renders now, which is "+present+": check that one, and approve it")
		}
		Expect(approved(ctx, s)).To(BeEmpty())
	})

	It("refuses if the pool changes meanwhile: it could render something else", func(ctx SpecContext) {
		s := newSite(manual)
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "machineconfigpools"}, "infra", nil)
		}})
		clitest.ExpectError(s.run("approve", "infra"), 1, "MachineConfigPool edge/infra was changed meanwhile: see kubectl poolboot rollout status infra -n edge, and run the command again")
	})

	It("says what else holds the hosts", func() {
		s := newSite(func(p *poolv1.MachineConfigPool) {
			manual(p)
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: "0 0 29 2 *", DurationMinutes: 1}
		})
		Expect(words(clitest.ExpectSuccess(s.run("approve", "infra")))).To(ContainSubstring("no host begins its update yet: the maintenance window of MachineConfigPool infra opens at 20"))
	})

	It("writes nothing for a pool that needs none, or has rendered nothing", func(ctx SpecContext) {
		s := newSite(func(p *poolv1.MachineConfigPool) { p.Status.Configuration.Name = present })
		Expect(clitest.ExpectSuccess(s.run("approve", "infra"))).To(Equal("MachineConfigPool edge/infra needs no approval: its spec.updates.approval is not Manual\n"))
		Expect(approved(ctx, s)).To(BeEmpty())
		s = newSite(func(p *poolv1.MachineConfigPool) {
			manual(p)
			p.Status.Configuration.Name, p.Status.RenderedConfiguration = "", ""
		})
		clitest.ExpectError(s.run("approve", "infra"), 1, "MachineConfigPool edge/infra has rendered nothing that could be approved: see its condition RenderDegraded")
	})
})
