package install_test

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

// earlierVersion is the API version of an imaginary earlier release, and currentVersion the current storage version.
const earlierVersion, currentVersion = "v1alpha0", "v1alpha1"

// createAllKinds creates a paused object of each of Poolboot's kinds. A finalizer keeps them until the end of the spec.
func createAllKinds(ctx SpecContext, namespace string) []client.Object {
	GinkgoHelper()
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: "worker", Finalizers: []string{"example.com/kept"},
			Annotations: map[string]string{clusterv1.PausedAnnotation: "true"}}
	}
	boot := bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}}
	objects := []client.Object{
		&bootstrapv1.PoolbootConfig{ObjectMeta: meta(), Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: boot}},
		&bootstrapv1.PoolbootConfigTemplate{ObjectMeta: meta(),
			Spec: bootstrapv1.PoolbootConfigTemplateSpec{Template: bootstrapv1.PoolbootConfigTemplateResource{Spec: boot}}},
		&poolv1.Enrollment{ObjectMeta: meta(), Spec: poolv1.EnrollmentSpec{ClusterName: "edge", PoolRole: "worker", NamePattern: "edge-*", MaxUses: 1,
			ExpirationTime: metav1.Date(2100, time.January, 1, 0, 0, 0, 0, time.UTC), TokenSecretRef: poolv1.TokenSecretReference{Name: "edge"}}},
		&poolv1.MachineConfig{ObjectMeta: meta(), Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}},
		&poolv1.MachineConfigPool{ObjectMeta: meta(), Spec: poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: "worker"}},
	}
	for _, object := range objects {
		Expect(k8sClient.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error {
			return client.IgnoreNotFound(k8sClient.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		})
	}
	return objects
}

// newReference returns an object with only the kind, in a version, and the name.
func newReference(object client.Object, version string) *unstructured.Unstructured {
	GinkgoHelper()
	kind, err := apiutil.GVKForObject(object, k8sClient.Scheme())
	Expect(err).NotTo(HaveOccurred())
	reference := &unstructured.Unstructured{}
	reference.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Kind})
	reference.SetNamespace(object.GetNamespace())
	reference.SetName(object.GetName())
	return reference
}

// setVersions changes the versions of all CRDs of Poolboot. versions gets the current version of a CRD.
func setVersions(ctx context.Context, versions func(current apiextensionsv1.CustomResourceDefinitionVersion) []apiextensionsv1.CustomResourceDefinitionVersion) {
	GinkgoHelper()
	for _, crd := range listOfKind[apiextensionsv1.CustomResourceDefinition](components.Objs(), "CustomResourceDefinition") {
		Expect(crd.Spec.Versions).To(HaveExactElements(HaveField("Name", currentVersion)))
		current := crd.Spec.Versions[0]
		Eventually(ctx, func() error {
			if err := k8sClient.Get(ctx, client.ObjectKeyFromObject(&crd), &crd); err != nil {
				return err
			}
			crd.Spec.Versions = versions(current)
			return k8sClient.Update(ctx, &crd)
		}).Should(Succeed())
	}
}

// getStoredVersions returns status.storedVersions of Poolboot's CRDs, by name.
func getStoredVersions(ctx context.Context) (map[string][]string, error) {
	stored := map[string][]string{}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	err := k8sClient.List(ctx, crds, client.MatchingLabels{clusterv1.ProviderNameLabel: "bootstrap-poolboot"})
	for _, crd := range crds.Items {
		stored[crd.Name] = crd.Status.StoredVersions
	}
	return stored, err
}

// isOnlyStoredAs returns a predicate that reports whether all kinds are stored in one version only.
func isOnlyStoredAs(version string) func(map[string][]string) bool {
	return func(stored map[string][]string) bool {
		for _, versions := range stored {
			if !slices.Equal(versions, []string{version}) {
				return false
			}
		}
		return len(stored) == 5
	}
}

