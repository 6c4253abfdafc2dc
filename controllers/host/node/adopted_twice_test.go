package node

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("A Node of the control plane that two PoolbootConfigs adopt", func() {
	var (
		s      *site
		first  = client.ObjectKey{Namespace: namespace, Name: "first"}
		second = client.ObjectKey{Namespace: namespace, Name: "second"}
	)
	reconcile := func(ctx context.Context, keys ...client.ObjectKey) {
		GinkgoHelper()
		for range 3 {
			for _, key := range keys {
				Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).Error().NotTo(HaveOccurred())
			}
		}
	}
	read := func(ctx context.Context, key client.ObjectKey) *bootstrapv1.PoolbootConfig {
		GinkgoHelper()
		config := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx, key, config)).To(Succeed())
		return config
	}
	node := func(ctx context.Context) *corev1.Node {
		GinkgoHelper()
		node := &corev1.Node{}
		Expect(s.workload.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		return node
	}
	// register lets the kubelet register the Node, which has nothing of Poolboot then.
	register := func(ctx context.Context, uid string) {
		GinkgoHelper()
		registered := controllertest.NewNode(name, "control-plane")
		registered.UID = types.UID(uid)
		ready(registered)
		Expect(client.IgnoreNotFound(s.workload.Delete(ctx, node(ctx)))).To(Succeed())
		Expect(s.workload.Create(ctx, registered)).To(Succeed())
	}
	expectOwner := func(ctx context.Context, owner, other client.ObjectKey) {
		GinkgoHelper()
		Expect(node(ctx).Annotations).To(HaveKeyWithValue(poolv1.NodeConfigAnnotation, owner.String()))
		Expect(read(ctx, owner).Status.NodeRef.UID).To(Equal(string(node(ctx).UID)))
		Expect(conditions.GetReason(read(ctx, owner), bootstrapv1.NodeInPoolCondition)).To(Equal(bootstrapv1.NodeReadyInPoolReason))
		Expect(read(ctx, other).Status.NodeRef).To(BeZero())
		Expect(*conditions.Get(read(ctx, other), bootstrapv1.NodeInPoolCondition)).To(And(HaveField("Reason", bootstrapv1.NodeNameTakenReason),
			HaveField("Message", HavePrefix("Node "+name+" does not belong to PoolbootConfig "+other.Name+": it belongs to PoolbootConfig "+owner.String()+". Delete the one of both that is not needed"))))
	}

	BeforeEach(func(ctx SpecContext) {
		s = newSite(func(f *facts) {
			p := controllertest.NewPool(client.ObjectKey{Namespace: namespace, Name: clusterName}, poolv1.RoleControlPlane)
			p.Spec.Node.Labels = map[string]string{"example.com/etcd": "stacked"}
			f.pools = append(f.pools, *p)
		})
		Expect(s.Delete(ctx, newConfig())).To(Succeed()) // it has the Node on record
		register(ctx, "node-1")
		for _, key := range []client.ObjectKey{first, second} {
			config := record.NewAdoption(key, clusterName, name, poolv1.RoleControlPlane, bootstrapv1.AdoptionFollow)
			config.UID = types.UID(key.Name)
			record.RevokeToken(config)
			Expect(s.Create(ctx, config)).To(Succeed())
		}
	})

	It("belongs to the one that had it first, and the other one says so", func(ctx SpecContext) {
		reconcile(ctx, first, second)
		expectOwner(ctx, first, second)
	})

	It("belongs to the same one after it has registered again, whichever is reconciled first", func(ctx SpecContext) {
		reconcile(ctx, first, second)
		register(ctx, "node-2")
		reconcile(ctx, second, first)
		expectOwner(ctx, first, second)
	})

	It("belongs to the other one after the first one was deleted", func(ctx SpecContext) {
		reconcile(ctx, first, second)
		Expect(s.Delete(ctx, read(ctx, first))).To(Succeed())
		released := node(ctx)
		delete(released.Annotations, poolv1.NodeConfigAnnotation) // as the deletion does
		Expect(s.workload.Update(ctx, released)).To(Succeed())
		reconcile(ctx, second)
		Expect(node(ctx).Annotations).To(HaveKeyWithValue(poolv1.NodeConfigAnnotation, second.String()))
		Expect(conditions.GetReason(read(ctx, second), bootstrapv1.NodeInPoolCondition)).To(Equal(bootstrapv1.NodeReadyInPoolReason))
	})

	It("does not fill the condition with what its host claims", func(ctx SpecContext) {
		claims := node(ctx)
		claims.Annotations = map[string]string{poolv1.NodeConfigAnnotation: "site/" + strings.Repeat("a", 100_000)}
		Expect(s.workload.Update(ctx, claims)).To(Succeed())
		reconcile(ctx, first)
		Expect(conditions.GetReason(read(ctx, first), bootstrapv1.NodeInPoolCondition)).To(Equal(bootstrapv1.NodeNameTakenReason))
		Expect(len(conditions.GetMessage(read(ctx, first), bootstrapv1.NodeInPoolCondition))).To(BeNumerically("<", 2048))
	})
})
