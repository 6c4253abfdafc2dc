package node

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

var _ = Describe("The host of a Node", func() {
	var ctx context.Context
	BeforeEach(func(c SpecContext) { ctx = c })

	const metal3 = "infrastructure.cluster.x-k8s.io"
	retained := func(config *bootstrapv1.PoolbootConfig) { config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost }
	behind := func(f *facts) {
		f.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: metal3, Kind: "Metal3Machine", Name: "m3"}
	}
	at := client.ObjectKey{Namespace: namespace, Name: "host-3"}
	// withHost returns a site with the host of the Machine, whose consumerRef names the consumer.
	withHost := func(consumer string, changes ...any) *site {
		s := newSite(append(changes, behind)...)
		metal3Machine := &unstructured.Unstructured{}
		metal3Machine.SetAPIVersion(metal3 + "/v1beta2")
		metal3Machine.SetKind("Metal3Machine")
		metal3Machine.SetNamespace(namespace)
		metal3Machine.SetName("m3")
		metal3Machine.SetAnnotations(map[string]string{host.Annotation: at.String()})
		for _, object := range []client.Object{
			&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
				Name: "metal3machines." + metal3, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}},
			metal3Machine,
			&bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: at.Namespace, Name: at.Name, Annotations: map[string]string{"example.com/a": "b"}},
				Spec: bmov1alpha1.BareMetalHostSpec{ConsumerRef: &corev1.ObjectReference{
					APIVersion: metal3 + "/v1beta2", Kind: "Metal3Machine", Namespace: namespace, Name: consumer}}},
		} {
			Expect(s.Create(ctx, object)).To(Succeed())
		}
		return s
	}
	kept := func(s *site) map[string]string {
		s.settle(ctx)
		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(s.Get(ctx, at, bmh)).To(Succeed())
		return bmh.Annotations
	}

	DescribeTable("sets the Node's label to its new UID after a move", func(changes ...any) {
		s := withHost("m3", changes...)
		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(s.Get(ctx, at, bmh)).To(Succeed())
		bmh.UID = "after the move"
		Expect(s.Update(ctx, bmh)).To(Succeed())
		s.settle(ctx)
		node := &corev1.Node{}
		Expect(s.workload.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "after the move"))
	},
		Entry("of a Node with the old one", func(node *corev1.Node) { node.Labels[poolv1.NodeMetal3UUIDLabel] = "before the move" }),
		Entry("of a Node that registered again, for which no host is recorded any more", revoked, bare, func(config *bootstrapv1.PoolbootConfig) {
			config.Status.HostRef = bootstrapv1.HostReference{}
		}),
	)

	It("is recorded again after a move or a restore, which drop the record, also if its Node is missing", func() {
		lost := func(config *bootstrapv1.PoolbootConfig) { config.Status.HostRef = bootstrapv1.HostReference{} }
		moved := func(s *site) bootstrapv1.HostReference {
			bmh := &bmov1alpha1.BareMetalHost{}
			Expect(s.Get(ctx, at, bmh)).To(Succeed())
			bmh.UID = "after the move"
			Expect(s.Update(ctx, bmh)).To(Succeed())
			s.Settle(func() (ctrl.Result, error) { return s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key}) })
			config := &bootstrapv1.PoolbootConfig{}
			Expect(s.Get(ctx, key, config)).To(Succeed())
			return config.Status.HostRef
		}
		recorded := bootstrapv1.HostReference{Name: at.Name, Namespace: at.Namespace, UID: "after the move"}
		Expect(moved(withHost("m3", revoked, ready, lost))).To(Equal(recorded))
		Expect(moved(withHost("m3", revoked, ready))).To(Equal(recorded), "the UID is the current one")
		Expect(moved(withHost("another", revoked, ready, lost))).To(BeZero(), "another Machine has the host")
		Expect(moved(withHost("m3", lost))).To(BeZero(), "the phases of the boot record the host of a boot")

		missing := withHost("m3", revoked, lost)
		Expect(missing.workload.Delete(ctx, newNode())).To(Succeed())
		Expect(moved(missing)).To(Equal(recorded))
	})

	It("keeps the pool of the Node, also after the Node moves, whichever write fails", func() {
		for _, move := range []struct {
			labels map[string]string
			pool   string
		}{{role("infra"), "c1/infra/first-uid"}, {role("edge"), "c1/edge/first-uid"}} {
			for _, late := range []bool{false, true} {
				for failing := 1; ; failing++ {
					s := withHost("m3", retained, ready, labeled(move.labels))
					s.CrashAt, s.Late = failing, late
					Expect(kept(s)).To(Equal(map[string]string{"example.com/a": "b", poolv1.HostRetainedPoolAnnotation: move.pool}), "write %d", failing)
					if s.Writes < failing {
						break
					}
				}
			}
		}
	})

	DescribeTable("keeps nothing",
		func(consumer string, changes ...any) {
			Expect(kept(withHost(consumer, changes...))).To(Equal(map[string]string{"example.com/a": "b"}))
		},
		Entry("if the Machine does not request it", "m3", ready),
		Entry("before the boot is complete", "m3", retained),
		Entry("while labels decide no pool", "m3", retained, revoked, ready, labeled(role("infra", "edge"))),
		Entry("for a Machine that it no longer serves", "another", retained, ready),
		Entry("for a Machine that is being deleted", "m3", retained, ready, func(f *facts) {
			f.machine.DeletionTimestamp, f.machine.Finalizers = &metav1.Time{}, []string{clusterv1.MachineFinalizer}
			f.machine.DeletionTimestamp.Time = f.machine.DeletionTimestamp.AddDate(2026, 1, 1)
		}),
	)
})
