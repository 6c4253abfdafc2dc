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

// earlier is the version of an imaginary earlier release, and current the one that is stored now.
const earlier, current = "v1alpha0", "v1alpha1"

// oneOfEachKind creates an object of each of Poolboot's kinds, paused. A finalizer keeps them until the spec ends.
func oneOfEachKind(ctx SpecContext, namespace string) []client.Object {
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
		Expect(c.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error {
			return client.IgnoreNotFound(c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
		})
	}
	return objects
}

// inVersion is a reference to an object in a version, without its contents.
func inVersion(object client.Object, version string) *unstructured.Unstructured {
	GinkgoHelper()
	kind, err := apiutil.GVKForObject(object, c.Scheme())
	Expect(err).NotTo(HaveOccurred())
	reference := &unstructured.Unstructured{}
	reference.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: version, Kind: kind.Kind})
	reference.SetNamespace(object.GetNamespace())
	reference.SetName(object.GetName())
	return reference
}

// setVersions changes the versions of all CRDs of Poolboot, each of them made of the current one.
func setVersions(ctx context.Context, versions func(now apiextensionsv1.CustomResourceDefinitionVersion) []apiextensionsv1.CustomResourceDefinitionVersion) {
	GinkgoHelper()
	for _, crd := range ofKind[apiextensionsv1.CustomResourceDefinition](components.Objs(), "CustomResourceDefinition") {
		Expect(crd.Spec.Versions).To(HaveExactElements(HaveField("Name", current)))
		now := crd.Spec.Versions[0]
		Eventually(ctx, func() error {
			if err := c.Get(ctx, client.ObjectKeyFromObject(&crd), &crd); err != nil {
				return err
			}
			crd.Spec.Versions = versions(now)
			return c.Update(ctx, &crd)
		}).Should(Succeed())
	}
}

// storedVersions are the versions in which objects may be stored, by the names of Poolboot's CRDs.
func storedVersions(ctx context.Context) (map[string][]string, error) {
	stored := map[string][]string{}
	crds := &apiextensionsv1.CustomResourceDefinitionList{}
	err := c.List(ctx, crds, client.MatchingLabels{clusterv1.ProviderNameLabel: "bootstrap-poolboot"})
	for _, crd := range crds.Items {
		stored[crd.Name] = crd.Status.StoredVersions
	}
	return stored, err
}

// onlyStored says that objects of all kinds are stored in one version only.
func onlyStored(version string) func(map[string][]string) bool {
	return func(stored map[string][]string) bool {
		for _, versions := range stored {
			if !slices.Equal(versions, []string{version}) {
				return false
			}
		}
		return len(stored) == 5
	}
}

