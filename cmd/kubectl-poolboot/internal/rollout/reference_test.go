package rollout

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

// answer is what the command prints for one pool.
type answer struct {
	MaxUnavailable int      `json:"maxUnavailable"`
	Unavailable    []string `json:"unavailable"`
	Capacity       int      `json:"capacity"`
	Next           []string `json:"next"`
}

// reference answers by the rules of OpenShift's operator, written down one after the other and without Poolboot's code.
func reference(nodes []corev1.Node, target string, percent int, paused bool) answer {
	a := answer{MaxUnavailable: len(nodes) * percent / 100, Unavailable: []string{}, Next: []string{}}
	if a.MaxUnavailable == 0 {
		a.MaxUnavailable = 1
	}
	var candidates []corev1.Node
	failing := 0
	for _, n := range nodes {
		current, desired, state := n.Annotations[openShiftCurrent], n.Annotations[openShiftDesired], n.Annotations[openShiftState]
		ready := !n.Spec.Unschedulable
		for _, c := range n.Status.Conditions {
			if (c.Type == "Ready") != (c.Status == "True") {
				ready = false
			}
		}
		failed := current != desired && (state == "Degraded" || state == "Unreconcilable")
		done := state == "Done" && current == desired && desired != ""
		if !ready || !done && !failed {
			a.Unavailable = append(a.Unavailable, n.Name)
		}
		if desired == target && failed {
			failing++
		}
		if desired != target && ready {
			candidates = append(candidates, n)
		}
	}
	a.Capacity = a.MaxUnavailable - len(a.Unavailable) - failing
	if a.Capacity < 0 {
		a.Capacity = 0
	}
	if paused {
		return a
	}
	if len(candidates) > a.Capacity {
		rank := func(n corev1.Node) string {
			return cmp.Or(n.Labels["topology.kubernetes.io/zone"], "~") + n.CreationTimestamp.UTC().Format(time.RFC3339)
		}
		slices.SortStableFunc(candidates, func(a, b corev1.Node) int { return strings.Compare(rank(a), rank(b)) })
		candidates = candidates[:a.Capacity]
	}
	for _, n := range candidates {
		a.Next = append(a.Next, n.Name)
	}
	return a
}

// randomNodes returns the Nodes of a pool in any state. No two have the same age.
func randomNodes(r *rand.Rand) []corev1.Node {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	nodes := make([]corev1.Node, r.IntN(12))
	ages := r.Perm(len(nodes))
	for i := range nodes {
		n := &nodes[i]
		n.APIVersion, n.Kind = "v1", "Node"
		n.Name = fmt.Sprintf("node-%d", i)
		n.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, ages[i], 0, 0, time.UTC))
		n.Labels = map[string]string{"node-role.kubernetes.io/infra": "", "node-role.kubernetes.io/worker": ""}
		if zone := pick("", "a", "b"); zone != "" {
			n.Labels["topology.kubernetes.io/zone"] = zone
		}
		current := pick("old", "new", "bad")
		n.Annotations = map[string]string{openShiftCurrent: current, openShiftDesired: current, openShiftState: "Done"}
		switch r.IntN(6) {
		case 0:
			n.Annotations[openShiftDesired], n.Annotations[openShiftState] = pick("old", "new", "bad"), pick("Working", "Degraded", "Unreconcilable", "Rebooting", "Done")
		case 1:
			if r.IntN(3) == 0 {
				n.Annotations = nil
			}
		case 2:
			delete(n.Annotations, pick(openShiftCurrent, openShiftDesired, openShiftState))
		}
		n.Spec.Unschedulable = r.IntN(10) == 0
		if r.IntN(3) > 0 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Ready", Status: corev1.ConditionStatus(pick("True", "True", "True", "False", "Unknown"))})
		}
		if r.IntN(4) == 0 {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeConditionType(pick("DiskPressure", "NetworkUnavailable")),
				Status: corev1.ConditionStatus(pick("False", "False", "True"))})
		}
	}
	return nodes
}

var _ = It("plan answers for Nodes with OpenShift's annotations as the rules of OpenShift's operator do, in any state of a pool", func() {
	seed := uint64(GinkgoRandomSeed())
	r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
	for range 2000 {
		nodes, percent, paused := randomNodes(r), r.IntN(101), r.IntN(8) == 0
		var documents []string
		for _, n := range nodes {
			document, err := json.Marshal(n)
			Expect(err).NotTo(HaveOccurred())
			documents = append(documents, string(document))
		}
		pools := clitest.WriteFile("pools.yaml", clitest.OpenShiftInfra+fmt.Sprintf("  maxUnavailable: %d%%\n  paused: %t\n  configuration: {name: new}\n", percent, paused))
		result := runRollout(strings.Join(documents, "\n---\n"), "plan", "--pools", pools, "--nodes", "-", "-o", "json")
		Expect(result.Code).To(BeZero())
		answers := map[string]answer{}
		Expect(json.Unmarshal([]byte(result.Out), &answers)).To(Succeed())
		Expect(answers).To(Equal(map[string]answer{"infra": reference(nodes, "new", percent, paused)}), "seed %d: %d%% of %s", seed, percent, documents)
	}
})
