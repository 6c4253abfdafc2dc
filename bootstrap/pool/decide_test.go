package pool_test

import (
	"errors"
	"math/rand"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Decide", func() {
	pools := []poolv1.MachineConfigPool{
		newPool("worker"), newPool("infra"), newPool("storage"),
		selecting(newPool("gpu"), nil, requirement("example.com/gpu", metav1.LabelSelectorOpIn, "a100", "h100"),
			requirement("example.com/broken", metav1.LabelSelectorOpDoesNotExist)),
		selecting(newPool("empty"), nil), newPool("master"),
	}

	DescribeTable("puts labels in one pool",
		func(labels map[string]string, decision pool.Decision) {
			Expect(pool.Decide(labels, pools)).To(Equal(decision))
		},
		Entry("none: unmanaged", nil, pool.Decision{}),
		Entry("of nobody: unmanaged", map[string]string{"a": "b"}, pool.Decision{}),
		Entry("worker", map[string]string{workerLabel: ""}, pool.Decision{Role: "worker"}),
		Entry("custom", map[string]string{infraLabel: ""}, pool.Decision{Role: "infra"}),
		Entry("custom wins over worker", map[string]string{infraLabel: "", workerLabel: ""}, pool.Decision{Role: "infra"}),
		Entry("by any kind of selector", map[string]string{workerLabel: "", "example.com/gpu": "h100"}, pool.Decision{Role: "gpu"}),
		Entry("a requirement that does not hold", map[string]string{workerLabel: "", "example.com/gpu": "h100", "example.com/broken": ""},
			pool.Decision{Role: "worker"}),
		Entry("another value than the selector's", map[string]string{infraLabel: "yes"}, pool.Decision{}),
		Entry("control plane", map[string]string{poolv1.NodeRoleLabelPrefix + "control-plane": ""}, pool.Decision{ControlPlane: true}),
		Entry("control plane that is a worker too", map[string]string{poolv1.NodeRoleLabelPrefix + "master": "", workerLabel: ""},
			pool.Decision{ControlPlane: true}),
		Entry("control plane that asks for custom pools", map[string]string{
			poolv1.NodeRoleLabelPrefix + "master": "true", infraLabel: "", poolv1.NodeRoleLabelPrefix + "storage": ""},
			pool.Decision{ControlPlane: true, Unsupported: []string{"infra", "storage"}}),
		Entry("Windows: unmanaged", map[string]string{"kubernetes.io/os": "windows", infraLabel: ""}, pool.Decision{}),
		Entry("Linux", map[string]string{"kubernetes.io/os": "linux", infraLabel: ""}, pool.Decision{Role: "infra"}),
		Entry("the pool label alone decides nothing", map[string]string{poolv1.NodePoolLabel: "infra"}, pool.Decision{}),
	)

	It("refuses labels of two custom pools, and names them", func() {
		_, err := pool.Decide(map[string]string{poolv1.NodeRoleLabelPrefix + "storage": "", infraLabel: "", workerLabel: ""}, pools)
		Expect(err).To(Equal(&pool.ConflictError{Roles: []string{"infra", "storage"}}))
		Expect(err).To(MatchError(ContainSubstring("infra and storage")))
	})

	It("does not guess past a malformed selector", func() {
		broken := selecting(newPool("broken"), nil, requirement("a", "Near", "b"))
		_, err := pool.Decide(map[string]string{infraLabel: ""}, append(slices.Clone(pools), broken))
		Expect(err).To(BeAssignableToTypeOf(&pool.SelectorError{}))
		Expect(err).To(MatchError(ContainSubstring(`MachineConfigPool "broken": spec.nodeSelector`)))
	})

	It("says the same in whatever order the pools come, as a second implementation", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 5000 {
			expectAgreement(GinkgoTB(), random)
		}
	})
})