var _ = Describe("Objects of another version", Ordered, func() {
	type versions = []apiextensionsv1.CustomResourceDefinitionVersion
	version := func(now apiextensionsv1.CustomResourceDefinitionVersion, name string, served, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		now.Name, now.Served, now.Storage = name, served, storage
		return now
	}
	var objects []client.Object

	BeforeAll(func(ctx SpecContext) {
		objects = oneOfEachKind(ctx, newNamespace(ctx))
		setVersions(ctx, func(now apiextensionsv1.CustomResourceDefinitionVersion) versions {
			return versions{version(now, earlier, true, true), version(now, current, true, false)}
		})
		DeferCleanup(func(ctx SpecContext) {
			setVersions(ctx, func(now apiextensionsv1.CustomResourceDefinitionVersion) versions {
				return versions{version(now, earlier, false, false), version(now, current, true, true)}
			})
			Eventually(ctx, storedVersions).Should(Satisfy(onlyStored(current)))
			setVersions(ctx, func(now apiextensionsv1.CustomResourceDefinitionVersion) versions { return versions{now} })
		})
		Eventually(ctx, storedVersions).Should(Satisfy(onlyStored(earlier)))
	})

	It("are held to the admission policies, which name the current one", func(ctx SpecContext) {
		try := map[string]func(*unstructured.Unstructured) error{
			"PoolbootConfig": func(o *unstructured.Unstructured) error {
				return byPoliciesAlone(rights.Manager).Delete(ctx, o, client.DryRunAll)
			},
			"PoolbootConfig status": func(o *unstructured.Unstructured) error {
				return byPoliciesAlone(rights.ConfigServer).Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(
					`{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)),
					&client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: []string{metav1.DryRunAll}}})
			},
			"MachineConfig": func(o *unstructured.Unstructured) error {
				return byPoliciesAlone(rights.Manager).Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"fips":true}}`)), client.DryRunAll)
			},
			"MachineConfigPool": func(o *unstructured.Unstructured) error {
				return byPoliciesAlone(rights.Manager).Delete(ctx, o, client.DryRunAll)
			},
		}
		for _, object := range objects {
			for what, request := range try {
				if kind := inVersion(object, earlier); kind.GetKind() == strings.TrimSuffix(what, " status") {
					Eventually(ctx, func() error { return request(inVersion(object, earlier)) }).
						Should(MatchError(MatchRegexp("Poolboot's (manager|config server) may")), what)
				}
			}
		}
	})

	It("are stored in the current one by the manager that comes with it, and the earlier one can go", func(ctx SpecContext) {
		for _, object := range objects {
			written := inVersion(object, earlier)
			Eventually(ctx, func() error {
				return c.Patch(ctx, written, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"example.com/by":"earlier"}}}`)),
					client.FieldOwner("earlier-release"))
			}).Should(Succeed())
			Expect(written.GetManagedFields()).To(ContainElement(HaveField("APIVersion", HaveSuffix("/"+earlier))))
		}
		setVersions(ctx, func(now apiextensionsv1.CustomResourceDefinitionVersion) versions {
			return versions{version(now, earlier, false, false), version(now, current, true, true)}
		})
		Eventually(ctx, storedVersions).Should(Satisfy(onlyStored(current)))
		for _, object := range objects {
			Eventually(ctx, func() ([]metav1.ManagedFieldsEntry, error) {
				err := c.Get(ctx, client.ObjectKeyFromObject(object), object)
				return object.GetManagedFields(), err
			}).ShouldNot(ContainElement(HaveField("APIVersion", HaveSuffix("/"+earlier))))
		}
		// The API server refuses this while status.storedVersions names the earlier version, and can't read what is
		// stored in it afterwards.
		setVersions(ctx, func(now apiextensionsv1.CustomResourceDefinitionVersion) versions { return versions{now} })
		for _, object := range objects {
			Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
			Expect(object.GetLabels()).To(HaveKeyWithValue("example.com/by", "earlier"))
		}
		Eventually(ctx, func() ([]rights.Right, error) {
			used, _, err := rights.UsedAtHome(plane, rights.Manager)
			return used, err
		}).Should(ContainElements(
			rights.Right{Where: rights.All, Resource: "customresourcedefinitions.apiextensions.k8s.io", Verb: "patch"},
			rights.Right{Where: rights.All, Resource: "customresourcedefinitions.apiextensions.k8s.io/status", Verb: "patch"},
			rights.Right{Where: rights.All, Resource: "machineconfigs.pool.cluster.x-k8s.io", Verb: "patch"},
			rights.Right{Where: rights.All, Resource: "poolbootconfigtemplates.bootstrap.cluster.x-k8s.io", Verb: "get"},
			rights.Right{Where: rights.All, Resource: "poolbootconfigtemplates.bootstrap.cluster.x-k8s.io", Verb: "patch"},
		))
	})
})

var _ = Describe("The manager's right to patch what it only stores in another version", func() {
	It("is for patches without a change, and for the annotation of the CRD migrator", func(ctx SpecContext) {
		asManager := as(ctx, rights.Manager, nil)
		try := func(by client.Client, object client.Object, change func(client.Object)) error {
			changed := object.DeepCopyObject().(client.Object)
			change(changed)
			return by.Patch(ctx, changed, client.MergeFrom(object), client.DryRunAll)
		}
		held := byPoliciesAlone(rights.Manager)
		refused := MatchError(ContainSubstring("Poolboot's manager may not change"))
		of := map[string]func(client.Object){
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
		Expect(c.Get(ctx, client.ObjectKey{Name: "machineconfigs.pool.cluster.x-k8s.io"}, crd)).To(Succeed())
		objects := []client.Object{crd}
		for _, object := range oneOfEachKind(ctx, newNamespace(ctx)) {
			switch object.(type) {
			case *bootstrapv1.PoolbootConfigTemplate, *poolv1.MachineConfig:
				objects = append(objects, object)
			}
		}
		Expect(objects).To(HaveLen(3))
		for _, object := range objects {
			for what, change := range of {
				Eventually(ctx, func() error { return try(held, object, change) }).Should(refused, "%T: %s", object, what)
				if _, immutable := object.(*bootstrapv1.PoolbootConfigTemplate); what != "the spec" || !immutable {
					Expect(try(c, object, change)).To(Succeed(), "others: %T: %s", object, what)
				}
			}
			Expect(try(asManager, object, func(client.Object) {})).To(Succeed())
		}
		Expect(try(asManager, crd, func(o client.Object) {
			o.GetAnnotations()[clusterv1.CRDMigrationObservedGenerationAnnotation] = "0"
		})).To(Succeed())

		metal3 := &apiextensionsv1.CustomResourceDefinition{}
		Expect(c.Get(ctx, client.ObjectKey{Name: "baremetalhosts.metal3.io"}, metal3)).To(Succeed())
		Expect(try(asManager, metal3, func(client.Object) {})).To(MatchError(ContainSubstring("forbidden")), "the CRD of others")
	})

	It("leaves a MachineConfig of any size alone", func(ctx SpecContext) {
		large := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(ctx), Name: "large"}, Spec: poolv1.MachineConfigSpec{
			Config: &runtime.RawExtension{Raw: []byte(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/large","contents":{"source":"data:,` +
				strings.Repeat("a", 1<<20) + `"}}]}}`)}}}
		Expect(c.Create(ctx, large)).To(Succeed())
		Expect(as(ctx, rights.Manager, nil).Patch(ctx, large, client.RawPatch(types.MergePatchType, []byte(`{}`)), client.DryRunAll)).To(Succeed())
	})
})
