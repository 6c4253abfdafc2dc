package e2e

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// installRemediations installs the kinds of Metal3's remediation, by name only, and returns when the API server serves them.
func installRemediations(ctx context.Context) {
	GinkgoHelper()
	for _, kind := range []string{"Metal3Remediation", "Metal3RemediationTemplate"} {
		singular := strings.ToLower(kind)
		definition := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{
				Name:   singular + "s.infrastructure.cluster.x-k8s.io",
				Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
			},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Group: "infrastructure.cluster.x-k8s.io", Scope: apiextensionsv1.NamespaceScoped,
				Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Singular: singular, Plural: singular + "s"},
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1beta2", Served: true, Storage: true,
					Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
						Type: "object", XPreserveUnknownFields: ptr.To(true)}}}},
			},
		}
		Expect(lab.ManagementClient.Create(ctx, definition)).To(Succeed())
		Eventually(ctx, func() ([]apiextensionsv1.CustomResourceDefinitionCondition, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(definition), definition)
			return definition.Status.Conditions, err
		}).Should(ContainElement(And(HaveField("Type", apiextensionsv1.Established), HaveField("Status", apiextensionsv1.ConditionTrue))))
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(remediation(kind + "List").GroupVersionKind())
		Eventually(ctx, func() error { return lab.ManagementClient.List(ctx, list) }).Should(Succeed())
	}
}
