package rollout

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("pause and resume", func() {
	read := func(ctx context.Context, s *site) *poolv1.MachineConfigPool {
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		return p
	}

	It("change spec.paused, and do nothing a second time", func(ctx SpecContext) {
		s := newSite(nil)
		Expect(clitest.ExpectSuccess(s.run("pause", "infra"))).To(Equal("MachineConfigPool edge/infra is paused: hosts that have begun an update complete it, and no other host begins one\n"))
		Expect(read(ctx, s).Spec.Paused).To(HaveValue(BeTrue()))
		Expect(clitest.ExpectSuccess(s.run("pause", "infra"))).To(Equal("MachineConfigPool edge/infra is already paused\n"))
		Expect(clitest.ExpectSuccess(s.run("resume", "infra"))).To(Equal("MachineConfigPool edge/infra is resumed: see kubectl poolboot rollout status infra -n edge\n"))
		Expect(read(ctx, s).Spec.Paused).To(HaveValue(BeFalse()))
		Expect(clitest.ExpectSuccess(s.run("resume", "infra"))).To(Equal("MachineConfigPool edge/infra is not paused\n"))
	})

	It("set what a paused pool hands out, also if it is paused already", func(ctx SpecContext) {
		s := newSite(nil)
		for _, configuration := range []string{oldConfig, newConfig} {
			Expect(clitest.ExpectSuccess(s.run("pause", "infra", "--configuration", configuration))).To(ContainSubstring("is paused and hands out " + configuration))
			Expect(read(ctx, s)).To(And(HaveField("Spec.Paused", HaveValue(BeTrue())), HaveField("Annotations", HaveKeyWithValue(poolv1.PausedConfigurationAnnotation, configuration))))
		}
		Expect(clitest.ExpectSuccess(s.run("pause", "infra", "--configuration", newConfig))).To(ContainSubstring("is already paused"))
	})

	It("remove what the paused pool hands out together with the pause", func(ctx SpecContext) {
		s := newSite(paused)
		Expect(s.run("resume", "infra").Code).To(BeZero())
		Expect(read(ctx, s).Annotations).NotTo(HaveKey(poolv1.PausedConfigurationAnnotation))
	})

	It("report the field that could not be written", func() {
		s := newSite(nil)
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("forbidden")
		}})
		clitest.ExpectError(s.run("pause", "infra"), 1, "patch spec.paused of MachineConfigPool edge/infra: forbidden")
	})
})
