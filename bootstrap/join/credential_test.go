package join_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

const (
	owner = "metal/infra-boot"
	ttl   = 15 * time.Minute
)

var _ = Describe("The join credential", func() {
	var (
		ctx      context.Context
		workload client.WithWatch
	)

	BeforeEach(func(specCtx SpecContext) {
		ctx = specCtx
		workload = fake.NewClientBuilder().Build()
	})

	ensure := func(current string) join.Credential {
		credential, err := join.EnsureCredential(ctx, workload, owner, current, ttl)
		Expect(err).NotTo(HaveOccurred())
		return credential
	}
	tokenOf := func(id string) *corev1.Secret {
		secret := &corev1.Secret{}
		Expect(workload.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + id}, secret)).To(Succeed())
		return secret
	}

	It("is a bootstrap token that can only request a certificate", func() {
		credential := ensure("")
		Expect(credential.Expires).To(BeTemporally("~", time.Now().Add(ttl), 10*time.Second))
		token := tokenOf(credential.ID)
		Expect(token.Type).To(BeEquivalentTo("bootstrap.kubernetes.io/token"))
		Expect(token.Data).To(Equal(map[string][]byte{
			"token-id":                       []byte(credential.ID),
			"token-secret":                   []byte(credential.Secret),
			"expiration":                     []byte(credential.Expires.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte("system:bootstrappers:poolboot"),
			"description":                    []byte("Poolboot's join credential for PoolbootConfig metal/infra-boot"),
		}))
	})

	It("is reused while it is valid for long enough", func() {
		first := ensure("")
		Expect(ensure(first.ID)).To(Equal(first))
	})

	DescribeTable("is replaced",
		func(change func(*corev1.Secret)) {
			first := ensure("")
			token := tokenOf(first.ID)
			change(token)
			Expect(workload.Update(ctx, token)).To(Succeed())
			second := ensure(first.ID)
			Expect(second.ID).NotTo(Equal(first.ID))
			Expect(second.Secret).NotTo(Equal(first.Secret))
			Expect(second.Expires).To(BeTemporally(">", time.Now().Add(join.MinLifetime)))
		},
		Entry("when it expires soon", func(token *corev1.Secret) {
			token.Data["expiration"] = []byte(time.Now().Add(join.MinLifetime - time.Minute).UTC().Format(time.RFC3339))
		}),
		Entry("when it belongs to another PoolbootConfig", func(token *corev1.Secret) { token.Data["description"] = []byte("of somebody else") }),
		Entry("when its expiration time cannot be read", func(token *corev1.Secret) { token.Data["expiration"] = []byte("soon") }),
		Entry("when it is incomplete", func(token *corev1.Secret) { delete(token.Data, "token-secret") }),
	)

	It("is replaced when it was deleted", func() {
		first := ensure("")
		Expect(join.DeleteCredential(ctx, workload, first.ID)).To(Succeed())
		Expect(ensure(first.ID).ID).NotTo(Equal(first.ID))
	})

	It("is valid for longer when it is extended", func() {
		credential := ensure("")
		expires, err := join.ExtendCredential(ctx, workload, credential.ID, time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(expires).To(BeTemporally("~", time.Now().Add(time.Hour), 10*time.Second))
		extended := ensure(credential.ID)
		Expect(extended.Secret).To(Equal(credential.Secret))
		Expect(extended.Expires).To(Equal(expires))
	})

	It("cannot be extended when it was deleted", func() {
		_, err := join.ExtendCredential(ctx, workload, "abc123", ttl)
		Expect(apierrors.IsNotFound(err)).To(BeTrue(), "got %v", err)
	})

	It("can be restored when it was deleted, and not before", func() {
		first := ensure("")
		_, err := join.RestoreCredential(ctx, workload, owner, first, ttl)
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "got %v", err)
		was := tokenOf(first.ID).Data
		Expect(join.DeleteCredential(ctx, workload, first.ID)).To(Succeed())
		expires, err := join.RestoreCredential(ctx, workload, owner, first, time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(expires).To(BeTemporally("~", time.Now().Add(time.Hour), 10*time.Second))
		was["expiration"] = []byte(expires.Format(time.RFC3339))
		Expect(tokenOf(first.ID).Data).To(Equal(was))
	})

	It("is not restored from an invalid token", func() {
		_, err := join.RestoreCredential(ctx, workload, owner, join.Credential{ID: "abc123"}, ttl)
		Expect(err).To(MatchError("join credential of PoolbootConfig metal/infra-boot: it is not a bootstrap token"))
	})

	It("is recognized for its owner, and for no other PoolbootConfig", func() {
		token := tokenOf(ensure("").ID)
		Expect(join.IsCredentialOf(token, owner)).To(BeTrue())
		Expect(join.IsCredentialOf(token, "boot")).To(BeFalse())
		Expect(join.IsCredentialOf(token, "metal/infra-boot-2")).To(BeFalse())
		token.Type = corev1.SecretTypeOpaque
		Expect(join.IsCredentialOf(token, owner)).To(BeFalse())
	})

	It("cannot be extended without an ID", func() {
		_, err := join.ExtendCredential(ctx, workload, "", ttl)
		Expect(err).To(MatchError(ContainSubstring("is not the ID of a bootstrap token")))
	})

	It("can be deleted more than once", func() {
		credential := ensure("")
		for range 2 {
			Expect(join.DeleteCredential(ctx, workload, credential.ID)).To(Succeed())
		}
		Expect(join.DeleteCredential(ctx, workload, "")).To(Succeed())
		tokens := &corev1.SecretList{}
		Expect(workload.List(ctx, tokens)).To(Succeed())
		Expect(tokens.Items).To(BeEmpty())
	})

	It("is not replaced when it cannot be read", func() {
		down := interceptor.NewClient(workload, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("connection refused")
			},
		})
		_, err := join.EnsureCredential(ctx, down, owner, "abc123", ttl)
		Expect(err).To(MatchError("join credential of PoolbootConfig metal/infra-boot: connection refused"))
	})

	It("does not show its secret when it is printed", func() {
		credential := ensure("")
		for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
			Expect(fmt.Sprintf(format, credential)).NotTo(ContainSubstring(credential.Secret))
		}
	})
})

