package rollout

import (
	"context"
	"errors"
	"strings"

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

	const first, second = "rendered-infra-6db67f471f5b8ea1b6a6ed0ff73d6a3e", "rendered-infra-8c1f02a9d47f1f02f3f4f3a0a1b2c3d4"

	It("set what a paused pool hands out, by the whole or the short name, also if it is paused already", func(ctx SpecContext) {
		s := newSite(nil)
		for i, name := range []string{first, second} {
			Expect(s.live.Create(ctx, newRendered(name, int64(i), ""))).To(Succeed())
		}
		for _, c := range []struct{ given, name string }{{first, first}, {"infra@8c1f02a9", second}} {
			Expect(strings.Join(clitest.Rows(clitest.ExpectSuccess(s.run("pause", "infra", "--configuration", c.given))), " ")).To(ContainSubstring("is paused and hands out " + c.name))
			Expect(read(ctx, s)).To(And(HaveField("Spec.Paused", HaveValue(BeTrue())), HaveField("Annotations", HaveKeyWithValue(poolv1.PausedConfigurationAnnotation, c.name))))
		}
		Expect(clitest.ExpectSuccess(s.run("pause", "infra", "--configuration", "infra@8c1f02a9"))).To(ContainSubstring("is already paused"))
	})

	It("refuse what is no rendered config of the pool, and change nothing", func(ctx SpecContext) {
		s := newSite(nil)
		other, own := newRendered("rendered-gpu-6db67f471f5b8ea1b6a6ed0ff73d6a3e", 1, ""), newRendered(first, 1, "")
		other.Labels[poolv1.RenderedForLabel] = "gpu"
		Expect(s.live.Create(ctx, other)).To(Succeed())
		Expect(s.live.Create(ctx, own)).To(Succeed())
		for _, given := range []string{"blah", other.Name, "gpu@6db67f47", second, "infra@8c1f02a9", "infra@"} {
			clitest.ExpectError(s.run("pause", "infra", "--configuration", given), 1,
				"--configuration: MachineConfigPool edge/infra has no rendered config "+given+": choose one that kubectl poolboot rollout history infra -n edge lists")
		}
		Expect(read(ctx, s).Spec.Paused).To(BeNil())
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
