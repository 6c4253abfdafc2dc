package integration

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// command is one that the documentation shows, with what it shows of its output.
type command struct{ line, output string }

// documented returns the commands of the block of a page under docs that begins with ```console <name>.
func documented(page, name string) (commands []command) {
	GinkgoHelper()
	document, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	Expect(err).NotTo(HaveOccurred())
	block := regexp.MustCompile("(?ms)^```console " + name + "\n(.*?)^```").FindSubmatch(document)
	Expect(block).NotTo(BeNil(), "docs/%s has no block of commands %q", page, name)
	for _, shown := range strings.Split(strings.TrimPrefix(string(block[1]), "$ "), "\n$ ") {
		line, output, _ := strings.Cut(shown, "\n")
		for strings.HasSuffix(line, "\\") {
			var more string
			more, output, _ = strings.Cut(output, "\n")
			line += "\n" + more
		}
		commands = append(commands, command{line, output})
	}
	return commands
}

var _ = Describe("The commands that the documentation shows", func() {
	It("install the alerts", func(ctx SpecContext) {
		definition := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "prometheusrules.monitoring.coreos.com"},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "monitoring.coreos.com", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "prometheusrules", Singular: "prometheusrule", Kind: "PrometheusRule", ListKind: "PrometheusRuleList"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: ptr.To(true)}}}},
			},
		}
		Expect(lab.ManagementClient.Create(ctx, definition)).To(Succeed())
		Eventually(ctx, func(ctx context.Context) ([]apiextensionsv1.CustomResourceDefinitionCondition, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(definition), definition)
			return definition.Status.Conditions, err
		}).Should(ContainElement(And(HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))

		shell := &terminal{dir: "../.."}
		for _, shown := range documented("metrics.md", "alerts") {
			Expect(shell.run(ctx, shown.line)).To(ContainSubstring(shown.output), shown.line)
			Expect(shell.code).To(BeZero(), shown.line)
		}
		rule := &unstructured.Unstructured{}
		rule.SetGroupVersionKind(schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"})
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: "poolboot-system", Name: "poolboot-alerts"}, rule)).To(Succeed())
		Expect(rule.Object["spec"]).To(HaveKeyWithValue("groups", Not(BeEmpty())))
	})
})
