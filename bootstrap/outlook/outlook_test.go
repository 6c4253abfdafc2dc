package outlook

import (
	"fmt"
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
		var want []string
		for _, group := range groups {
			for _, r := range reasonsOf(group) {
				want = append(want, r.value)
			}
		}
		slices.Sort(want)
		Expect(slices.Sorted(maps.Keys(table))).To(Equal(slices.Compact(want)))
	})

	It("has a remedy for every refusal of the config server, unless the reason that follows has it", func() {
		for _, row := range refusals() {
			for message := range strings.SplitSeq(strings.TrimSuffix(row, " |"), "<br>") {
				Expect(message).To(Or(HaveSuffix(": …"), MatchRegexp(`[:;.] (if|it can|it is in|send|use|to \w+|start|boot|see|remove|create|upgrade|Try|To)\b|Increase|create|or boot`)))
			}
		}
	})

	It("is in docs/conditions.md, with the comments of the constants", func() {
		path := filepath.Join("..", "..", "docs", "conditions.md")
		page, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		generated := string(page)
		for _, group := range groups {
			generated = writeTable(generated, "api/"+group+"/v1alpha1/constants.go", reasonRows(group))
		}
		generated = writeTable(generated, "the events in api", append([]string{"| Event | Meaning |", "| --- | --- |"}, warnings()...))
		generated = writeTable(generated, "bootstrap/server", append([]string{"| Answer | Message |", "| --- | --- |"}, refusals()...))
		if os.Getenv("UPDATE_PAGES") != "" {
			Expect(os.WriteFile(path, []byte(generated), 0o644)).To(Succeed())
			return
		}
		Expect(string(page)).To(Equal(generated), "run make generate")
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

// groups are the folders of the API groups whose constants are reasons.
var groups = []string{"bootstrap", "pool"}

// reason is a constant of the API whose name ends with Reason.
type reason struct{ value, meaning string }

// reasonsOf returns the reasons of an API group, in the order of the source. Each must have a comment: its meaning.
func reasonsOf(group string) (found []reason) {
	GinkgoHelper()
	path := filepath.Join("..", "..", "api", group, "v1alpha1", "constants.go")
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	Expect(err).NotTo(HaveOccurred())
	ast.Inspect(file, func(n ast.Node) bool {
		constant, is := n.(*ast.ValueSpec)
		if is && strings.HasSuffix(constant.Names[0].Name, "Reason") {
			value, err := strconv.Unquote(constant.Values[0].(*ast.BasicLit).Value)
			Expect(err).NotTo(HaveOccurred())
			meaning := strings.Join(strings.Fields(constant.Doc.Text()), " ")
			Expect(meaning).NotTo(BeEmpty(), "%s has no comment", constant.Names[0].Name)
			found = append(found, reason{value, meaning})
		}
		return true
	})
	return found
}

var (
	// pageLink matches a path of a page in a comment, from the root of the repository.
	pageLink  = regexp.MustCompile(`docs/((?:dev/)?[a-z-]+\.md)((?:#[\w-]+)?)`)
	fieldPath = regexp.MustCompile(`\b(?:spec|status)\.\w+(?:\.\w+)*`)
)

// reasonRows returns the table of the reasons of an API group.
func reasonRows(group string) []string {
	GinkgoHelper()
	rows := []string{"| Reason | Outlook | Meaning |", "| --- | --- | --- |"}
	for _, r := range reasonsOf(group) {
		rows = append(rows, fmt.Sprintf("| `%s` | `%s` | %s |", r.value, table[r.value], asMarkdown(r.meaning)))
	}
	return rows
}

// writeTable replaces a table in docs/conditions.md. It ends at an empty line.
func writeTable(page, source string, rows []string) string {
	GinkgoHelper()
	_, rest, found := strings.Cut(page, "<!-- make generate writes this table from "+source+" -->\n\n")
	Expect(found).To(BeTrue(), "docs/conditions.md has no table of %s", source)
	_, after, found := strings.Cut(rest, "\n\n")
	Expect(found).To(BeTrue(), "the table of %s has no end", source)
	return strings.TrimSuffix(page, rest) + strings.Join(rows, "\n") + "\n\n" + after
}

// asMarkdown returns a comment with links to pages, and with fields as code.
func asMarkdown(comment string) string {
	return pageLink.ReplaceAllString(fieldPath.ReplaceAllString(comment, "`$0`"), "[$1]($1$2)")
}