var _ = Describe("Objects in another version", Ordered, func() {
	type versions = []apiextensionsv1.CustomResourceDefinitionVersion
	version := func(current apiextensionsv1.CustomResourceDefinitionVersion, name string, served, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		current.Name, current.Served, current.Storage = name, served, storage
		return current
	}
	var objects []client.Object

	BeforeAll(func(ctx SpecContext) {
		objects = createAllKinds(ctx, newNamespace(ctx))
		setVersions(ctx, func(current apiextensionsv1.CustomResourceDefinitionVersion) versions {
			return versions{version(current, earlierVersion, true, true), version(current, currentVersion, true, false)}
		})
		DeferCleanup(func(ctx SpecContext) {
			setVersions(ctx, func(current apiextensionsv1.CustomResourceDefinitionVersion) versions {
				return versions{version(current, earlierVersion, false, false), version(current, currentVersion, true, true)}
			})
			Eventually(ctx, getStoredVersions).Should(Satisfy(isOnlyStoredAs(currentVersion)))
			setVersions(ctx, func(current apiextensionsv1.CustomResourceDefinitionVersion) versions { return versions{current} })
		})
		Eventually(ctx, getStoredVersions).Should(Satisfy(isOnlyStoredAs(earlierVersion)))
	})

	It("are subject to the admission policies, which name the current version", func(ctx SpecContext) {
		requests := map[string]func(*unstructured.Unstructured) error{
			"PoolbootConfig": func(o *unstructured.Unstructured) error {
				return newAdminNamed(rights.Manager).Delete(ctx, o, client.DryRunAll)
			},
			"PoolbootConfig status": func(o *unstructured.Unstructured) error {
				return newAdminNamed(rights.ConfigServer).Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(
					`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)),
					&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			},
			"MachineConfig": func(o *unstructured.Unstructured) error {
				return newAdminNamed(rights.Manager).Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"fips":true}}`)), client.DryRunAll)
			},
			"MachineConfigPool": func(o *unstructured.Unstructured) error {
				return newAdminNamed(rights.Manager).Delete(ctx, o, client.DryRunAll)
			},
		}
		for _, object := range objects {
			for what, request := range requests {
				if kind := newReference(object, earlierVersion); kind.GetKind() == strings.TrimSuffix(what, " status") {
					Eventually(ctx, func() error { return request(newReference(object, earlierVersion)) }).
						Should(MatchError(MatchRegexp("Poolboot's (manager|config server) can")), what)
				}
			}
		}
	})

	It("are migrated to the current version by the manager, and the earlier version can be removed", func(ctx SpecContext) {
		for _, object := range objects {
			patched := newReference(object, earlierVersion)
			Eventually(ctx, func() error {
				return k8sClient.Patch(ctx, patched, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/by":"earlier"}}}`)),
					client.FieldOwner("earlier-release"))
			}).Should(Succeed())
			Expect(patched.GetManagedFields()).To(ContainElement(HaveField("APIVersion", HaveSuffix("/"+earlierVersion))))
		}
		setVersions(ctx, func(current apiextensionsv1.CustomResourceDefinitionVersion) versions {
			return versions{version(current, earlierVersion, false, false), version(current, currentVersion, true, true)}
		})
		Eventually(ctx, getStoredVersions).Should(Satisfy(isOnlyStoredAs(currentVersion)))
		for _, object := range objects {
			Eventually(ctx, func() ([]metav1.ManagedFieldsEntry, error) {
				err := k8sClient.Get(ctx, client.ObjectKeyFromObject(object), object)
				return object.GetManagedFields(), err
			}).ShouldNot(ContainElement(HaveField("APIVersion", HaveSuffix("/"+earlierVersion))))
		}
		// The API server refuses this while status.storedVersions has the earlier version. It can't read objects that
		// are still stored in that version.
		setVersions(ctx, func(current apiextensionsv1.CustomResourceDefinitionVersion) versions { return versions{current} })
		for _, object := range objects {
			Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(object.GetLabels()).To(HaveKeyWithValue("example.com/by", "earlier"))
		}
		Eventually(ctx, func() ([]rights.Right, error) {
			used, _, err := rights.UsedInManagement(controlPlane, rights.Manager)
			return used, err
		}).Should(ContainElements(
			rights.Right{Where: rights.All, Resource: "customresourcedefinitions.apiextensions.k8s.io", Verb: "patch"},
			rights.Right{Where: rights.All, Resource: "customresourcedefinitions.apiextensions.k8s.io/status", Verb: "patch"},
			rights.Right{Where: rights.All, Resource: "machineconfigs.poolboot.io", Verb: "patch"},
			rights.Right{Where: rights.All, Resource: "poolbootconfigtemplates.bootstrap.cluster.x-k8s.io", Verb: "get"},
			rights.Right{Where: rights.All, Resource: "poolbootconfigtemplates.bootstrap.cluster.x-k8s.io", Verb: "patch"},
		))
	})
})

