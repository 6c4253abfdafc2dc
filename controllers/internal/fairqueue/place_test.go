package fairqueue_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
)

var _ = Describe("The place of a request", func() {
	It("for a PoolbootConfig is with its Cluster and its pool, and of one that is gone with its namespace", func() {
		scheme := runtime.NewScheme()
		Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
		config := &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge-0", Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}},
			Status:     bootstrapv1.PoolbootConfigStatus{PoolRole: "infra"},
		}
		placeOf := fairqueue.OfConfig(fake.NewClientBuilder().WithScheme(scheme).WithObjects(config).Build())
		Expect(placeOf(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)})).
			To(Equal(fairqueue.Place{Cluster: client.ObjectKey{Namespace: "metal", Name: "edge"}, Pool: "infra"}))
		Expect(placeOf(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "metal", Name: "edge-1"}})).
			To(Equal(fairqueue.Place{Cluster: client.ObjectKey{Namespace: "metal"}}))
	})

	It("for a Cluster is its own", func() {
		edge := client.ObjectKey{Namespace: "metal", Name: "edge"}
		Expect(fairqueue.OfCluster(ctrl.Request{NamespacedName: edge})).To(Equal(fairqueue.Place{Cluster: edge}))
	})
})
