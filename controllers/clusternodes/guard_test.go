package clusternodes

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	workloads "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var edge = client.ObjectKey{Namespace: "metal", Name: "edge"}

func newPool(role, key string) *poolv1.MachineConfigPool {
	pool := controllertest.NewPool(edge, role)
	pool.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: "a"}}
	return pool
}

var _ = Describe("The policy that guards Nodes", func() {
	var (
		cluster              *clusterv1.Cluster
		management, workload client.WithWatch
		recorder             *events.FakeRecorder
		clusters             *controllertest.ClusterCache
	)

	BeforeEach(func(ctx SpecContext) {
		cluster = controllertest.NewCluster(edge)
		management = controllertest.NewClientBuilder(cluster).Build()
		workload = controllertest.NewClientBuilder().Build()
		clusters = controllertest.NewClusterCache(workload, edge)
		recorder = events.NewFakeRecorder(10)
	})

	reconcile := func(ctx context.Context) error {
		r := &Reconciler{Client: management, ClusterCache: clusters, Recorder: recorder}
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: edge})
		return err
	}
	// policies returns the policies, and verifies that they are bound.
	policies := func(ctx context.Context) []admissionregistrationv1.ValidatingAdmissionPolicy {
		GinkgoHelper()
		list, bindings := &admissionregistrationv1.ValidatingAdmissionPolicyList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
		Expect(workload.List(ctx, list)).To(Succeed())
		Expect(workload.List(ctx, bindings)).To(Succeed())
		Expect(bindings.Items).To(HaveLen(len(list.Items)))
		for i, binding := range bindings.Items {
			Expect(binding.Spec.PolicyName).To(Equal(list.Items[i].Name))
			Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny))
		}
		return list.Items
	}

	It("is applied once, and again when the pools select by other labels", func(ctx SpecContext) {
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		before := policies(ctx)
		Expect(before).To(HaveExactElements(HaveField("Name", "poolboot-node-guard.metal.edge")))
		Expect(before[0].Spec.Variables).To(ContainElement(HaveField("Expression", ContainSubstring(`"example.com/gpu"`))))

		Expect(reconcile(ctx)).To(Succeed())
		Expect(policies(ctx)).To(HaveExactElements(HaveField("Spec", before[0].Spec)))

		Expect(management.Create(ctx, newPool("storage", "example.com/disks"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(policies(ctx)).To(HaveExactElements(HaveField("Spec.Variables", ContainElement(HaveField("Expression",
			And(ContainSubstring(`"example.com/gpu"`), ContainSubstring(`"example.com/disks"`)))))))
		Expect(recorder.Events).NotTo(Receive())
		Expect(clusters.Watches[:6]).To(ConsistOf("clusternodes-clusterrole", "clusternodes-clusterrolebinding", "clusternodes-role", "clusternodes-rolebinding",
			"clusternodes-validatingadmissionpolicy", "clusternodes-validatingadmissionpolicybinding"))
	})

	It("is applied with the RBAC objects for joins after a boot is prepared, and with those for kubeadm while a host joins with kubeadm", func(ctx SpecContext) {
		roleBindings := func() (names []string) {
			bindings := &rbacv1.ClusterRoleBindingList{}
			Expect(workload.List(ctx, bindings, client.MatchingLabels{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot})).To(Succeed())
			for _, binding := range bindings.Items {
				names = append(names, binding.Name)
			}
			return names
		}
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		config := controllertest.NewConfig(edge, "one")
		config.Spec.Join.Type = bootstrapv1.JoinTypeKubeadm
		Expect(management.Create(ctx, config)).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(roleBindings()).To(BeEmpty())

		config.Status.NodeRef = bootstrapv1.NodeReference{Name: "one", UID: "1"}
		Expect(management.Update(ctx, config)).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(roleBindings()).To(ConsistOf("poolboot:node-bootstrapper", "poolboot:node-certificate-renewal"))

		config.Status.Boot.CredentialID = "abcdef"
		Expect(management.Update(ctx, config)).To(Succeed())
		Expect(workload.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "poolboot:node-bootstrapper"}})).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(roleBindings()).To(ConsistOf("poolboot:node-bootstrapper", "poolboot:node-certificate-renewal", "poolboot:kubeadm-join"))
	})

	It("is not applied in a cluster without pools", func(ctx SpecContext) {
		Expect(reconcile(ctx)).To(Succeed())
		Expect(policies(ctx)).To(BeEmpty())
	})

	It("does not change while its Cluster is paused", func(ctx SpecContext) {
		cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(management.Update(ctx, cluster)).To(Succeed())
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(policies(ctx)).To(BeEmpty())
	})

	It("is applied after the cluster is connected", func(ctx SpecContext) {
		clusters.Unreachable = true
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
	})

	It("is not applied if the kubeconfig is invalid, which an event on the Cluster reports", func(ctx SpecContext) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: "edge-kubeconfig"}, Data: map[string][]byte{"value": []byte(
			`{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"clusters":[{"name":"a","cluster":{"server":"https://a"}}],` +
				`"users":[{"name":"a","user":{"exec":{"command":"sh"}}}]}`)}}
		Expect(management.Create(ctx, secret)).To(Succeed())
		clusters.ClusterCache = workloads.Restrict(clustercache.NewFakeEmptyClusterCache(), management)
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(recorder.Events).To(Receive(And(HavePrefix("Warning KubeconfigInvalid"), ContainSubstring("users[0].user.exec"),
			ContainSubstring("correct the kubeconfig in Secret metal/edge-kubeconfig"))))
	})

	failApply := func(err error) {
		clusters.Cached = interceptor.NewClient(workload, interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return err
			},
		})
	}

	It("is reported as missing in a cluster with an old version of Kubernetes", func(ctx SpecContext) {
		failApply(&meta.NoKindMatchError{GroupKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy").GroupKind(),
			SearchedVersions: []string{"v1"}})
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(recorder.Events).To(Receive(And(HavePrefix("Warning "+poolv1.EventNodesUnguarded), ContainSubstring("upgrade the cluster"))))
	})

	It("is retried after an error", func(ctx SpecContext) {
		failApply(errors.New("no quorum"))
		Expect(management.Create(ctx, newPool("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(MatchError(ContainSubstring("poolboot-node-guard.metal.edge: no quorum")))
		Expect(recorder.Events).NotTo(Receive())
	})
})
