package install_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

// newNamespaceAdmin returns a client of a user with all rights in one namespace.
func newNamespaceAdmin(ctx context.Context, user, namespace string) client.Client {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Namespace: namespace, GenerateName: "owner-"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}}
	Expect(k8sClient.Create(ctx, role)).To(Succeed())
	Expect(k8sClient.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}}})).To(Succeed())
	config := rest.CopyConfig(controlPlane.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	impersonator, err := client.New(config, client.Options{Scheme: clusterapi.Scheme()})
	Expect(err).NotTo(HaveOccurred())
	return impersonator
}

var _ = Describe("The admitted names of an Enrollment", func() {
	// createEnrollment creates an Enrollment with three admitted hosts, as clusterctl move or a backup creates it, and
	// waits until the policy is enforced.
	createEnrollment := func(ctx context.Context, by client.Client, namespace string) *poolv1.Enrollment {
		GinkgoHelper()
		e := &poolv1.Enrollment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge", Annotations: map[string]string{poolv1.AdmittedAnnotation: "edge-1,edge-2,edge-3"}},
			Spec: poolv1.EnrollmentSpec{ClusterName: "site", PoolRole: "infra", NamePattern: "edge-*", MaxUses: 3, ExpirationTime: metav1.NewTime(time.Now().Add(time.Hour)),
				TokenSecretRef: poolv1.TokenSecretReference{Name: "edge"}},
		}
		Eventually(ctx, func() error { return by.Create(ctx, e) }).Should(Succeed())
		Eventually(ctx, func() error {
			changed := e.DeepCopy()
			changed.Annotations = nil
			return k8sClient.Patch(ctx, changed, client.MergeFrom(e), client.DryRunAll)
		}).Should(MatchError(ContainSubstring("only Poolboot's manager writes the annotation poolboot.io/admitted")))
		return e
	}
	refused := MatchError(ContainSubstring("only Poolboot's manager writes the annotation poolboot.io/admitted"))

	It("can be changed by the manager only: not by administrators, GitOps, or accounts with the manager's name elsewhere", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		owner := newNamespaceAdmin(ctx, "owner-of-"+namespace, namespace)
		e := createEnrollment(ctx, owner, namespace)
		for who, by := range map[string]client.Client{
			"the cluster's administrator":                                k8sClient,
			"GitOps with the rights of the administrator":                newAdminNamed("gitops"),
			"the config server":                                          newAdminNamed(rights.ConfigServer),
			"the namespace's owner":                                      owner,
			"a ServiceAccount with the manager's name in that namespace": newNamespaceAdmin(ctx, "system:serviceaccount:"+namespace+":"+rights.Manager, namespace),
			"a user whose name ends with the manager's":                  newNamespaceAdmin(ctx, "x:system:serviceaccount:"+managerNamespace+":"+rights.Manager, namespace),
			"a user whose name starts with the manager's":                newNamespaceAdmin(ctx, "system:serviceaccount:"+managerNamespace+":"+rights.Manager+"-2", namespace),
		} {
			for what, names := range map[string]string{
				"none": "", "one name less": "edge-1,edge-2", "one name more": "edge-1,edge-2,edge-3,edge-4",
				"another name": "edge-1,edge-2,edge-9", "another order": "edge-2,edge-1,edge-3",
			} {
				admitted := map[string]string{poolv1.AdmittedAnnotation: names}
				if names == "" {
					admitted = nil
				}
				Eventually(ctx, func() error { return tryReplaceAdmitted(ctx, by, e, admitted) }).Should(refused, "%s replaces them with %s", who, what)
				for patch, kind := range newPatches(admitted) {
					Eventually(ctx, func() error {
						return by.Patch(ctx, e.DeepCopy(), client.RawPatch(kind, []byte(patch)), client.DryRunAll)
					}).Should(refused, "%s patches them to %s with %s", who, what, kind)
				}
			}
			applied := []byte(`{"apiVersion":"poolboot.io/v1alpha1","kind":"Enrollment","metadata":{"name":"edge","namespace":"` + namespace + `","annotations":{"poolboot.io/admitted":"edge-7"}}}`)
			Expect(by.Patch(ctx, e.DeepCopy(), client.RawPatch(types.ApplyPatchType, applied), client.DryRunAll, client.ForceOwnership, client.FieldOwner("gitops"))).To(refused, who)
		}
		Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
		Expect(e.AdmittedNames()).To(HaveLen(3))
	})

	It("do not prevent users from changing the rest of the spec, or from deleting the Enrollment and creating it again", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		owner := newNamespaceAdmin(ctx, "owner-of-"+namespace, namespace)
		e := createEnrollment(ctx, owner, namespace)
		more := e.DeepCopy()
		more.Spec.MaxUses = 5
		Expect(owner.Patch(ctx, more, client.MergeFrom(e), client.DryRunAll)).To(Succeed())
		applied := e.DeepCopy()
		applied.TypeMeta = metav1.TypeMeta{APIVersion: poolv1.GroupVersion.String(), Kind: "Enrollment"}
		applied.ObjectMeta, applied.Spec.MaxUses = metav1.ObjectMeta{Namespace: namespace, Name: e.Name}, 5
		manifest, err := json.Marshal(applied)
		Expect(err).NotTo(HaveOccurred())
		for range 2 { // a manifest without admitted names can be applied repeatedly
			Expect(owner.Patch(ctx, applied.DeepCopy(), client.RawPatch(types.ApplyPatchType, manifest), client.ForceOwnership, client.FieldOwner("gitops"))).To(Succeed())
		}
		Expect(k8sClient.Get(ctx, client.ObjectKeyFromObject(e), e)).To(Succeed())
		Expect(e.Spec.MaxUses).To(BeEquivalentTo(5))
		Expect(e.AdmittedNames()).To(HaveLen(3))
		Expect(owner.Delete(ctx, e)).To(Succeed())
		e.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: "edge"}
		Expect(owner.Create(ctx, e)).To(Succeed())
	})

	It("can be lost by clusterctl move, which replaces all annotations by its own, and then the Enrollment stays moved", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		owner := newNamespaceAdmin(ctx, "owner-of-"+namespace, namespace)
		e := createEnrollment(ctx, owner, namespace)
		patch := `[{"op":"add","path":"/metadata/annotations","value":{"clusterctl.cluster.x-k8s.io/delete-for-move":""}}]`
		Expect(owner.Patch(ctx, e, client.RawPatch(types.JSONPatchType, []byte(patch)))).To(Succeed())
		kept := e.DeepCopy()
		kept.Annotations = nil
		Expect(owner.Patch(ctx, kept, client.MergeFrom(e))).To(MatchError(ContainSubstring("clusterctl has moved this Enrollment")))
	})

	It("can be changed by the manager, which can't change the spec of an Enrollment, or delete it", func(ctx SpecContext) {
		manager, admin := newClientAs(ctx, rights.Manager, nil), newAdminNamed(rights.Manager)
		e := createEnrollment(ctx, k8sClient, newNamespace(ctx))
		Eventually(ctx, func() error {
			changed := e.DeepCopy()
			changed.SetAdmittedNames(append(e.AdmittedNames(), "edge-4"))
			return manager.Patch(ctx, changed, client.MergeFrom(e), client.DryRunAll)
		}).Should(Succeed())
		for what, by := range map[string]func(*poolv1.EnrollmentSpec){
			"the uses":    func(s *poolv1.EnrollmentSpec) { s.MaxUses++ },
			"the pattern": func(s *poolv1.EnrollmentSpec) { s.NamePattern = "*" },
			"the Secret":  func(s *poolv1.EnrollmentSpec) { s.TokenSecretRef.Name = "another" },
			"the time":    func(s *poolv1.EnrollmentSpec) { s.ExpirationTime = metav1.NewTime(time.Now().Add(time.Minute)) },
			"the ranges":  func(s *poolv1.EnrollmentSpec) { s.AddressRanges = []string{"192.0.2.0/24"} },
		} {
			Eventually(ctx, func() error {
				changed := e.DeepCopy()
				by(&changed.Spec)
				return admin.Patch(ctx, changed, client.MergeFrom(e), client.DryRunAll)
			}).Should(MatchError(ContainSubstring("can't change the spec of an Enrollment")), what)
		}
		Eventually(ctx, func() error { return manager.Delete(ctx, e, client.DryRunAll) }).Should(MatchError(ContainSubstring("cannot delete MachineConfigPools and Enrollments")))
	})
})