var _ = Describe("The manager's right to patch objects that it migrates", func() {
	It("is limited to empty patches and to the annotation of the CRD migrator", func(ctx SpecContext) {
		asManager := newClientAs(ctx, rights.Manager, nil)
		requests := func(by client.Client, object client.Object, change func(client.Object)) error {
			changed := object.DeepCopyObject().(client.Object)
			change(changed)
			return by.Patch(ctx, changed, client.MergeFrom(object), client.DryRunAll)
		}
		admin := newAdminNamed(rights.Manager)
		refused := MatchError(ContainSubstring("Poolboot's manager cannot change"))
		changes := map[string]func(client.Object){
			"a label":       func(o client.Object) { o.SetLabels(map[string]string{"example.com/a": "b"}) },
			"an annotation": func(o client.Object) { o.SetAnnotations(map[string]string{"example.com/a": "b"}) },
			"a finalizer":   func(o client.Object) { o.SetFinalizers([]string{"example.com/a"}) },
			"an owner": func(o client.Object) {
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "b"}})
			},
			"the spec": func(o client.Object) {
				switch o := o.(type) {
				case *bootstrapv1.PoolbootConfigTemplate:
					o.Spec.Template.Spec.Join.Kubelet.KubeletPath = "/opt/kubelet"
				case *poolv1.MachineConfig:
					o.Spec.KernelArguments = []string{"debug"}
				case *apiextensionsv1.CustomResourceDefinition:
					o.Spec.Names.Categories = []string{"example"}
				}
			},
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(k8sClient.Get(ctx, client.ObjectKey{Name: "machineconfigs.poolboot.io"}, crd)).To(Succeed())
		objects := []client.Object{crd}
		for _, object := range createAllKinds(ctx, newNamespace(ctx)) {
			switch object.(type) {
			case *bootstrapv1.PoolbootConfigTemplate, *poolv1.MachineConfig:
				objects = append(objects, object)
			}
		}
		Expect(objects).To(HaveLen(3))
		for _, object := range objects {
			for what, change := range changes {
				Eventually(ctx, func() error { return requests(admin, object, change) }).Should(refused, "%T: %s", object, what)
				if _, immutable := object.(*bootstrapv1.PoolbootConfigTemplate); what != "the spec" || !immutable {
					Expect(requests(k8sClient, object, change)).To(Succeed(), "other clients: %T: %s", object, what)
				}
			}
			Expect(requests(asManager, object, func(client.Object) {})).To(Succeed())
		}
		Expect(requests(asManager, crd, func(o client.Object) {
			o.GetAnnotations()[clusterv1.CRDMigrationObservedGenerationAnnotation] = "0"
		})).To(Succeed())

		metal3 := &apiextensionsv1.CustomResourceDefinition{}
		Expect(k8sClient.Get(ctx, client.ObjectKey{Name: "baremetalhosts.metal3.io"}, metal3)).To(Succeed())
		Expect(requests(asManager, metal3, func(client.Object) {})).To(MatchError(ContainSubstring("forbidden")), "the CRD of another provider")
	})

	It("includes empty patches of large MachineConfigs", func(ctx SpecContext) {
		large := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "large"}, Spec: poolv1.MachineConfigSpec{
			Config: &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large","contents":{"source":"data:,` +
				strings.Repeat("a", 1<<20) + `"}}]}}`)}}}
		Expect(k8sClient.Create(ctx, large)).To(Succeed())
		Expect(newClientAs(ctx, rights.Manager, nil).Patch(ctx, large, client.RawPatch(types.MergePatchType, []byte(`{}`)), client.DryRunAll)).To(Succeed())
	})
})