var _ = Describe("The permissions to join", func() {
	type granted struct{ role, group string }

	rights := func(ctx context.Context, kubeadm bool) (cluster, namespaced []granted, workload client.Client) {
		workload = fake.NewClientBuilder().Build()
		for range 2 {
			Expect(join.EnsureRBAC(ctx, workload, kubeadm)).To(Succeed())
		}
		bindings := &rbacv1.ClusterRoleBindingList{}
		Expect(workload.List(ctx, bindings)).To(Succeed())
		for _, binding := range bindings.Items {
			for _, subject := range binding.Subjects {
				cluster = append(cluster, granted{binding.RoleRef.Name, subject.Name})
			}
		}
		roleBindings := &rbacv1.RoleBindingList{}
		Expect(workload.List(ctx, roleBindings, client.InNamespace("kube-system"))).To(Succeed())
		for _, binding := range roleBindings.Items {
			for _, subject := range binding.Subjects {
				namespaced = append(namespaced, granted{binding.RoleRef.Name, subject.Name})
			}
		}
		return cluster, namespaced, workload
	}

	It("let hosts request a certificate, and Nodes renew their own", func(ctx SpecContext) {
		cluster, namespaced, _ := rights(ctx, false)
		Expect(cluster).To(ConsistOf(
			granted{"system:node-bootstrapper", "system:bootstrappers:poolboot"},
			granted{"system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"}))
		Expect(namespaced).To(BeEmpty())
	})

	It("also let kubeadm read Nodes and its own ConfigMaps", func(ctx SpecContext) {
		cluster, namespaced, workload := rights(ctx, true)
		Expect(cluster).To(HaveLen(3))
		Expect(cluster).To(ContainElement(granted{"poolboot:kubeadm-join", "system:bootstrappers:poolboot"}))
		Expect(namespaced).To(ConsistOf(granted{"poolboot:kubeadm-join", "system:bootstrappers:poolboot"}))

		clusterRole := &rbacv1.ClusterRole{}
		Expect(workload.Get(ctx, client.ObjectKey{Name: "poolboot:kubeadm-join"}, clusterRole)).To(Succeed())
		Expect(clusterRole.Rules).To(Equal([]rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}}))
		role := &rbacv1.Role{}
		Expect(workload.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "poolboot:kubeadm-join"}, role)).To(Succeed())
		Expect(role.Rules).To(Equal([]rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{"kubeadm-config", "kubelet-config"}, Verbs: []string{"get"},
		}}))
	})
})
