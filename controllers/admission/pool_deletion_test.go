package admission

import (
	"context"
	"errors"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("Deletion of a MachineConfigPool", func() {
	now := metav1.Now()
	cluster := func() *clusterv1.Cluster {
		return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c1", Namespace: "site"}}
	}
	// machine returns the PoolbootConfig <name>-boot of the Machine <name>, recorded in a pool of a Cluster.
	machine := func(name, clusterName, role string) *bootstrapv1.PoolbootConfig {
		return &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-boot", Namespace: "site", Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name}}},
			Status: bootstrapv1.PoolbootConfigStatus{PoolRole: role},
		}
	}
	builder := func(objects ...client.Object) *fake.ClientBuilder {
		return fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(objects...)
	}
	deletion := func(p *poolv1.MachineConfigPool, objects ...client.Object) error {
		_, err := (&MachineConfigPool{Reader: builder(objects...).Build()}).ValidateDelete(ctx(), p)
		return err
	}

	It("is refused while Machines are recorded in it, and names them and the remedies", func() {
		err := deletion(newPool("infra", "infra"), cluster(), machine("infra-b", "c1", "infra"), machine("infra-a", "c1", "infra"), machine("plain", "c1", "worker"))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
		Expect(err).To(MatchError(And(ContainSubstring("2 host(s)"), ContainSubstring("infra-a, infra-b;"), Not(ContainSubstring("plain")),
			ContainSubstring("labels of another pool"), ContainSubstring("poolboot.io/force-delete=true"))))
	})

	It("is refused while a Machine without a recorded pool would boot into it", func() {
		byLabel, bySpec, elsewhere := machine("by-label", "c1", ""), machine("by-spec", "c1", ""), machine("elsewhere", "c1", "")
		labeled := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "by-label", Namespace: "site",
			Labels: map[string]string{clusterv1.ClusterNameLabel: "c1", "node-role.kubernetes.io/infra": ""}}}
		ofTemplate := machine("of-template", "c1", "")
		ofTemplate.Labels["node-role.kubernetes.io/infra"] = "" // the Machine has no such label
		bySpec.Spec.PoolRole, elsewhere.Spec.PoolRole = "infra", "gpu"
		err := deletion(newPool("infra", "infra"), cluster(), newPool("worker", "worker"), newPool("gpu", "gpu"), labeled, byLabel, bySpec, elsewhere, ofTemplate, machine("plain", "c1", ""))
		Expect(err).To(MatchError(And(ContainSubstring("2 host(s)"), ContainSubstring("by-label, by-spec;"))))
	})

	Describe("with running hosts", func() {
		joined := func(name, fallback string) *bootstrapv1.PoolbootConfig {
			m := machine(name, "c1", "infra")
			m.Status.NodeRef, m.Status.FallbackPoolRole = bootstrapv1.NodeReference{Name: name, UID: "1"}, fallback
			record.RevokeToken(m)
			return m
		}
		It("is allowed if other pools take all of them, and says which", func() {
			warnings, err := (&MachineConfigPool{Reader: builder(cluster(), newPool("worker", "worker"), newPool("gpu", "gpu"),
				joined("infra-a", "worker"), joined("infra-b", "worker"), joined("infra-c", "gpu")).Build()}).ValidateDelete(ctx(), newPool("infra", "infra"))
			Expect(err).NotTo(HaveOccurred())
			Expect(warnings).To(ConsistOf(
				"1 host(s) change to the pool with role gpu, under its spec.maxUnavailable: infra-c",
				"2 host(s) change to the pool with role worker, under its spec.maxUnavailable: infra-a, infra-b"))
		})

		It("is refused for those that no pool takes", func() {
			Expect(deletion(newPool("infra", "infra"), cluster(), newPool("worker", "worker"), joined("infra-a", "worker"), joined("infra-b", ""))).
				To(MatchError(And(ContainSubstring("1 host(s)"), ContainSubstring("no other pool takes them: infra-b;"))))
		})

		It("is refused if the pool that would take them does not exist any more, or is deleted too", func() {
			gpu := newPool("gpu", "gpu")
			gpu.DeletionTimestamp, gpu.Finalizers = &now, []string{"example.com/keep"}
			Expect(deletion(newPool("infra", "infra"), cluster(), gpu, joined("infra-a", "gpu"))).To(MatchError(ContainSubstring("infra-a")))
			Expect(deletion(newPool("infra", "infra"), cluster(), joined("infra-a", "gpu"))).To(MatchError(ContainSubstring("infra-a")))
		})

		It("is refused while a host boots, which could not join any more", func() {
			booting := machine("infra-a", "c1", "infra")
			booting.Status.FallbackPoolRole = "worker"
			Expect(deletion(newPool("infra", "infra"), cluster(), newPool("worker", "worker"), booting)).To(MatchError(ContainSubstring("infra-a")))
		})
	})

	It("names hosts by their Nodes", func() {
		m := machine("infra-a", "c1", "infra")
		m.Status.NodeRef = bootstrapv1.NodeReference{Name: "host-7", UID: "1"}
		Expect(deletion(newPool("infra", "infra"), cluster(), m)).To(MatchError(ContainSubstring("takes them: host-7;")))
	})

	It("names ten hosts and counts the others", func() {
		objects := []client.Object{cluster()}
		for i := range 13 {
			objects = append(objects, machine(fmt.Sprintf("infra-%02d", i), "c1", "infra"))
		}
		Expect(deletion(newPool("infra", "infra"), objects...)).To(MatchError(And(ContainSubstring("13 host(s)"),
			ContainSubstring("infra-00"), ContainSubstring("infra-09 and 3 more"), Not(ContainSubstring("infra-10")))))
	})

	It("is refused for the worker pool while other pools inherit from it", func() {
		Expect(deletion(newPool("worker", "worker"), cluster(), newPool("worker", "worker"), newPool("infra", "infra"), newPool("gpu", "gpu"))).To(
			MatchError(And(ContainSubstring("2 pool(s)"), ContainSubstring("gpu, infra"), ContainSubstring("delete those first"))))
	})

	DescribeTable("is allowed",
		func(p *poolv1.MachineConfigPool, objects ...client.Object) {
			Expect(deletion(p, objects...)).To(Succeed())
		},
		Entry("without Machines", newPool("infra", "infra"), cluster(), newPool("worker", "worker"), machine("plain", "c1", "worker")),
		Entry("for the worker pool beside that of the control plane, which inherits nothing", newPool("worker", "worker"), cluster(), newPool("master", "control-plane")),
		Entry("for the pool of the control plane, from which none inherits", newPool("master", "control-plane"), cluster(), newPool("worker", "worker"), newPool("infra", "infra")),
		Entry("for the last pool, the worker pool", newPool("worker", "worker"), cluster(), newPool("worker", "worker")),
		Entry("with only Machines of another Cluster", newPool("infra", "infra"), cluster(), machine("other", "c2", "infra")),
		Entry("for the worker pool with only pools of another Cluster", newPool("worker", "worker"), cluster(),
			newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) { s.ClusterName = "c2" })),
		Entry("if another pool has its role", newPool("infra-2", "infra"), cluster(), newPool("infra", "infra"), machine("infra-a", "c1", "infra")),
		Entry("if the Cluster does not exist", newPool("infra", "infra"), machine("infra-a", "c1", "infra")),
		Entry("if the Cluster is being deleted", newPool("worker", "worker"), func() client.Object {
			c := cluster()
			c.DeletionTimestamp, c.Finalizers = &now, []string{clusterv1.ClusterFinalizer}
			return c
		}(), newPool("infra", "infra"), machine("plain", "c1", "worker")),
		Entry("if it is forced", annotated(newPool("worker", "worker"), poolv1.ForceDeleteAnnotation, "true"), cluster(),
			newPool("infra", "infra"), machine("plain", "c1", "worker")),
		Entry("if clusterctl has moved the pool", annotated(newPool("worker", "worker"), "clusterctl.cluster.x-k8s.io/delete-for-move", ""), cluster(),
			newPool("infra", "infra"), machine("plain", "c1", "worker")),
	)

	Describe("of a rendered config", func() {
		rendered := func() *poolv1.MachineConfig {
			return &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "rendered-infra-0", Namespace: "site",
				Labels: map[string]string{poolv1.RenderedForLabel: "infra"}}}
		}
		paused := func(isPaused bool, configuration string) *poolv1.MachineConfigPool {
			p := newPool("infra", "infra", func(s *poolv1.MachineConfigPoolSpec) { s.Paused = new(isPaused) })
			p.Status.Configuration = poolv1.PoolConfiguration{Name: configuration}
			return p
		}
		remove := func(config *poolv1.MachineConfig, objects ...client.Object) error {
			_, err := (&MachineConfig{Reader: builder(objects...).Build()}).ValidateDelete(ctx(), config)
			return err
		}

		It("is refused only for the one that a paused pool hands out", func() {
			err := remove(rendered(), cluster(), paused(true, "rendered-infra-0"))
			Expect(apierrors.IsForbidden(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("MachineConfigPool infra"), ContainSubstring("kubectl poolboot rollout resume infra -n "))))
			Expect(remove(rendered(), cluster(), paused(true, "rendered-infra-1"))).To(Succeed())
			Expect(remove(rendered(), cluster(), paused(false, "rendered-infra-0"))).To(Succeed())

			moved := paused(true, "")
			moved.Status.Configuration, moved.Annotations = poolv1.PoolConfiguration{}, map[string]string{poolv1.PausedConfigurationAnnotation: "rendered-infra-0"}
			Expect(apierrors.IsForbidden(remove(rendered(), cluster(), moved))).To(BeTrue())
			named := paused(true, "rendered-infra-0")
			named.Annotations = map[string]string{poolv1.PausedConfigurationAnnotation: "rendered-infra-1"}
			Expect(remove(rendered(), cluster(), named)).To(Succeed())
		})

		It("is refused for the one that spec.configurationName of its pool names", func() {
			pinned := paused(false, "rendered-infra-1")
			pinned.Spec.ConfigurationName = "rendered-infra-0"
			err := remove(rendered(), cluster(), pinned)
			Expect(apierrors.IsForbidden(err)).To(BeTrue())
			Expect(err).To(MatchError(And(ContainSubstring("spec.configurationName of MachineConfigPool infra names it"), ContainSubstring("kubectl poolboot rollout resume infra -n "))))
			pinned.Spec.ConfigurationName = "rendered-infra-2"
			Expect(remove(rendered(), cluster(), pinned)).To(Succeed())
		})

		It("is allowed if the pool or its Cluster does not exist, or if clusterctl has moved the config", func() {
			Expect(remove(rendered(), cluster())).To(Succeed())
			Expect(remove(rendered(), paused(true, "rendered-infra-0"))).To(Succeed())
			moved := rendered()
			moved.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
			Expect(remove(moved, cluster(), paused(true, "rendered-infra-0"))).To(Succeed())
		})
	})

	It("is not forced with another value of the annotation", func() {
		p := annotated(newPool("infra", "infra"), poolv1.ForceDeleteAnnotation, "false")
		Expect(deletion(p, cluster(), machine("infra-a", "c1", "infra"))).NotTo(Succeed())
	})

	DescribeTable("is refused while an object cannot be read",
		func(broken any) {
			failing := func(o any) error {
				if fmt.Sprintf("%T", o) == fmt.Sprintf("%T", broken) {
					return errors.New("down")
				}
				return nil
			}
			reader := builder(cluster()).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					return errors.Join(failing(o), c.Get(ctx, key, o, opts...))
				},
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					return errors.Join(failing(l), c.List(ctx, l, opts...))
				},
			}).Build()
			_, err := (&MachineConfigPool{Reader: reader}).ValidateDelete(ctx(), newPool("infra", "infra"))
			Expect(apierrors.IsInternalError(err)).To(BeTrue())
		},
		Entry("the Cluster", &clusterv1.Cluster{}),
		Entry("the pools", &poolv1.MachineConfigPoolList{}),
		Entry("the Machines", &bootstrapv1.PoolbootConfigList{}),
	)
})

func annotated(p *poolv1.MachineConfigPool, key, value string) *poolv1.MachineConfigPool {
	p.Annotations = map[string]string{key: value}
	return p
}
