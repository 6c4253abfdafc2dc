package rollout

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("restart", func() {
	requested := func(ctx context.Context, s *site) poolv1.RestartRequest {
		GinkgoHelper()
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		return p.Spec.Updates.Restart
	}

	It("requests a reboot by default, with another ID each time", func(ctx SpecContext) {
		s := newSite(nil, done("a"))
		Expect(clitest.ExpectSuccess(s.run("restart", "infra"))).To(Equal(
			"the hosts of MachineConfigPool edge/infra reboot, in their turn: see kubectl poolboot rollout status infra -n edge\n"))
		first := requested(ctx, s)
		Expect(first.Kind).To(Equal(poolv1.RestartReboot))
		Expect(s.run("restart", "infra", "--reboot").Code).To(BeZero())
		Expect(requested(ctx, s)).To(And(HaveField("Kind", poolv1.RestartReboot), HaveField("ID", Not(Equal(first.ID)))))
	})

	It("restarts kubelets instead, and refuses both", func(ctx SpecContext) {
		s := newSite(nil)
		Expect(clitest.ExpectSuccess(s.run("restart", "infra", "--kubelet"))).To(HavePrefix("the hosts of MachineConfigPool edge/infra restart their kubelets"))
		Expect(requested(ctx, s).Kind).To(Equal(poolv1.RestartKubelet))
		Expect(s.run("restart", "infra", "--kubelet", "--reboot").Code).NotTo(BeZero())
	})

	It("says that a paused pool lets no host begin", func() {
		Expect(clitest.ExpectSuccess(newSite(paused).run("restart", "infra"))).To(HavePrefix(
			"the hosts of MachineConfigPool edge/infra are to reboot, in their turn. None begins yet: the pool is paused"))
	})

	It("is followed by status, which waits for hosts that were not told yet", func(ctx SpecContext) {
		s := newSite(nil, done("a"))
		Expect(s.run("restart", "infra").Code).To(BeZero())
		Expect(clitest.Rows(s.run("status", "infra").Out)[1]).To(ContainSubstring(" Waiting rendered-infra-1 rendered-infra-1 <none> has not been told yet to restart"))
		s.change(ctx, "a", func(c *bootstrapv1.PoolbootConfig) { c.Status.Update.Restart = requested(ctx, s).ID })
		Expect(clitest.Rows(s.run("status", "infra").Out)[1]).To(ContainSubstring(" Done "))
	})

	It("is a reason for the reboot of a host that waits", func(ctx SpecContext) {
		s := newSite(nil, done("a"))
		Expect(s.live.Create(ctx, newRendered(newConfig, 1, ""))).To(Succeed())
		Expect(s.run("restart", "infra").Code).To(BeZero())
		Expect(clitest.Rows(s.run("status", "infra").Out)[1]).To(HaveSuffix("has not been told yet to restart. Reboot: yes: restart"))
	})

	It("reports the field that could not be written", func() {
		s := newSite(nil)
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("forbidden")
		}})
		clitest.ExpectError(s.run("restart", "infra"), 1, "patch spec.updates.restart of MachineConfigPool edge/infra: forbidden")
	})
})
