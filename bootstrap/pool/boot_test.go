package pool_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("ForBoot", func() {
	const edgeLabel = poolv1.NodeRoleLabelPrefix + "edge"
	identified := func(p poolv1.MachineConfigPool) poolv1.MachineConfigPool {
		p.Annotations = map[string]string{poolv1.ClusterIdentityAnnotation: "uid-1"}
		return p
	}
	odd := selecting(newPool("odd"), map[string]string{"odd": "yes"}, requirement("odd", metav1.LabelSelectorOpNotIn, "yes"))
	near := selecting(newPool("near"), nil, requirement("near", metav1.LabelSelectorOpIn, "a", "b"))
	pools := []poolv1.MachineConfigPool{identified(newPool("worker")), identified(newPool("infra")), identified(newPool("edge")), odd, near}

	type change = func(*pool.Boot)
	labels := func(labels ...string) change {
		return func(b *pool.Boot) {
			for _, label := range labels {
				metav1.SetMetaDataLabel(&b.Machine.ObjectMeta, label, "")
			}
		}
	}
	spec := func(role string) change { return func(b *pool.Boot) { b.Config.Spec.PoolRole = role } }
	record := func(role string) change { return func(b *pool.Boot) { b.Config.Status.PoolRole = role } }
	node := func(b *pool.Boot) { b.Config.Status.NodeRef = bootstrapv1.NodeReference{Name: "m1", UID: "1"} }
	inline := func(b *pool.Boot) { b.Config.Spec.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline }
	secretOnRecord := func(b *pool.Boot) { b.Config.Status.DataSecretName = "m1" }
	secret := func(annotations map[string]string) change {
		return func(b *pool.Boot) {
			b.DataSecret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}
		}
	}
	keeps := func(value string) change {
		return func(b *pool.Boot) {
			b.Config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost
			b.Host = &metav1.ObjectMeta{Name: "rack1-u12", Annotations: map[string]string{poolv1.HostRetainedPoolAnnotation: value}}
		}
	}
	without := func(roles ...string) change {
		return func(b *pool.Boot) {
			b.Pools = slices.DeleteFunc(b.Pools, func(p poolv1.MachineConfigPool) bool { return slices.Contains(roles, p.Spec.PoolRole) })
		}
	}
	twice := func(role string) change {
		return func(b *pool.Boot) {
			again := newPool(role)
			again.Name = role + "-again"
			b.Pools = append(b.Pools, again)
		}
	}
	asked := func(changes ...change) pool.Boot {
		b := pool.Boot{Config: &bootstrapv1.PoolbootConfig{}, Machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}}, Pools: slices.Clone(pools)}
		for _, c := range changes {
			c(&b)
		}
		return b
	}

	DescribeTable("returns the pool and the reason",
		func(role, why string, changes ...change) {
			b := asked(changes...)
			assigned, err := pool.ForBoot(b)
			Expect(err).NotTo(HaveOccurred())
			Expect(assigned.Role).To(Equal(role))
			Expect(string(assigned.Reason)).To(Equal(why))
			Expect(assigned.Message(b)).To(ContainSubstring(role))
		},
		Entry("spec.poolRole", "infra", bootstrapv1.PoolSpecifiedInConfigReason, spec("infra")),
		Entry("spec.poolRole before the Machine's labels", "worker", bootstrapv1.PoolSpecifiedInConfigReason, spec("worker"), labels(infraLabel)),
		Entry("the pool of the Machine's labels", "infra", bootstrapv1.PoolFromMachineLabelsReason, labels(infraLabel)),
		Entry("the custom pool of labels that also select worker", "infra", bootstrapv1.PoolFromMachineLabelsReason, labels(infraLabel, workerLabel)),
		Entry("worker by its label", "worker", bootstrapv1.PoolFromMachineLabelsReason, labels(workerLabel)),
		Entry("worker without spec.poolRole and role labels", "worker", bootstrapv1.PoolDefaultedToWorkerReason),
		Entry("the Machine's labels, not the config's own", "worker", bootstrapv1.PoolDefaultedToWorkerReason,
			func(b *pool.Boot) { b.Config.Labels = map[string]string{infraLabel: ""} }),
		Entry("a host without a Machine by its spec.poolRole", "infra", bootstrapv1.PoolSpecifiedInConfigReason, spec("infra"), func(b *pool.Boot) { b.Machine = nil }),

		Entry("the pool retained on the host, before spec.poolRole", "edge", bootstrapv1.PoolRetainedByHostReason, keeps("lab/edge/uid-1"), spec("infra")),
		Entry("the pool retained on the host, before the Machine's labels", "edge", bootstrapv1.PoolRetainedByHostReason, keeps("lab/edge/uid-1"), labels(infraLabel)),
		Entry("the pool retained on the host, also worker", "worker", bootstrapv1.PoolRetainedByHostReason, keeps("lab/worker/uid-1"), spec("infra")),
		Entry("not a retained pool that does not exist", "infra", bootstrapv1.PoolSpecifiedInConfigReason, keeps("lab/gone/uid-1"), spec("infra")),
		Entry("not a pool retained for another Cluster", "infra", bootstrapv1.PoolSpecifiedInConfigReason, keeps("other/edge/uid-1"), spec("infra")),
		Entry("not a pool retained for an earlier Cluster with the same name", "infra", bootstrapv1.PoolSpecifiedInConfigReason, keeps("lab/edge/uid-0"), spec("infra")),
		Entry("not a retained pool without the Cluster's identity", "infra", bootstrapv1.PoolSpecifiedInConfigReason, keeps("lab/edge"), spec("infra")),
		Entry("not the retained pool, when poolRetention is not Host", "infra", bootstrapv1.PoolSpecifiedInConfigReason, keeps("lab/edge/uid-1"), spec("infra"),
			func(b *pool.Boot) { b.Config.Spec.PoolRetention = bootstrapv1.PoolRetentionMachine }),

		Entry("the labels again, while a record fixes nothing yet", "infra", bootstrapv1.PoolFromMachineLabelsReason, record("edge"), labels(infraLabel)),
		Entry("the labels again, when only a pointer is in the data Secret", "infra", bootstrapv1.PoolFromMachineLabelsReason, record("edge"), labels(infraLabel), secretOnRecord),
		Entry("worker again, while the pool on record exists", "worker", bootstrapv1.PoolDefaultedToWorkerReason, record("edge")),
		Entry("the recorded pool once the Node was pre-registered", "edge", bootstrapv1.PoolRecordedReason, record("edge"), node, labels(infraLabel)),
		Entry("the recorded pool with its reason, while the decision is the same", "edge", bootstrapv1.PoolFromMachineLabelsReason, record("edge"), node, labels(edgeLabel)),
		Entry("the recorded pool also when no pool can be decided", "edge", bootstrapv1.PoolRecordedReason, record("edge"), node, labels(infraLabel, edgeLabel)),
		Entry("the recorded pool also when it does not exist", "edge", bootstrapv1.PoolRecordedReason, record("edge"), node, labels(edgeLabel), without("edge")),
		Entry("the recorded pool of a Machine with poolRetention Host", "edge", bootstrapv1.PoolRecordedReason, record("edge"), node, labels(edgeLabel),
			func(b *pool.Boot) { b.Config.Spec.PoolRetention = bootstrapv1.PoolRetentionHost }),

		Entry("the pool of an inline data Secret, regardless of the labels", "edge", bootstrapv1.PoolRecordedReason, inline, record("edge"), secretOnRecord, labels(infraLabel)),
		Entry("the pool of an inline data Secret when it does not exist", "edge", bootstrapv1.PoolRecordedReason, inline, record("edge"), secretOnRecord, without("edge")),
		Entry("the pool of an inline data Secret, before it is recorded", "edge", bootstrapv1.PoolRecordedReason, inline,
			secret(map[string]string{bootstrapv1.DataSecretPoolAnnotation: "edge"}), labels(infraLabel)),
		Entry("the pool of an inline data Secret, before the recorded pool", "edge", bootstrapv1.PoolRecordedReason, inline, record("infra"),
			secret(map[string]string{bootstrapv1.DataSecretPoolAnnotation: "edge"}), labels(infraLabel)),
		Entry("the pool of the rendered config in an inline data Secret", "edge", bootstrapv1.PoolRecordedReason, inline,
			secret(map[string]string{bootstrapv1.OverlayConfigurationAnnotation: "rendered-edge-0123456789abcdef0123456789abcdef"}), labels(infraLabel)),
		Entry("the pool of the labels while the inline data Secret does not exist", "infra", bootstrapv1.PoolFromMachineLabelsReason, inline, record("edge"), labels(infraLabel)),

		Entry("a custom pool, regardless of other role labels", "infra", bootstrapv1.PoolFromMachineLabelsReason, labels(infraLabel, poolv1.NodeRoleLabelPrefix+"storage")),
		Entry("worker by spec.poolRole, regardless of role labels", "worker", bootstrapv1.PoolSpecifiedInConfigReason, spec("worker"), labels(edgeLabel), without("edge")),
		Entry("worker by a role label in the worker pool's selector", "worker", bootstrapv1.PoolFromMachineLabelsReason, labels(poolv1.NodeRoleLabelPrefix+"compute"), func(b *pool.Boot) {
			b.Pools[0] = selecting(b.Pools[0], map[string]string{poolv1.NodeRoleLabelPrefix + "compute": ""})
		}),
		Entry("the pool of the labels when the recorded pool does not exist", "infra", bootstrapv1.PoolFromMachineLabelsReason, record("edge"), labels(infraLabel), without("edge")),
		Entry("the pool of spec.poolRole when the recorded pool does not exist", "worker", bootstrapv1.PoolSpecifiedInConfigReason, record("edge"), spec("worker"), without("edge")),
	)

	DescribeTable("refuses",
		func(expected error, kept string, word string, changes ...change) {
			assigned, err := pool.ForBoot(asked(changes...))
			Expect(err).To(BeAssignableToTypeOf(expected))
			Expect(err).To(MatchError(ContainSubstring(word)))
			Expect(assigned.Role).To(Equal(kept), "what stays on record")
		},
		Entry("an unknown pool", &pool.NotFoundError{}, "", "nowhere", spec("nowhere")),
		Entry("a cluster without a worker pool", &pool.NotFoundError{}, "", "worker", without("worker")),
		Entry("two pools of the role", &pool.DuplicateError{}, "", "infra and infra-again", spec("infra"), twice("infra")),
		Entry("two pools of the role that labels name", &pool.DuplicateError{}, "", "infra and infra-again", labels(infraLabel), twice("infra")),
		Entry("two pools of the role that is retained on the host", &pool.DuplicateError{}, "", "edge and edge-again", keeps("lab/edge/uid-1"), spec("infra"), twice("edge")),
		Entry("labels of two pools", &pool.ConflictError{}, "", "edge and infra", labels(infraLabel, edgeLabel)),
		Entry("a pool that is not registrable, by spec.poolRole", &pool.NotRegistrableError{}, "", "odd", spec("odd")),
		Entry("a pool that is not registrable, by labels", &pool.NotRegistrableError{}, "", "near", func(b *pool.Boot) { b.Machine.Labels = map[string]string{"near": "a"} }),
		Entry("a control plane", &pool.ControlPlaneError{}, "", "control plane", labels(poolv1.NodeRoleLabelPrefix+"master", infraLabel)),
		Entry("a role label that no pool selects", &pool.UnselectedError{}, "", "selects the label "+poolv1.NodeRoleLabelPrefix+"gpu= ", labels(poolv1.NodeRoleLabelPrefix+"gpu")),
		Entry("a role label that no pool selects, together with that of worker", &pool.UnselectedError{}, "", "spec.poolRole: worker", labels(poolv1.NodeRoleLabelPrefix+"gpu", workerLabel)),
		Entry("a role label with a value that its pool does not select", &pool.UnselectedError{}, "", infraLabel+"=true", func(b *pool.Boot) {
			b.Machine.Labels = map[string]string{infraLabel: "true"}
		}),
		Entry("a role label whose pool does not exist, and keeps the recorded role", &pool.UnselectedError{}, "edge", edgeLabel, record("edge"), labels(edgeLabel), without("edge")),
		Entry("to boot as worker when the recorded custom pool does not exist", &pool.NotFoundError{}, "near", "spec.poolRole", record("near"),
			func(b *pool.Boot) { b.Machine.Labels = map[string]string{"near": "a"} }, without("near")),
		Entry("labels of two pools, other than the recorded one", &pool.ConflictError{}, "", "edge and infra", record("edge"), labels(infraLabel, edgeLabel)),
	)

	DescribeTable("names the remedy for a host whose pool does not exist",
		func(remedy string, changes ...change) {
			b := asked(changes...)
			assigned, err := pool.ForBoot(b)
			if err == nil { // the pool is recorded
				_, err = b.Pool(assigned.Role)
			}
			Expect(err).To(MatchError(And(ContainSubstring("no MachineConfigPool of role"), HaveSuffix(remedy))))
		},
		Entry("a Machine with spec.poolRole", "create it, or correct spec.poolRole of the PoolbootConfig and of its template", spec("nowhere")),
		Entry("a Machine of the worker pool", "create it", without("worker")),
		Entry("a Machine with an inline data Secret", "delete the Machine: a new Machine replaces it. The data Secret was created for this pool and never changes; the replacement boots into the pool of its labels",
			inline, record("edge"), secretOnRecord, without("edge")),
		Entry("a BareMetalHost", "or name another role in the annotation poolboot.io/pool-role of BareMetalHost rack1-u12", spec("nowhere"), func(b *pool.Boot) {
			b.Machine, b.Config.Spec.Host = nil, bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "rack1-u12", BareMetalHostName: "rack1-u12"}
		}),
		Entry("a host that enrolled", "and its Node, and enroll the host with a token for another pool", spec("nowhere"), func(b *pool.Boot) {
			b.Machine, b.Config.Spec.Host = nil, bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		}),
	)

	It("names the pool that a Machine with an inline data Secret belongs to now, and the remedy", func() {
		b := asked(inline, record("edge"), secretOnRecord, labels(infraLabel))
		assigned, err := pool.ForBoot(b)
		Expect(err).NotTo(HaveOccurred())
		Expect(assigned.Message(b)).To(And(ContainSubstring(`pool "edge" is recorded`), ContainSubstring(`pool "infra"`), ContainSubstring("delete the Machine")))
	})

	It("ignores a pool that is being deleted once its replacement exists", func() {
		leaving := newPool("infra")
		leaving.Name, leaving.DeletionTimestamp = "infra-old", ptr.To(metav1.Now())
		Expect(pool.OfRole([]poolv1.MachineConfigPool{leaving}, "infra")).To(HaveField("Name", "infra-old"))
		Expect(pool.OfRole([]poolv1.MachineConfigPool{leaving, newPool("infra")}, "infra")).To(HaveField("Name", "infra"))
	})
})

