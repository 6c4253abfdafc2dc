package pool_test

import (
	"errors"
	"math/rand"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		Entry("of no pool: unmanaged", map[string]string{"a": "b"}, pool.Decision{}),
		Entry("worker", map[string]string{workerLabel: ""}, pool.Decision{Role: "worker"}),
		Entry("custom", map[string]string{infraLabel: ""}, pool.Decision{Role: "infra"}),
		Entry("custom wins over worker", map[string]string{infraLabel: "", workerLabel: ""}, pool.Decision{Role: "infra"}),
		Entry("by any kind of selector", map[string]string{workerLabel: "", "example.com/gpu": "h100"}, pool.Decision{Role: "gpu"}),
		Entry("a requirement that is not met", map[string]string{workerLabel: "", "example.com/gpu": "h100", "example.com/broken": ""},
			pool.Decision{Role: "worker"}),
		Entry("another value than the selector's", map[string]string{infraLabel: "yes"}, pool.Decision{}),
		Entry("control plane", map[string]string{poolv1.NodeRoleLabelPrefix + "control-plane": ""}, pool.Decision{ControlPlane: true}),
		Entry("control plane that is a worker too", map[string]string{poolv1.NodeRoleLabelPrefix + "master": "", workerLabel: ""},
			pool.Decision{ControlPlane: true}),
		Entry("control plane with labels of custom pools", map[string]string{
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

	It("refuses a malformed selector, even if another pool matches", func() {
		broken := selecting(newPool("broken"), nil, requirement("a", "Near", "b"))
		_, err := pool.Decide(map[string]string{infraLabel: ""}, append(slices.Clone(pools), broken))
		Expect(err).To(BeAssignableToTypeOf(&pool.SelectorError{}))
		Expect(err).To(MatchError(ContainSubstring(`MachineConfigPool "broken": spec.nodeSelector`)))
	})

	It("agrees with a second implementation, regardless of the order of the pools", func() {
		random := rand.New(rand.NewSource(GinkgoRandomSeed()))
		for range 5000 {
			expectAgreement(GinkgoTB(), random)
		}
	})
})

// FuzzDecide checks that both implementations agree on any labels and pools.
func FuzzDecide(f *testing.F) {
	f.Add(int64(1))
	f.Add(int64(20261120))
	f.Fuzz(func(t *testing.T, seed int64) { expectAgreement(t, rand.New(rand.NewSource(seed))) })
}

// expectAgreement compares Decide with decideNaively for random labels and pools.
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
		p := newPool([]string{"worker", "infra", "storage", "gpu", "control-plane"}[random.Intn(5)])
		if p.Spec.PoolRole != "control-plane" && random.Intn(3) > 0 {
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

// decideNaively implements the decision a second time, from its description and without Kubernetes' selectors.
func decideNaively(labels map[string]string, pools []poolv1.MachineConfigPool) (role string, controlPlane bool, custom []string) {
	if labels["kubernetes.io/os"] == "windows" {
		return "", false, nil
	}
	roles := map[string]bool{}
	ofControlPlane := ""
	for _, p := range pools {
		if p.Spec.PoolRole == "control-plane" {
			ofControlPlane = "control-plane"
		}
		if selectsNaively(p, labels) {
			roles[p.Spec.PoolRole] = true
		}
	}
	for _, role := range []string{"gpu", "infra", "storage"} {
		if roles[role] {
			custom = append(custom, role)
		}
	}
	for key := range labels {
		if key == "node-role.kubernetes.io/control-plane" || key == "node-role.kubernetes.io/master" {
			return ofControlPlane, true, custom
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
		value, has := labels["node-role.kubernetes.io/"+p.Spec.PoolRole]
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
