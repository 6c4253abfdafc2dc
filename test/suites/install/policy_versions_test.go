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
	// A rule for a version that is not served matches nothing. A rule for all versions evaluates its expressions with
	// the fields of any version.
	It("name the storage version of each kind, and apply to requests in all versions", func(ctx SpecContext) {
		stored := map[string]string{"": "v1", apiextensionsv1.GroupName: "v1"}
		crds := &apiextensionsv1.CustomResourceDefinitionList{}
		Expect(k8sClient.List(ctx, crds)).To(Succeed())
		for _, crd := range crds.Items {
			for _, version := range crd.Spec.Versions {
				if version.Storage {
					stored[crd.Spec.Group+"/"+crd.Spec.Names.Plural] = version.Name
				}
			}
		}
		for _, policy := range listOfKind[admissionregistrationv1.ValidatingAdmissionPolicy](components.Objs(), "ValidatingAdmissionPolicy") {
			for _, rule := range policy.Spec.MatchConstraints.ResourceRules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						resource, _, _ = strings.Cut(resource, "/")
						version := cmp.Or(stored[group+"/"+resource], stored[group])
						if group == "metal3.io" || group == "cluster.x-k8s.io" {
							version = "*" // others can stop serving any of their versions without a release of Poolboot
						}
						Expect(policy.Spec.MatchConstraints.MatchPolicy).To(Or(BeNil(), HaveValue(Equal(admissionregistrationv1.Equivalent))), policy.Name)
						Expect(rule.APIVersions).To(HaveExactElements(version), "%s: %s", policy.Name, resource)
					}
				}
			}
		}
	})
})
