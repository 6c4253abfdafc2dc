package rollout

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("undo", func() {
	const first, second = "rendered-infra-6db67f471f5b8ea1b6a6ed0ff73d6a3e", "rendered-infra-8c1f02a9d47f1f02f3f4f3a0a1b2c3d4"
	var s *site
	words := func(result clitest.Result) string {
		GinkgoHelper()
		return strings.Join(strings.Fields(clitest.ExpectSuccess(result)), " ")
	}
	read := func(ctx context.Context) *poolv1.MachineConfigPool {
		GinkgoHelper()
		p := &poolv1.MachineConfigPool{}
		Expect(s.live.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "infra"}, p)).To(Succeed())
		return p
	}
	source := func(name, role, content string) *poolv1.MachineConfig {
		c := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: name, Labels: map[string]string{"role": role}}}
		c.Spec.Config = &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/` + name + `","contents":{"source":"data:,` + content + `"}}]}}`)}
		return c
	}
	selecting := func(role string) poolv1.MachineConfigPoolSpec {
		return poolv1.MachineConfigPoolSpec{ClusterName: "infra-1", PoolRole: role, MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}}}
	}
	// rendered returns a rendered config of a pool that was rendered from MachineConfigs.
	rendered := func(name, of, role string, sources ...*poolv1.MachineConfig) *poolv1.MachineConfig {
		GinkgoHelper()
		var configs []poolv1.MachineConfig
		for _, source := range sources {
			configs = append(configs, *source)
		}
		from, err := pool.RenderedFrom(role, []poolv1.MachineConfigPool{{Spec: selecting(poolv1.RoleWorker)}, {Spec: selecting("infra")}, {Spec: selecting("gpu")}}, configs)
		Expect(err).NotTo(HaveOccurred())
		c := newRendered(name, 1, "")
		c.Labels[poolv1.RenderedForLabel], c.Annotations = of, map[string]string{poolv1.RenderedFromAnnotation: from}
		return c
	}
	// begin has a pool that handed out two rendered configs. The MachineConfig 50-base, which it inherits from worker,
	// was changed in between.
	begin := func(ctx context.Context, change func(*poolv1.MachineConfigPool)) {
		GinkgoHelper()
		s = newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec = selecting("infra")
			for i, name := range []string{first, second} {
				p.Status.History = append(p.Status.History, poolv1.HandedOutConfiguration{Name: name, StartTime: &metav1.Time{Time: time.Unix(int64(i), 0)}})
			}
			p.Status.Configuration.Name, p.Status.RenderedConfiguration = second, second
			if change != nil {
				change(p)
			}
		})
		worker := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "worker"}, Spec: selecting(poolv1.RoleWorker)}
		gpu := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "gpu"}, Spec: selecting("gpu")}
		worker.Status.Configuration.Name, gpu.Status.Configuration.Name = "rendered-worker-0", "rendered-gpu-0"
		base, changed, own := source("50-base", "worker", "1"), source("50-base", "worker", "2"), source("60-infra", "infra", "1")
		for _, o := range []client.Object{worker, gpu, changed, own, rendered(first, "infra", "infra", base, own), rendered(second, "infra", "infra", changed, own),
			rendered("rendered-worker-0", "worker", "worker", base), rendered("rendered-gpu-0", "gpu", "gpu", changed)} {
			Expect(s.live.Create(ctx, o)).To(Succeed())
		}
	}
	const undone = " hands out " + first + ": new Machines boot with it, and running hosts are updated to it "
	const misfit = "The pool renders something else: what no longer fits is MachineConfig 50-base (changed): change or revert that, then run kubectl poolboot rollout resume infra -n edge to hand out what it renders"

	It("returns to the config before the present one, and names what no longer fits, and other pools that have it", func(ctx SpecContext) {
		begin(ctx, nil)
		Expect(words(s.run("undo", "infra"))).To(Equal("MachineConfigPool edge/infra" + undone + misfit +
			" Other pools hand out what no longer fits, and this does not change them: gpu"))
		Expect(read(ctx).Spec.ConfigurationName).To(Equal(first))
	})

	It("does nothing a second time, whatever the pool has handed out meanwhile", func(ctx SpecContext) {
		begin(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.ConfigurationName = first
			p.Status.Configuration.Name = first
			p.Status.History = append(p.Status.History, poolv1.HandedOutConfiguration{Name: first, StartTime: &metav1.Time{Time: time.Unix(9, 0)}})
		})
		version := read(ctx).ResourceVersion
		for _, args := range [][]string{{"undo", "infra"}, {"undo", "infra", "--to", "infra@6db67f47"}} {
			Expect(words(s.run(args...))).To(HavePrefix("MachineConfigPool edge/infra is already to hand out " + first))
		}
		Expect(read(ctx).ResourceVersion).To(Equal(version))
	})

	It("returns to a config by its whole or short name, also another one than it is pinned to", func(ctx SpecContext) {
		begin(ctx, nil)
		Expect(words(s.run("undo", "infra", "--to", "infra@6db67f47"))).To(HavePrefix("MachineConfigPool edge/infra" + undone))
		Expect(words(s.run("undo", "infra", "--to", second))).To(ContainSubstring("It is also what the pool renders: run kubectl poolboot rollout resume infra -n edge"))
		Expect(read(ctx).Spec.ConfigurationName).To(Equal(second))
	})

	It("refuses what is no rendered config of the pool, and changes nothing", func(ctx SpecContext) {
		begin(ctx, nil)
		for _, given := range []string{"blah", "rendered-gpu-0", "infra@"} {
			clitest.ExpectError(s.run("undo", "infra", "--to", given), 1,
				"--to: MachineConfigPool edge/infra has no rendered config "+given+": choose one that kubectl poolboot rollout history infra -n edge lists")
		}
		Expect(read(ctx).Spec.ConfigurationName).To(BeEmpty())
	})

	DescribeTable("exits with 2 if there is nothing to return to:", func(ctx SpecContext, change func(*poolv1.MachineConfigPool)) {
		begin(ctx, change)
		clitest.ExpectError(s.run("undo", "infra"), 2, "MachineConfigPool edge/infra handed out nothing before "+second+
			" that still exists: see kubectl poolboot rollout history infra -n edge, and choose one with --to, or revert the MachineConfigs")
		Expect(read(ctx).Spec.ConfigurationName).To(BeEmpty())
	},
		Entry("no history", func(p *poolv1.MachineConfigPool) { p.Status.History = nil }),
		Entry("the same content only", func(p *poolv1.MachineConfigPool) { p.Status.History[0].Name = second }),
		Entry("a config that was deleted", func(p *poolv1.MachineConfigPool) {
			p.Status.History[0].Name = "rendered-infra-00000000000000000000000000000000"
		}),
	)

	It("says what else holds the hosts: an approval, or a pause, after which it is handed out", func(ctx SpecContext) {
		begin(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Approval = poolv1.ApprovalManual
			metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.ApprovedConfigurationAnnotation, second)
		})
		Expect(words(s.run("undo", "infra"))).To(ContainSubstring("None begins yet: " + first + " is not approved"))
		Expect(words(s.run("approve", "infra"))).To(HavePrefix(first + " is approved"))

		begin(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		Expect(words(s.run("undo", "infra"))).To(ContainSubstring("None begins yet: the pool is paused: run kubectl poolboot rollout resume infra -n edge to hand out " + first))
		Expect(words(s.run("resume", "infra"))).To(Equal("MachineConfigPool edge/infra is no longer paused, and hands out " + first +
			" (spec.configurationName): run the command again to hand out what it renders"))
		Expect(read(ctx).Spec).To(And(HaveField("ConfigurationName", first), HaveField("Paused", HaveValue(BeFalse()))))
		Expect(words(s.run("resume", "infra"))).To(HavePrefix("MachineConfigPool edge/infra is resumed"))
		Expect(read(ctx).Spec.ConfigurationName).To(BeEmpty())
		Expect(words(s.run("resume", "infra"))).To(Equal("MachineConfigPool edge/infra is not paused"))
	})

	It("says what to do if what the pool is to hand out was deleted", func(ctx SpecContext) {
		begin(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.ConfigurationName = "rendered-infra-00000000000000000000000000000000"
		})
		clitest.ExpectError(s.run("undo", "infra"), 1, "spec.configurationName of MachineConfigPool edge/infra names MachineConfig rendered-infra-00000000000000000000000000000000, which does not exist")
	})

	It("changes nothing if the pool was changed meanwhile", func(ctx SpecContext) {
		begin(ctx, nil)
		s.live = interceptor.NewClient(s.live, interceptor.Funcs{Patch: func(_ context.Context, _ client.WithWatch, _ client.Object, p client.Patch, _ ...client.PatchOption) error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "machineconfigpools"}, "infra", nil)
		}})
		clitest.ExpectError(s.run("undo", "infra"), 1, "MachineConfigPool edge/infra was changed meanwhile: see kubectl poolboot rollout status infra -n edge, and run the command again")
	})

	It("shows in status and plan that the pool is pinned", func(ctx SpecContext) {
		s = newSite(func(p *poolv1.MachineConfigPool) {
			p.Spec.ConfigurationName, p.Status.RenderedConfiguration = newConfig, "rendered-infra-2"
			p.Status.Conditions = []metav1.Condition{{Type: poolv1.PinnedCondition, Status: metav1.ConditionTrue, Reason: poolv1.ConfigurationDiffersReason, Message: "the pool hands out it, and MachineConfig 50-base does not fit"}}
		}, done("a"))
		Expect(s.run("status", "infra").ErrOut).To(ContainSubstring("1 of 1 hosts run " + newConfig + "; the pool hands out it, and MachineConfig 50-base does not fit"))
		Expect(clitest.ExpectSuccess(s.run("status"))).To(MatchRegexp(`infra +` + newConfig + ` +1/1, pinned`))
		Expect(clitest.ExpectSuccess(s.run("status", "-o", "json"))).To(And(ContainSubstring(`"pinned": true`), ContainSubstring(`"rendered": "rendered-infra-2"`)))
		Expect(words(s.run("plan", "infra"))).To(ContainSubstring("The pool infra is pinned: the pool hands out it, and MachineConfig 50-base does not fit"))
	})
})