// tryReplaceAdmitted replaces an Enrollment in a dry run, as kubectl replace does.
func tryReplaceAdmitted(ctx context.Context, by client.Client, e *poolv1.Enrollment, admitted map[string]string) error {
	replaced := e.DeepCopy()
	if err := k8sClient.Get(ctx, client.ObjectKeyFromObject(e), replaced); err != nil {
		return err
	}
	replaced.Annotations = admitted
	return by.Update(ctx, replaced, client.DryRunAll)
}

// newPatches returns patches that set the annotations of an Enrollment, with their types.
func newPatches(annotations map[string]string) map[string]types.PatchType {
	value, err := json.Marshal(annotations)
	Expect(err).NotTo(HaveOccurred())
	operation := `[{"op":"replace","path":"/metadata/annotations","value":` + string(value) + `}]`
	if annotations == nil {
		operation = `[{"op":"remove","path":"/metadata/annotations"}]`
	}
	return map[string]types.PatchType{`{"metadata":{"annotations":` + string(value) + `}}`: types.MergePatchType, operation: types.JSONPatchType}
}

var _ = Describe("The host of a PoolbootConfig without a Machine", func() {
	create := func(ctx SpecContext, host string) (*bootstrapv1.PoolbootConfig, error) {
		GinkgoHelper()
		fields := map[string]any{}
		Expect(yaml.Unmarshal([]byte(host), &fields)).To(Succeed())
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": bootstrapv1.GroupVersion.String(), "kind": "PoolbootConfig",
			"metadata": map[string]any{"namespace": newNamespace(ctx), "name": "edge-7"},
			"spec":     map[string]any{"poolRole": "infra", "join": map[string]any{"type": "Kubelet"}, "host": fields}}}
		if err := k8sClient.Create(ctx, object); err != nil {
			return nil, err
		}
		config := &bootstrapv1.PoolbootConfig{}
		return config, k8sClient.Get(ctx, client.ObjectKeyFromObject(object), config)
	}
	const enrolled = `{type: Enrollment, nodeName: edge-7, enrollment: {name: edge, addressRanges: [192.0.2.0/24]}}`

	DescribeTable("is refused by its schema if it is not exactly one type of host", func(ctx SpecContext, host, message string) {
		_, err := create(ctx, host)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry(nil, `{nodeName: edge-7}`, "spec.host.type"),
		Entry(nil, `{type: Machine, nodeName: edge-7}`, "spec.host.type"),
		Entry(nil, `{type: Enrollment, nodeName: edge-7}`, "spec.host.enrollment"),
		Entry(nil, `{type: Enrollment, nodeName: edge-7, bareMetalHostName: h, enrollment: {name: edge}}`, "spec.host.bareMetalHostName"),
		Entry(nil, `{type: BareMetalHost, nodeName: edge-7}`, "spec.host.bareMetalHostName"),
		Entry(nil, `{type: BareMetalHost, nodeName: edge-7, bareMetalHostName: h, enrollment: {name: edge}}`, "spec.host.enrollment"),
		Entry(nil, `{type: Enrollment, nodeName: edge-7, enrollment: {addressRanges: [192.0.2.0/24]}}`, "spec.host.enrollment.name"),
		Entry(nil, `{type: Enrollment, nodeName: edge-7, enrollment: {name: edge, addressRanges: [192.0.2.7]}}`, "spec.host.enrollment.addressRanges"),
	)

	It("can't change its identity", func(ctx SpecContext) {
		config, err := create(ctx, enrolled)
		Expect(err).NotTo(HaveOccurred())
		dryRun := func(change func(*bootstrapv1.PoolbootConfigSpec)) error {
			changed := config.DeepCopy()
			change(&changed.Spec)
			return k8sClient.Patch(ctx, changed, client.MergeFrom(config), client.DryRunAll)
		}
		for field, change := range map[string]func(*bootstrapv1.PoolbootConfigSpec){
			"spec.host.nodeName":        func(s *bootstrapv1.PoolbootConfigSpec) { s.Host.NodeName = "edge-8" },
			"spec.host.enrollment.name": func(s *bootstrapv1.PoolbootConfigSpec) { s.Host.Enrollment.Name = "another" },
			"spec.host.type": func(s *bootstrapv1.PoolbootConfigSpec) {
				s.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "edge-7", BareMetalHostName: "h"}
			},
			"host can't be": func(s *bootstrapv1.PoolbootConfigSpec) { s.Host = bootstrapv1.HostWithoutMachine{} },
		} {
			Expect(dryRun(change)).To(MatchError(ContainSubstring(field)))
		}
	})
})

