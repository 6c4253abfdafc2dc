package nodeguard

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
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	confine "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var edge = client.ObjectKey{Namespace: "metal", Name: "edge"}

func poolOf(role, key string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: role},
		Spec: poolv1.MachineConfigPoolSpec{ClusterName: edge.Name, PoolRole: role,
			NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{key: "a"}}}}
}

// watched is a cluster cache that notes which watches are started.
type watched struct {
	clustercache.ClusterCache
	names *[]string
}

func (w *watched) Watch(_ context.Context, _ client.ObjectKey, watcher clustercache.Watcher) error {
	*w.names = append(*w.names, watcher.Name())
	return nil
}

var _ = Describe("The policy that guards Nodes", func() {
	var (
		cluster              *clusterv1.Cluster
		management, workload client.WithWatch
		told                 *events.FakeRecorder
		clusters             clustercache.ClusterCache
		watches              []string
	)

	BeforeEach(func(ctx SpecContext) {
		scheme := runtime.NewScheme()
		for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, clusterv1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme} {
			Expect(add(scheme)).To(Succeed())
		}
		cluster = &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name}}
		conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
		management = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()
		workload = fake.NewClientBuilder().WithScheme(scheme).Build()
		clusters = clustercache.NewFakeClusterCache(workload, edge)
		told, watches = events.NewFakeRecorder(10), nil
	})

	reconcile := func(ctx context.Context) error {
		r := &Reconciler{Client: management, ClusterCache: &watched{ClusterCache: clusters, names: &watches}, Recorder: told}
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: edge})
		return err
	}
	// guards are the policies that stand and are bound.
	guards := func(ctx context.Context) []admissionregistrationv1.ValidatingAdmissionPolicy {
		GinkgoHelper()
		policies, bindings := &admissionregistrationv1.ValidatingAdmissionPolicyList{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
		Expect(workload.List(ctx, policies)).To(Succeed())
		Expect(workload.List(ctx, bindings)).To(Succeed())
		Expect(bindings.Items).To(HaveLen(len(policies.Items)))
		for i, binding := range bindings.Items {
			Expect(binding.Spec.PolicyName).To(Equal(policies.Items[i].Name))
			Expect(binding.Spec.ValidationActions).To(ConsistOf(admissionregistrationv1.Deny))
		}
		return policies.Items
	}

	It("is applied once, and again when the pools select by other labels", func(ctx SpecContext) {
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		before := guards(ctx)
		Expect(before).To(HaveExactElements(HaveField("Name", "poolboot-node-guard.metal.edge")))
		Expect(before[0].Spec.Variables).To(ContainElement(HaveField("Expression", ContainSubstring(`"example.com/gpu"`))))

		Expect(reconcile(ctx)).To(Succeed())
		Expect(guards(ctx)).To(HaveExactElements(HaveField("Spec", before[0].Spec)))

		Expect(management.Create(ctx, poolOf("storage", "example.com/disks"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(guards(ctx)).To(HaveExactElements(HaveField("Spec.Variables", ContainElement(HaveField("Expression",
			And(ContainSubstring(`"example.com/gpu"`), ContainSubstring(`"example.com/disks"`)))))))
		Expect(told.Events).NotTo(Receive())
		Expect(watches[:6]).To(ConsistOf("nodeguard-clusterrole", "nodeguard-clusterrolebinding", "nodeguard-role", "nodeguard-rolebinding",
			"nodeguard-validatingadmissionpolicy", "nodeguard-validatingadmissionpolicybinding"))
	})

	It("comes with the rights to join once a host has been prepared for, and those of kubeadm while one joins by it", func(ctx SpecContext) {
		rights := func() (names []string) {
			bindings := &rbacv1.ClusterRoleBindingList{}
			Expect(workload.List(ctx, bindings, client.MatchingLabels{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot})).To(Succeed())
			for _, binding := range bindings.Items {
				names = append(names, binding.Name)
			}
			return names
		}
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: "one", Labels: map[string]string{clusterv1.ClusterNameLabel: edge.Name}},
			Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm}}}}
		Expect(management.Create(ctx, config)).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(rights()).To(BeEmpty())

		config.Status.NodeRef = bootstrapv1.NodeReference{Name: "one", UID: "1"}
		Expect(management.Update(ctx, config)).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(rights()).To(ConsistOf("poolboot:node-bootstrapper", "poolboot:node-certificate-renewal"))

		config.Status.Boot.CredentialID = "abcdef"
		Expect(management.Update(ctx, config)).To(Succeed())
		Expect(workload.Delete(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "poolboot:node-bootstrapper"}})).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(rights()).To(ConsistOf("poolboot:node-bootstrapper", "poolboot:node-certificate-renewal", "poolboot:kubeadm-join"))
	})

	It("is not made in a cluster without pools", func(ctx SpecContext) {
		Expect(reconcile(ctx)).To(Succeed())
		Expect(guards(ctx)).To(BeEmpty())
	})

	It("is left alone while its Cluster is paused", func(ctx SpecContext) {
		cluster.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		Expect(management.Update(ctx, cluster)).To(Succeed())
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(guards(ctx)).To(BeEmpty())
	})

	It("waits for a connection to its cluster", func(ctx SpecContext) {
		clusters = clustercache.NewFakeEmptyClusterCache()
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
	})

	It("tells on the Cluster when its kubeconfig is refused, before a host asks", func(ctx SpecContext) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: "edge-kubeconfig"}, Data: map[string][]byte{"value": []byte(
			`{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"a","user":"a"}}],"clusters":[{"name":"a","cluster":{"server":"https://a"}}],` +
				`"users":[{"name":"a","user":{"exec":{"command":"sh"}}}]}`)}}
		Expect(management.Create(ctx, secret)).To(Succeed())
		clusters = confine.Restrict(clustercache.NewFakeEmptyClusterCache(), management)
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(told.Events).To(Receive(And(HavePrefix("Warning KubeconfigInvalid"), ContainSubstring("users[0].user.exec"),
			ContainSubstring("correct the kubeconfig in Secret metal/edge-kubeconfig"))))
	})

	refusing := func(err error) clustercache.ClusterCache {
		return clustercache.NewFakeClusterCache(interceptor.NewClient(workload, interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				return err
			},
		}), edge)
	}

	It("is told to be missing in a cluster that is too old for it", func(ctx SpecContext) {
		clusters = refusing(&meta.NoKindMatchError{GroupKind: admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy").GroupKind(),
			SearchedVersions: []string{"v1"}})
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(Succeed())
		Expect(told.Events).To(Receive(And(HavePrefix("Warning "+poolv1.EventNodesUnguarded), ContainSubstring("upgrade the cluster"))))
	})

	It("is tried again when it can't be written", func(ctx SpecContext) {
		clusters = refusing(errors.New("no quorum"))
		Expect(management.Create(ctx, poolOf("gpu", "example.com/gpu"))).To(Succeed())
		Expect(reconcile(ctx)).To(MatchError(ContainSubstring("poolboot-node-guard.metal.edge: no quorum")))
		Expect(told.Events).NotTo(Receive())
	})
})
