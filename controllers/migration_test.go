package controllers

import (
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/yaml"

	"sigs.k8s.io/cluster-api/util/contract"
)

// test/suites/install/migration_test.go tests that objects are migrated, and with which rights.
var _ = Describe("The CRD migrator", func() {
	It("has every installed CRD, uses the status subresource if there is one, and has the right to patch each CRD by name", func() {
		var want, wantByStatus, got, gotByStatus, granted []string
		files, err := filepath.Glob("../config/crd/bases/*.yaml")
		Expect(err).NotTo(HaveOccurred())
		for _, file := range files {
			crd := read[apiextensionsv1.CustomResourceDefinition](file)
			want = append(want, crd.Name)
			if subresources := crd.Spec.Versions[0].Subresources; subresources != nil && subresources.Status != nil {
				wantByStatus = append(wantByStatus, crd.Name)
			}
		}
		scheme := runtime.NewScheme()
		Expect(AddToScheme(scheme)).To(Succeed())
		for object, config := range migrated() {
			gvk, err := apiutil.GVKForObject(object, scheme)
			Expect(err).NotTo(HaveOccurred())
			name := contract.CalculateCRDName(gvk.Group, gvk.Kind)
			got = append(got, name)
			if config.UseStatusForStorageVersionMigration {
				gotByStatus = append(gotByStatus, name)
			}
			Expect(config.UseCache).To(BeFalse())
		}
		for _, rule := range read[rbacv1.ClusterRole]("../config/rbac/role.yaml").Rules {
			if slices.Contains(rule.Resources, "customresourcedefinitions") && slices.Contains(rule.Verbs, "patch") {
				granted = append(granted, rule.ResourceNames...)
			}
		}
		Expect(want).NotTo(BeEmpty())
		Expect(got).To(ConsistOf(want))
		Expect(gotByStatus).To(ConsistOf(wantByStatus))
		Expect(granted).To(ConsistOf(want))
	})
})

func read[T any](file string) (object T) {
	GinkgoHelper()
	content, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.Unmarshal(content, &object)).To(Succeed())
	return object
}
