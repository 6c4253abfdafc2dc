package outlook

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

func TestOutlook(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Outlook of conditions")
}

var _ = Describe("The table of reasons", func() {
	It("has every reason constant of the API, and no other", func() {
		Expect(slices.Sorted(maps.Keys(table))).To(Equal(reasons()))
	})

	It("is the same in docs/conditions.md", func() {
		page, err := os.ReadFile(filepath.Join("..", "..", "docs", "conditions.md"))
		Expect(err).NotTo(HaveOccurred())
		documented := map[string]Outlook{}
		for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\w+)` \\|").FindAllStringSubmatch(string(page), -1) {
			documented[row[1]] = Outlook(row[2])
		}
		Expect(documented).To(Equal(table))
	})

	It("has the outlook Retries for an unknown reason", func() {
		Expect(Of("NeverHeardOf")).To(Equal(Retries))
	})
})

var _ = Describe("A PoolbootConfig", func() {
	newConfig := func(state bootstrapv1.TokenState, kind, reason string) *bootstrapv1.PoolbootConfig {
		config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{bootstrapv1.TokenStateAnnotation: string(state)}}}
		conditions.Set(config, metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "why"})
		return config
	}
	DescribeTable("needs a person", func(state bootstrapv1.TokenState, kind, reason string, waits bool) {
		found := FindNeedsPerson(newConfig(state, kind, reason))
		if !waits {
			Expect(found).To(BeNil())
			return
		}
		Expect(found).To(HaveValue(And(HaveField("Type", kind), HaveField("Message", "why"))))
	},
		Entry("whose label rules are invalid", bootstrapv1.TokenState(""), bootstrapv1.BootPreparedCondition, bootstrapv1.NodeLabelRuleInvalidReason, true),
		Entry("whose host lacks a fact", bootstrapv1.TokenState(""), bootstrapv1.BootPreparedCondition, bootstrapv1.HostFactMissingReason, true),
		Entry("whose data Secret was lost", bootstrapv1.TokenState(""), bootstrapv1.DataSecretAvailableCondition, bootstrapv1.DataSecretFailedReason, true),
		Entry("whose host has other user data", bootstrapv1.TokenState(""), bootstrapv1.UserDataSetCondition, bootstrapv1.UserDataTakenReason, true),
		Entry("whose token has expired", bootstrapv1.TokenStateExpired, bootstrapv1.TokenUsableCondition, bootstrapv1.TokenExpiredReason, true),
		Entry("whose Node is missing after the host joined", bootstrapv1.TokenStateRevoked, bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeMissingReason, true),
		Entry("but not one whose Node is missing before the host joined", bootstrapv1.TokenState(""), bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeMissingReason, false),
		Entry("but not one that waits for its kubelet", bootstrapv1.TokenState(""), bootstrapv1.NodeInPoolCondition, bootstrapv1.WaitingForKubeletReason, false),
		Entry("but not one whose Node is not Ready", bootstrapv1.TokenStateRevoked, bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeNotReadyReason, false),
		Entry("but not one whose workload cluster is unreachable", bootstrapv1.TokenState(""), bootstrapv1.BootPreparedCondition, bootstrapv1.WorkloadClusterUnreachableReason, false),
		Entry("but not one whose boot failed before the host joined", bootstrapv1.TokenStateRevoked, bootstrapv1.BootPreparedCondition, bootstrapv1.BootFailedReason, false),
	)
})

// reasons returns the values of the constants in the API whose names end with Reason.
func reasons() (found []string) {
	GinkgoHelper()
	for _, group := range []string{"bootstrap", "pool"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "api", group, "v1alpha1", "constants.go"), nil, 0)
		Expect(err).NotTo(HaveOccurred())
		ast.Inspect(file, func(n ast.Node) bool {
			constant, is := n.(*ast.ValueSpec)
			if is && strings.HasSuffix(constant.Names[0].Name, "Reason") {
				value, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
				Expect(err).NotTo(HaveOccurred())
				found = append(found, value)
			}
			return true
		})
	}
	slices.Sort(found)
	return slices.Compact(found)
}
