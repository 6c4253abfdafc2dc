package install_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

var _ = Describe("The manager's right to write Secrets", func() {
	refused := MatchError(ContainSubstring("Poolboot's manager can"))

	DescribeTable("creates no Secret that", func(ctx SpecContext, isOwn bool, change func(*corev1.Secret)) {
		namespace := managerNamespace
		if !isOwn {
			namespace = newNamespace(ctx)
		}
		secret := newDataSecret(namespace)
		if isOwn {
			secret = newOverlay()
		}
		asManager := newClientAs(ctx, rights.Manager, nil)
		Eventually(func() error { return asManager.Create(ctx, secret.DeepCopy(), client.DryRunAll) }).Should(Succeed(), "its own kind of Secret")
		change(secret)
		Eventually(func() error { return asManager.Create(ctx, secret.DeepCopy(), client.DryRunAll) }).Should(refused, "the API server enforces a new policy with a delay")
		if secret.Type != corev1.SecretTypeServiceAccountToken { // needs the ServiceAccount
			Expect(k8sClient.Create(ctx, secret.DeepCopy(), client.DryRunAll)).To(Succeed(), "other clients")
		}
	},
		Entry("gets the token of a ServiceAccount", false, func(s *corev1.Secret) {
			s.Type, s.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: "default"}
		}),
		Entry("gets the token of a ServiceAccount of its own namespace", true, func(s *corev1.Secret) {
			s.Type, s.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{corev1.ServiceAccountNameKey: rights.ConfigServer}
		}),
		Entry("is a bootstrap token", false, func(s *corev1.Secret) { s.Type = bootstrapapi.SecretTypeBootstrapToken }),
		Entry("is a user's", false, func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }),
		Entry("admits hosts", false, func(s *corev1.Secret) { s.Type = poolv1.EnrollmentTokenType }),
		Entry("belongs to nothing", false, func(s *corev1.Secret) { s.OwnerReferences = nil }),
		Entry("is the kubeconfig of a Cluster", false, func(s *corev1.Secret) { s.Name = "edge-kubeconfig" }),
		Entry("is the kubeconfig of a Cluster, beside a PoolbootConfig with its name", false, func(s *corev1.Secret) { s.Name, s.OwnerReferences[0].Name = "edge-kubeconfig", "edge-kubeconfig" }),
		Entry("has other values", false, func(s *corev1.Secret) { s.Data["tls.key"] = []byte("x") }),
		Entry("is neither an overlay nor an assignment", true, func(s *corev1.Secret) { s.Name = "poolboot-ca-next" }),
		Entry("has no label of an overlay", true, func(s *corev1.Secret) { s.Labels = nil }),
	)

	It("does not include the other Secrets of its own namespace", func(ctx SpecContext) {
		asManager := newClientAs(ctx, rights.Manager, nil)
		overlay, key := newOverlay(), newOverlay()
		overlay.Finalizers = []string{"example.com/kept"} // the manager deletes overlays without their PoolbootConfig
		key.Name, key.Labels = "ca-key", nil
		for _, secret := range []*corev1.Secret{overlay, key} {
			Expect(k8sClient.Create(ctx, secret)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) error {
				patched := client.IgnoreNotFound(k8sClient.Patch(ctx, secret, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
				return errors.Join(patched, client.IgnoreNotFound(k8sClient.Delete(ctx, secret)))
			})
		}
		replace := func(s *corev1.Secret) error {
			return asManager.Patch(ctx, s.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"data":{"overlay":"eA=="}}`)), client.DryRunAll)
		}
		adopt := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+bootstrapv1.OverlayLabel+`":"1"}}}`))
		Eventually(func() error { return replace(key) }).Should(refused)
		Expect(asManager.Patch(ctx, key.DeepCopy(), adopt, client.DryRunAll)).To(refused)
		Expect(asManager.Delete(ctx, key.DeepCopy(), client.DryRunAll)).To(refused)
		Expect(replace(overlay)).To(Succeed())
		Expect(asManager.Delete(ctx, overlay.DeepCopy(), client.DryRunAll)).To(Succeed())
	})

	It("is limited, outside its own namespace, to the value in data Secrets of PoolbootConfigs", func(ctx SpecContext) {
		asManager := newClientAs(ctx, rights.Manager, nil)
		// A client with all rights shows that the policy refuses, not RBAC.
		admin := newAdminNamed(rights.Manager)
		namespace := newNamespace(ctx)
		owner := metav1.OwnerReference{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Name: "infra-1", UID: "of-the-config", Controller: ptr.To(true)}
		secret := func(name string, kind corev1.SecretType, owners ...metav1.OwnerReference) *corev1.Secret {
			GinkgoHelper()
			created := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, OwnerReferences: owners}, Type: kind,
				Data: map[string][]byte{"value": []byte("{}"), "format": []byte("ignition")}}
			Expect(k8sClient.Create(ctx, created)).To(Succeed())
			return created
		}
		dryRun := func(by client.Client, before *corev1.Secret, change func(*corev1.Secret)) error {
			changed := before.DeepCopy()
			change(changed)
			return by.Patch(ctx, changed, client.MergeFrom(before), client.DryRunAll)
		}
		rotate := func(s *corev1.Secret) { s.Data["value"] = []byte("{ }") }
		kubeconfig := secret("edge-kubeconfig", clusterv1.ClusterSecretType)
		Eventually(func() error { return dryRun(admin, kubeconfig, rotate) }).Should(refused, "the API server enforces a new policy with a delay")
		ours := secret("infra-1", clusterv1.ClusterSecretType, owner)
		Expect(dryRun(asManager, ours, rotate)).To(Succeed())
		for what, another := range map[string]*corev1.Secret{
			"a user's Secret":                 secret("mine", corev1.SecretTypeOpaque),
			"a user's Secret with an owner":   secret("infra-1-not", clusterv1.ClusterSecretType, owner),
			"a Secret of another type":        secret("infra-2", corev1.SecretTypeOpaque, renameOwner(owner, "infra-2")),
			"a Secret that another kind owns": secret("infra-3", clusterv1.ClusterSecretType, changeOwnerKind(owner, "infra-3")),
		} {
			Expect(dryRun(admin, another, rotate)).To(refused, what)
			Expect(dryRun(k8sClient, another, rotate)).To(Succeed(), "other clients: "+what)
		}
		for what, change := range map[string]func(*corev1.Secret){
			"the format":      func(s *corev1.Secret) { s.Data["format"] = []byte("cloud-config") },
			"another value":   func(s *corev1.Secret) { s.Data["more"] = []byte("x") },
			"a removed value": func(s *corev1.Secret) { delete(s.Data, "format") },
			"immutability":    func(s *corev1.Secret) { s.Immutable = ptr.To(true) },
			"a label":         func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} },
			"an annotation":   func(s *corev1.Secret) { s.Annotations = map[string]string{"a": "b"} },
			"its owner":       func(s *corev1.Secret) { s.OwnerReferences = nil },
		} {
			Expect(dryRun(admin, ours, change)).To(refused, what)
		}
	})
})