var _ = Describe("The kind Enrollment", func() {
	const validSpec = `
clusterName: site
poolRole: infra
namePattern: rack[1-3]-edge-??.*
maxUses: 1000
expirationTime: "2030-01-01T00:00:00Z"
tokenSecretRef: {name: edge.tokens}
addressRanges: [192.0.2.0/24, "2001:db8::/64"]
`
	// create creates an Enrollment without webhooks. fields replace those of a valid spec, and null removes a field.
	create := func(ctx context.Context, namespace, fields string) (*poolv1.Enrollment, error) {
		GinkgoHelper()
		spec, changed := map[string]any{}, map[string]any{}
		Expect(yaml.Unmarshal([]byte(validSpec), &spec)).To(Succeed())
		Expect(yaml.Unmarshal([]byte(fields), &changed)).To(Succeed())
		for field, value := range changed {
			if spec[field] = value; value == nil {
				delete(spec, field)
			}
		}
		object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": poolv1.GroupVersion.String(), "kind": "Enrollment",
			"metadata": map[string]any{"namespace": namespace, "name": "edge"}, "spec": spec}}
		if err := k8sClient.Create(ctx, object); err != nil {
			return nil, err
		}
		e := &poolv1.Enrollment{}
		return e, k8sClient.Get(ctx, client.ObjectKeyFromObject(object), e)
	}

	It("accepts the fields as documented", func(ctx SpecContext) {
		Expect(create(ctx, newNamespace(ctx), "")).NotTo(BeNil())
	})

	It("has an immutable Cluster and pool, and mutable other fields", func(ctx SpecContext) {
		e, err := create(ctx, newNamespace(ctx), "")
		Expect(err).NotTo(HaveOccurred())
		dryRun := func(change func(*poolv1.EnrollmentSpec)) error {
			changed := e.DeepCopy()
			change(&changed.Spec)
			return k8sClient.Patch(ctx, changed, client.MergeFrom(e), client.DryRunAll)
		}
		Expect(dryRun(func(s *poolv1.EnrollmentSpec) { s.ClusterName = "another" })).To(MatchError(ContainSubstring("spec.clusterName: Invalid value: \"another\": it is immutable")))
		Expect(dryRun(func(s *poolv1.EnrollmentSpec) { s.PoolRole = "another" })).To(MatchError(ContainSubstring("spec.poolRole: Invalid value: \"another\": it is immutable")))
		Expect(dryRun(func(s *poolv1.EnrollmentSpec) {
			s.NamePattern, s.MaxUses, s.ExpirationTime, s.TokenSecretRef.Name, s.AddressRanges = "*", 1, metav1.NewTime(time.Now()), "another", nil
		})).To(Succeed())
	})
})
