package install_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
)

var _ = Describe("The manager's right to patch Secrets", func() {
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
		refused := MatchError(ContainSubstring("Poolboot's manager can"))

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
			"a label":         func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} },
			"an annotation":   func(s *corev1.Secret) { s.Annotations = map[string]string{"a": "b"} },
			"its owner":       func(s *corev1.Secret) { s.OwnerReferences = nil },
		} {
			Expect(dryRun(admin, ours, change)).To(refused, what)
		}
	})
})

func renameOwner(owner metav1.OwnerReference, name string) metav1.OwnerReference {
	owner.Name = name
	return owner
}

func changeOwnerKind(owner metav1.OwnerReference, name string) metav1.OwnerReference {
	owner.APIVersion, owner.Kind, owner.Name = "v1", "ConfigMap", name
	return owner
}