var _ = Describe("ForMachine", func() {
	pools := []poolv1.MachineConfigPool{
		newPool("worker"), newPool("infra"),
		selecting(newPool("near"), nil, requirement("site", metav1.LabelSelectorOpNotIn, "far"), requirement("near", metav1.LabelSelectorOpExists)),
	}

	DescribeTable("says the pool and the ground",
		func(spec string, labels map[string]string, role, why string) {
			decided, reason, err := pool.ForMachine(spec, labels, pools)
			Expect(err).NotTo(HaveOccurred())
			Expect(decided).To(Equal(role))
			Expect(string(reason)).To(Equal(why))
		},
		Entry("the config's", "infra", nil, "infra", bootstrapv1.PoolFromSpecReason),
		Entry("the config's before the labels'", "worker", map[string]string{infraLabel: ""}, "worker", bootstrapv1.PoolFromSpecReason),
		Entry("the labels'", "", map[string]string{infraLabel: ""}, "infra", bootstrapv1.PoolFromLabelsReason),
		Entry("worker without either", "", nil, "worker", bootstrapv1.PoolDefaultedReason),
	)

	DescribeTable("refuses",
		func(spec string, labels map[string]string, pools []poolv1.MachineConfigPool, expected error) {
			_, _, err := pool.ForMachine(spec, labels, pools)
			Expect(err).To(BeAssignableToTypeOf(expected))
			Expect(err.Error()).NotTo(BeEmpty())
		},
		Entry("an unknown pool", "nowhere", nil, pools, &pool.NotFoundError{}),
		Entry("a cluster without a worker pool", "", nil, nil, &pool.NotFoundError{}),
		Entry("two pools of the role", "infra", nil, append(slices.Clone(pools), newPool("infra")), &pool.DuplicateError{}),
		Entry("labels of two pools", "", map[string]string{infraLabel: "", "near": ""}, pools, &pool.ConflictError{}),
		Entry("a pool that can't be registered, by the config", "near", nil, pools, &pool.NotRegistrableError{}),
		Entry("a pool that can't be registered, by labels", "", map[string]string{"near": ""}, pools, &pool.NotRegistrableError{}),
		Entry("a control plane", "", map[string]string{poolv1.NodeRoleLabelPrefix + "master": "", infraLabel: ""}, pools, &pool.ControlPlaneError{}),
	)
})

var _ = Describe("ForMachineOnHost", func() {
	odd := selecting(newPool("odd"), nil, requirement("odd", metav1.LabelSelectorOpNotIn, "no"), requirement("odd", metav1.LabelSelectorOpExists))
	pools := []poolv1.MachineConfigPool{newPool("worker"), newPool("infra"), newPool("edge"), odd}

	DescribeTable("says the pool that the host keeps first",
		func(kept, spec string, labels map[string]string, role, why string) {
			decided, reason, err := pool.ForMachineOnHost(kept, spec, labels, pools)
			Expect(err).NotTo(HaveOccurred())
			Expect(decided).To(Equal(role))
			Expect(string(reason)).To(Equal(why))
		},
		Entry("before the config's", "edge", "infra", nil, "edge", bootstrapv1.PoolRetainedByHostReason),
		Entry("before the labels'", "edge", "", map[string]string{infraLabel: ""}, "edge", bootstrapv1.PoolRetainedByHostReason),
		Entry("also worker", "worker", "infra", nil, "worker", bootstrapv1.PoolRetainedByHostReason),
		Entry("not one that is gone", "gone", "infra", nil, "infra", bootstrapv1.PoolFromSpecReason),
		Entry("the Machine's when it keeps none", "", "", map[string]string{infraLabel: ""}, "infra", bootstrapv1.PoolFromLabelsReason),
	)

	It("refuses one that can't be booted into, instead of another one", func() {
		_, _, err := pool.ForMachineOnHost("odd", "infra", nil, pools)
		Expect(err).To(BeAssignableToTypeOf(&pool.NotRegistrableError{}))
		_, _, err = pool.ForMachineOnHost("infra", "edge", nil, append(slices.Clone(pools), newPool("infra")))
		Expect(err).To(BeAssignableToTypeOf(&pool.DuplicateError{}))
	})
})

// FuzzDecide: both implementations agree on any labels and pools.
func FuzzDecide(f *testing.F) {
	f.Add(int64(1))
	f.Add(int64(20261120))
	f.Fuzz(func(t *testing.T, seed int64) { expectAgreement(t, rand.New(rand.NewSource(seed))) })
}

// expectAgreement decides on random labels and pools by Decide and by decideNaively.
func expectAgreement(t testing.TB, random *rand.Rand) {
	t.Helper()
	keys := []string{"a", "b", poolv1.NodeRoleLabelPrefix + "control-plane", workerLabel, infraLabel, "kubernetes.io/os"}
	values := []string{"", "x", "windows"}
	labels := map[string]string{}
	for range random.Intn(5) {
		labels[keys[random.Intn(len(keys))]] = values[random.Intn(len(values))]
	}
	operators := []metav1.LabelSelectorOperator{metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn,
		metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist}
	var pools []poolv1.MachineConfigPool
	for range random.Intn(5) {
		p := newPool([]string{"worker", "infra", "storage", "gpu"}[random.Intn(4)])
		if random.Intn(3) > 0 {
			p = selecting(p, nil)
			for range random.Intn(3) {
				key, operator := keys[random.Intn(len(keys))], operators[random.Intn(4)]
				if operator == metav1.LabelSelectorOpIn || operator == metav1.LabelSelectorOpNotIn {
					p = selecting(p, nil, append(p.Spec.NodeSelector.MatchExpressions, requirement(key, operator, values[:1+random.Intn(3)]...))...)
				} else {
					p = selecting(p, nil, append(p.Spec.NodeSelector.MatchExpressions, requirement(key, operator))...)
				}
			}
		}
		pools = append(pools, p)
	}

	role, controlPlane, custom := decideNaively(labels, pools)
	random.Shuffle(len(pools), func(i, j int) { pools[i], pools[j] = pools[j], pools[i] })
	decision, err := pool.Decide(labels, pools)
	switch {
	case role == "conflict":
		var conflict *pool.ConflictError
		if !errors.As(err, &conflict) || !slices.Equal(conflict.Roles, custom) {
			t.Fatalf("labels %v, pools %+v: want a conflict of %v, have %v, %v", labels, pools, custom, decision, err)
		}
	case err != nil, decision.Role != role, decision.ControlPlane != controlPlane, controlPlane && !slices.Equal(decision.Unsupported, custom):
		t.Fatalf("labels %v, pools %+v: want %q, %v, %v, have %+v, %v", labels, pools, role, controlPlane, custom, decision, err)
	}
}