// newDataSecret returns a Secret that the manager creates for a host.
func newDataSecret(namespace string) *corev1.Secret {
	owner := metav1.OwnerReference{APIVersion: bootstrapv1.GroupVersion.String(), Kind: "PoolbootConfig", Name: "infra-1", UID: "of-the-config", Controller: ptr.To(true)}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "infra-1", OwnerReferences: []metav1.OwnerReference{owner}, Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}},
		Type:       clusterv1.ClusterSecretType, Data: map[string][]byte{"value": []byte("{}"), "format": []byte("ignition")},
	}
}

// newOverlay returns a Secret that the manager creates in its own namespace.
func newOverlay() *corev1.Secret {
	config := types.UID("6f1f9d0e")
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: managerNamespace, Name: record.OverlayName(config), Labels: map[string]string{bootstrapv1.OverlayLabel: string(config)}},
		Type:       corev1.SecretTypeOpaque, Data: map[string][]byte{bootstrapv1.OverlayKey: []byte("{}")},
	}
}

func renameOwner(owner metav1.OwnerReference, name string) metav1.OwnerReference {
	owner.Name = name
	return owner
}

func changeOwnerKind(owner metav1.OwnerReference, name string) metav1.OwnerReference {
	owner.APIVersion, owner.Kind, owner.Name = "v1", "ConfigMap", name
	return owner
}

var _ = Describe("The manager's right to create and delete MachineConfigs", func() {
	It("is limited to rendered configs", func(ctx SpecContext) {
		asManager, namespace := newClientAs(ctx, rights.Manager, nil), newNamespace(ctx)
		refused := MatchError(ContainSubstring("Poolboot's manager can only create and delete rendered configs"))
		config := func(name, renderedFor string) *poolv1.MachineConfig {
			c := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}
			if renderedFor != "" {
				c.Labels = map[string]string{poolv1.RenderedForLabel: renderedFor}
			}
			return c
		}
		mine := config("mine", "")
		Expect(k8sClient.Create(ctx, mine)).To(Succeed())
		Eventually(func() error { return asManager.Delete(ctx, mine.DeepCopy(), client.DryRunAll) }).Should(refused)
		Expect(asManager.Create(ctx, config("theirs", "infra"), client.DryRunAll)).To(refused)
		Expect(asManager.Create(ctx, config("theirs", ""), client.DryRunAll)).To(refused)
		name, err := pool.NameFor("infra", mine.Spec)
		Expect(err).NotTo(HaveOccurred())
		Expect(asManager.Create(ctx, config(name, "infra"), client.DryRunAll)).To(Succeed())
	})
})
