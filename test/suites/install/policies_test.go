package install_test

import (
	"cmp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

var _ = Describe("The admission policies", func() {
	// A rule for a version that is not served matches nothing, and one for all versions evaluates its expressions on
	// fields of any version.
	It("name one version of each kind of Poolboot's and Kubernetes', the one that is stored, and hold for requests in all others", func(ctx SpecContext) {
		stored := map[string]string{"": "v1", apiextensionsv1.GroupName: "v1"}
		crds := &apiextensionsv1.CustomResourceDefinitionList{}
		Expect(c.List(ctx, crds)).To(Succeed())
		for _, crd := range crds.Items {
			for _, version := range crd.Spec.Versions {
				if version.Storage {
					stored[crd.Spec.Group+"/"+crd.Spec.Names.Plural] = version.Name
				}
			}
		}
		for _, policy := range ofKind[admissionregistrationv1.ValidatingAdmissionPolicy](components.Objs(), "ValidatingAdmissionPolicy") {
			for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						resource, _, _ = strings.Cut(resource, "/")
						version := cmp.Or(stored[group+"/"+resource], stored[group])
						if group == "metal3.io" {
							version = "*" // Metal3 may stop serving any of its versions without a release of Poolboot
						}
						Expect(policy.Spec.MatchConstraints.MatchPolicy).To(Or(BeNil(), HaveValue(Equal(admissionregistrationv1.Equivalent))), policy.Name)
						Expect(rule.APIVersions).To(HaveExactElements(version), "%s: %s", policy.Name, resource)
					}
				}
			}
		}
	})
})
