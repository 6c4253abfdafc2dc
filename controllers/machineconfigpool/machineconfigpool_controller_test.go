package machineconfigpool

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// haveCondition matches a pool whose condition has this status and reason, and all of these words in its message.
func haveCondition(conditionType string, status metav1.ConditionStatus, reason string, words ...string) gomegatypes.GomegaMatcher {
	of := func(p *poolv1.MachineConfigPool) metav1.Condition {
		return ptr.Deref(meta.FindStatusCondition(p.Status.Conditions, conditionType), metav1.Condition{})
	}
	matchers := []gomegatypes.GomegaMatcher{
		WithTransform(func(p *poolv1.MachineConfigPool) metav1.ConditionStatus { return of(p).Status }, Equal(status)),
		WithTransform(func(p *poolv1.MachineConfigPool) string { return of(p).Reason }, Equal(reason)),
	}
	for _, word := range words {
		matchers = append(matchers, WithTransform(func(p *poolv1.MachineConfigPool) string { return of(p).Message }, ContainSubstring(word)))
	}
	return And(matchers...)
}

const (
	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

var _ = Describe("MachineConfigPool controller", func() {
	var (
		base, infra *poolv1.MachineConfig
		s           *fixture
	)
	BeforeEach(func() {
		base, infra = config("00-base", "worker", "base"), config("50-infra", "infra", "infra")
		s = newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour), base, infra)
	})

	It("renders the MachineConfigs of the worker pool, then those of a custom pool, into one that the pool controls", func() {
		p := s.reconcile("infra")

		Expect(p.Status.Configuration.Source).To(Equal([]poolv1.MachineConfigSource{{Name: "00-base"}, {Name: "50-infra"}}))
		Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
		id, err := pool.InputsID("infra", []poolv1.MachineConfigPool{*s.pool("worker"), *p}, []poolv1.MachineConfig{*base, *infra})
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Status.InputsHash).To(Equal(id))
		Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason, p.Status.Configuration.Name))
		Expect(p).To(haveCondition(poolv1.DegradedCondition, no, poolv1.AsExpectedReason))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))

		rendered := s.rendered(p)
		Expect(rendered.Name).To(HavePrefix("rendered-infra-"))
		Expect(string(rendered.Spec.Config.Raw)).To(And(ContainSubstring("/etc/00-base"), ContainSubstring("/etc/50-infra")))
		Expect(rendered.Labels).To(HaveKeyWithValue(poolv1.RenderedForLabel, "infra"))
		Expect(metav1.IsControlledBy(rendered, p)).To(BeTrue())
		Expect(s.events.Events).To(Receive(And(HavePrefix("Normal Rendered"), ContainSubstring(rendered.Name))))
	})

	It("makes the Cluster an owner of the pool, so the pool is moved and deleted with it", func() {
		p := s.reconcile("infra")
		Expect(p.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
		Expect(p.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Cluster"), HaveField("Name", "c1"), HaveField("Controller", BeNil()))))
	})

	It("writes nothing if nothing changed", func() {
		s.reconcile("worker", "infra")
		before := s.writes
		s.reconcile("worker", "infra", "worker", "infra")
		Expect(s.writes).To(Equal(before))
	})

	It("renders a change of the worker pool for the custom pool too, and keeps the old rendered config", func() {
		old := s.rendered(s.reconcile("infra"))
		s.set(base, "changed")
		p := s.reconcile("infra")
		Expect(p.Status.Configuration.Name).NotTo(Equal(old.Name))
		Expect(string(s.rendered(p).Spec.Config.Raw)).To(ContainSubstring("data:,changed"))
		Expect(s.Get(ctx(), client.ObjectKeyFromObject(old), old)).To(Succeed())
	})

	Describe("has counters", func() {
		counters := func(name string) (found []float64) {
			GinkgoHelper()
			families, err := ctrlmetrics.Registry.Gather()
			Expect(err).NotTo(HaveOccurred())
			for _, family := range families {
				for _, metric := range family.Metric {
					if family.GetName() == name && strings.Contains(metric.String(), `value:"counted"`) {
						found = append(found, metric.Counter.GetValue())
					}
				}
			}
			return found
		}

		It("that start at 0 before a host boots, and are deleted with the pool", func() {
			p := newPool("counted", "counted", 0)
			Expect(s.Create(ctx(), p)).To(Succeed())
			s.reconcile("counted")
			for name, number := range map[string]int{"poolboot_preregistrations_total": 3, "poolboot_boots_total": 4} {
				Expect(counters(name)).To(And(HaveLen(number), HaveEach(BeZero())), name)
			}
			Expect(s.Delete(ctx(), p)).To(Succeed())
			_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
			Expect(err).NotTo(HaveOccurred())
			Expect(counters("poolboot_boots_total")).To(BeEmpty())
			Expect(counters("poolboot_preregistrations_total")).To(BeEmpty())
		})

		It("only once its Cluster exists, whatever name a user writes", func() {
			p := newPool("counted", "counted", 0)
			p.Spec.ClusterName = "nowhere"
			Expect(s.Create(ctx(), p)).To(Succeed())
			s.reconcile("counted")
			Expect(counters("poolboot_boots_total")).To(BeEmpty())
		})
	})

	It("renders the kubeletConfigurations of both pools and reports that", func() {
		for _, name := range []string{"worker", "infra"} {
			p := s.pool(name)
			p.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":%d}`, 100*len(name))}
			Expect(s.Update(ctx(), p)).To(Succeed())
		}
		p := s.reconcile("infra")
		Expect(string(s.rendered(p).Spec.Config.Raw)).To(And(ContainSubstring("97-poolboot-worker.conf"), ContainSubstring("98-poolboot-pool.conf")))
		Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason, p.Status.Configuration.Name, "spec.kubelet.configuration of worker and infra"))
		Expect(s.reconcile("worker")).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason, "spec.kubelet.configuration of worker"))
	})

	It("uses the old name again if a change is undone", func() {
		old := s.reconcile("infra").Status.Configuration.Name
		s.set(base, "changed")
		s.reconcile("infra")
		s.set(base, "base")
		Expect(s.reconcile("infra").Status.Configuration.Name).To(Equal(old))
	})

	It("creates a rendered config again that was deleted by hand", func() {
		rendered := s.rendered(s.reconcile("infra"))
		Expect(s.Delete(ctx(), rendered)).To(Succeed())
		again := s.rendered(s.reconcile("infra"))
		Expect(again.Name).To(Equal(rendered.Name))
		Expect(again.Spec).To(Equal(rendered.Spec))
	})

	It("never accepts a rendered config whose content does not match its name", func() {
		rendered := s.rendered(s.reconcile("infra"))
		rendered.Spec.KernelArguments = []string{"quiet"}
		Expect(s.Update(ctx(), rendered)).To(Succeed())

		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "infra"}})
		Expect(err).To(MatchError(ContainSubstring("delete it")))
		Expect(s.pool("infra")).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.RenderFailedReason, rendered.Name))
	})

	It("accepts an existing rendered config that the cache does not contain yet", func() {
		s.rendered(s.reconcile("infra"))
		p := s.pool("infra")
		p.Status = poolv1.MachineConfigPoolStatus{}
		Expect(s.Status().Update(ctx(), p)).To(Succeed())
		s.hidesRendered = true
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
	})

	It("retries if the pool was changed after it was read", func() {
		s.reconcile("infra")
		s.set(infra, "changed")
		s.onPatch = func() {
			s.onPatch = nil
			p := s.pool("infra")
			p.Spec.Paused = new(true)
			Expect(s.Update(ctx(), p)).To(Succeed())
		}
		old := s.pool("infra").Status.Configuration
		Expect(s.reconcile("infra").Status.Configuration).To(Equal(old))
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason))
	})

	DescribeTable("does not change a pool while Cluster API has paused it, and reports that", func(pause func(client.Object, bool), what client.Object, why string) {
		set := func(paused bool) {
			Expect(s.Get(ctx(), client.ObjectKeyFromObject(what), what)).To(Succeed())
			pause(what, paused)
			Expect(s.Update(ctx(), what)).To(Succeed())
		}
		set(true)
		p := s.reconcile("infra", "infra")
		Expect(p).To(haveCondition(clusterv1.PausedCondition, yes, clusterv1.PausedReason, why))
		Expect(p.Status.Conditions).To(HaveLen(1))
		Expect(p.Status.Configuration).To(BeZero())
		Expect(s.writes).To(Equal(1))
		set(false)
		p = s.reconcile("infra", "infra")
		Expect(p).To(haveCondition(clusterv1.PausedCondition, no, clusterv1.NotPausedReason))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))
	},
		Entry("with its Cluster, as during a move", func(o client.Object, paused bool) { o.(*clusterv1.Cluster).Spec.Paused = new(paused) }, cluster(), "Cluster spec.paused"),
		Entry("by its annotation", func(o client.Object, paused bool) {
			if o.SetAnnotations(nil); paused {
				o.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
			}
		}, newPool("infra", "infra", 0), clusterv1.PausedAnnotation),
	)

	It("reports that a pool is not paused in the same write as the rest of the status", func() {
		s.reconcile("worker")
		before := s.writes
		Expect(s.reconcile("infra")).To(haveCondition(clusterv1.PausedCondition, no, clusterv1.NotPausedReason))
		Expect(s.writes-before).To(Equal(3), "the rendered config, the owner, the status")
	})

	It("ignores a pool without the label of the watch filter", func() {
		s.reconciler.WatchFilterValue = "other"
		Expect(s.reconcile("infra").Status).To(BeZero())
	})

	DescribeTable("names what prevents it from rendering, keeps what it had, and creates one event:",
		func(spoil func(), reason string, words ...string) {
			old := s.reconcile("worker", "infra").Status.Configuration
			for len(s.events.Events) > 0 {
				<-s.events.Events
			}
			spoil()
			p := s.reconcile("infra", "infra")
			Expect(p).To(haveCondition(poolv1.RenderDegradedCondition, yes, reason, words...))
			Expect(p).To(haveCondition(poolv1.DegradedCondition, yes, reason, words...))
			Expect(p.Status.Configuration).To(Equal(old))
			Expect(s.events.Events).To(Receive(HavePrefix("Warning " + reason)))
			Expect(s.events.Events).To(BeEmpty())
		},
		Entry("Ignition that does not parse", func() {
			infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"etc/relative"}]}}`)
			Expect(s.Update(ctx(), infra)).To(Succeed())
		}, poolv1.RenderFailedReason, "50-infra", "storage.files[0].path"),
		Entry("an unknown version of Ignition", func() {
			infra.Spec.Config.Raw = []byte(`{"ignition":{"version":"9.0.0"}}`)
			Expect(s.Update(ctx(), infra)).To(Succeed())
		}, poolv1.RenderFailedReason, "50-infra", "ignition.version"),
		Entry("a path that belongs to Poolboot", func() {
			infra.Spec.Config = file("/etc/hostname", "mine")
			Expect(s.Update(ctx(), infra)).To(Succeed())
		}, poolv1.RenderFailedReason, "50-infra", "/etc/hostname"),
		Entry("a kubelet configuration that no kubelet accepts", func() {
			p := s.pool("infra")
			p.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPod":5}`)}
			Expect(s.Update(ctx(), p)).To(Succeed())
		}, poolv1.RenderFailedReason, `MachineConfigPool "infra": spec.kubelet.configuration.maxPod: Invalid value: a KubeletConfiguration has no such field`),
		Entry("more than etcd accepts", func() {
			s.set(infra, strings.Repeat("x", 1600000))
		}, poolv1.RenderFailedReason, "50-infra", "bytes"),
		Entry("a Cluster without a worker pool", func() {
			Expect(s.Delete(ctx(), s.pool("worker"))).To(Succeed())
		}, poolv1.WorkerPoolMissingReason, "c1", "worker"),
		Entry("a Cluster that does not exist", func() {
			Expect(s.Delete(ctx(), cluster())).To(Succeed())
		}, poolv1.ClusterNotFoundReason, "site/c1"),
	)

	It("renders once the Cluster exists", func() {
		Expect(s.Delete(ctx(), cluster())).To(Succeed())
		Expect(s.reconcile("infra")).To(And(
			haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.ClusterNotFoundReason),
			haveCondition(poolv1.UpdatedCondition, no, poolv1.NothingRenderedReason),
			haveCondition(poolv1.UpdatingCondition, no, poolv1.NothingRenderedReason)))
		Expect(s.Create(ctx(), cluster())).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
	})

	It("renders none of two pools with one role, whichever is older, reports that on both, and keeps what they hand out", func() {
		before := s.reconcile("infra").Status.Configuration
		Expect(s.Create(ctx(), newPool("infra-2", "infra", 0))).To(Succeed())
		for _, name := range []string{"infra", "infra-2"} {
			Expect(s.reconcile(name)).To(haveCondition(poolv1.RenderDegradedCondition, yes, poolv1.DuplicateRoleReason, "infra and infra-2", "delete all but one"))
		}
		Expect(s.pool("infra").Status.Configuration).To(Equal(before))
		Expect(s.pool("infra-2").Status.Configuration).To(BeZero())

		Expect(s.Delete(ctx(), s.pool("infra"))).To(Succeed())
		Expect(s.reconcile("infra-2")).To(haveCondition(poolv1.RenderDegradedCondition, no, poolv1.RenderedReason))
	})

	It("sets the identity of the Cluster on the pool, which stays when the Cluster is moved and changes when it is created again", func() {
		identity := func() string { return s.reconcile("infra").Annotations[poolv1.ClusterIdentityAnnotation] }
		first := string(cluster().UID)
		Expect(first).NotTo(BeEmpty())
		Expect(identity()).To(Equal(first))

		another := func(uid types.UID, owner types.UID) {
			c := cluster()
			Expect(s.Delete(ctx(), c.DeepCopy())).To(Succeed())
			c.UID = uid
			Expect(s.Create(ctx(), c)).To(Succeed())
			p := s.pool("infra")
			p.OwnerReferences[0].UID = owner
			Expect(s.Update(ctx(), p)).To(Succeed())
		}
		another("after-the-move", "after-the-move") // clusterctl updates owner references to the new object
		Expect(identity()).To(Equal(first))
		another("created-again", "after-the-move")
		Expect(identity()).To(Equal("created-again"))
	})

	It("counts a Machine that booted with the same content in another pool as updated", func() {
		worker := s.reconcile("worker").Status.Configuration.Name
		plain := newPool("plain", "plain", time.Minute)
		Expect(s.Create(ctx(), plain)).To(Succeed())
		Expect(s.Create(ctx(), machine("m1", "plain", worker, true))).To(Succeed())
		p := s.reconcile("plain")
		Expect(p.Status.Configuration.Name).NotTo(Equal(worker))
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))
		Expect(p.Status.ReadyHostCount).To(HaveValue(BeEquivalentTo(1)))
	})

	It("does nothing for a pool that does not exist", func() {
		_, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "gone"}})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		Expect(apierrors.IsNotFound(err)).To(BeFalse())
		Expect(s.writes).To(BeZero())
	})
})