// decideNaively is the decision once more, from its description and without Kubernetes' selectors.
func decideNaively(labels map[string]string, pools []poolv1.MachineConfigPool) (role string, controlPlane bool, custom []string) {
	if labels["kubernetes.io/os"] == "windows" {
		return "", false, nil
	}
	roles := map[string]bool{}
	for _, p := range pools {
		if selectsNaively(p, labels) {
			roles[p.Spec.Role] = true
		}
	}
	for _, role := range []string{"gpu", "infra", "storage"} {
		if roles[role] {
			custom = append(custom, role)
		}
	}
	for key := range labels {
		if key == "node-role.kubernetes.io/control-plane" || key == "node-role.kubernetes.io/master" {
			return "", true, custom
		}
	}
	switch {
	case len(custom) > 1:
		return "conflict", false, custom
	case len(custom) == 1:
		return custom[0], false, custom
	case roles["worker"]:
		return "worker", false, nil
	}
	return "", false, nil
}

func selectsNaively(p poolv1.MachineConfigPool, labels map[string]string) bool {
	if p.Spec.NodeSelector == nil {
		value, has := labels["node-role.kubernetes.io/"+p.Spec.Role]
		return has && value == ""
	}
	for _, requirement := range p.Spec.NodeSelector.MatchExpressions {
		value, has := labels[requirement.Key]
		holds := map[metav1.LabelSelectorOperator]bool{
			metav1.LabelSelectorOpIn:           has && slices.Contains(requirement.Values, value),
			metav1.LabelSelectorOpNotIn:        !has || !slices.Contains(requirement.Values, value),
			metav1.LabelSelectorOpExists:       has,
			metav1.LabelSelectorOpDoesNotExist: !has,
		}
		if !holds[requirement.Operator] {
			return false
		}
	}
	return len(p.Spec.NodeSelector.MatchExpressions) > 0
}

var _ = Describe("Two pools", func() {
	by := func(labels map[string]string, expressions ...metav1.LabelSelectorRequirement) poolv1.MachineConfigPool {
		return poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: expressions}}}
	}
	is := func(key string, values ...string) metav1.LabelSelectorRequirement {
		if len(values) == 0 {
			return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists}
		}
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	DescribeTable("may share a Node",
		func(a, b poolv1.MachineConfigPool, may bool) {
			for _, pair := range [][2]poolv1.MachineConfigPool{{a, b}, {b, a}} {
				Expect(pool.MayShare(pair[0], pair[1])).To(Equal(may))
			}
		},
		Entry("with different labels", by(map[string]string{"a": "1"}), by(map[string]string{"b": "1"}), true),
		Entry("with the same label", by(map[string]string{"a": "1"}), by(map[string]string{"a": "1", "b": "2"}), true),
		Entry("not with two values of a label", by(map[string]string{"a": "1", "b": "1"}), by(map[string]string{"a": "2"}), false),
		Entry("not with two values, one in an expression", by(map[string]string{"a": "1"}), by(nil, is("a", "2")), false),
		Entry("with any value of a label", by(nil, is("a")), by(map[string]string{"a": "2"}), true),
		Entry("not with a selector that selects nothing", by(nil), by(map[string]string{"a": "2"}), false),
	)
	It("with a malformed selector are an error", func() {
		malformed := by(nil, metav1.LabelSelectorRequirement{Key: "a", Operator: "Like"})
		for _, pair := range [][2]poolv1.MachineConfigPool{{malformed, by(nil)}, {by(nil), malformed}} {
			_, err := pool.MayShare(pair[0], pair[1])
			Expect(err).To(BeAssignableToTypeOf(&pool.SelectorError{}))
		}
	})
})