var _ = DescribeTable("The pool for which a rendered config was created", func(rendered, name string) {
	pools := []poolv1.MachineConfigPool{newPool("infra"), newPool("infra-a")}
	p := pool.OfRendered(pools, rendered)
	if name == "" {
		Expect(p).To(BeNil())
		return
	}
	Expect(p).To(HaveField("Name", name))
},
	Entry("by its name", "rendered-infra-0123456789abcdef0123456789abcdef", "infra"),
	Entry("by the longer name", "rendered-infra-a-0123456789abcdef0123456789abcdef", "infra-a"),
	Entry("none that does not exist", "rendered-edge-0123456789abcdef0123456789abcdef", ""),
	Entry("none of a name that is not a rendered config's", "infra", ""),
	Entry("none of an empty name", "", ""),
)

var _ = Describe("A Cluster's identity", func() {
	owned := func(role, by, id string) poolv1.MachineConfigPool {
		p := newPool(role)
		if by != "" {
			p.OwnerReferences = []metav1.OwnerReference{{Kind: "Cluster", Name: "lab", UID: types.UID(by)}}
		}
		if id != "" {
			p.Annotations = map[string]string{poolv1.ClusterIdentityAnnotation: id}
		}
		return p
	}
	DescribeTable("is carried by its pools",
		func(p poolv1.MachineConfigPool, others []poolv1.MachineConfigPool, want string) {
			Expect(pool.ClusterIdentity(&p, "now", append(others, p))).To(Equal(want))
		},
		Entry("from the first pool on", owned("worker", "", ""), nil, "now"),
		Entry("and does not change", owned("worker", "now", "first"), nil, "first"),
		Entry("also when clusterctl move has changed the Cluster's UID", owned("worker", "now", "first"), []poolv1.MachineConfigPool{owned("infra", "now", "first")}, "first"),
		Entry("and copied to pools that are created later", owned("infra", "", ""), []poolv1.MachineConfigPool{owned("worker", "now", "first")}, "first"),
		Entry("not copied from a pool of an earlier Cluster with the same name", owned("infra", "", ""), []poolv1.MachineConfigPool{owned("worker", "before", "old")}, "now"),
		Entry("not taken from a pool of an earlier Cluster with the same name", owned("infra", "before", "old"), nil, "now"),
		Entry("not taken from a copy of another Cluster's pool", owned("infra", "", "copied"), []poolv1.MachineConfigPool{owned("worker", "now", "first")}, "first"),
	)
	It("is known once all pools that carry one agree", func() {
		a, b, c := owned("worker", "now", "first"), owned("infra", "now", "first"), owned("edge", "now", "")
		Expect(pool.Retention("infra", []poolv1.MachineConfigPool{a, b, c})).To(Equal("lab/infra/first"))
		Expect(pool.Retention("infra", []poolv1.MachineConfigPool{c})).To(BeEmpty())
		Expect(pool.Retention("infra", []poolv1.MachineConfigPool{a, owned("infra", "now", "second")})).To(BeEmpty())
	})
})
