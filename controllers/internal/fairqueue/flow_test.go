package fairqueue_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
)

var _ = Describe("The flow of a request", func() {
	It("for a PoolbootConfig is that of its pool, or of its namespace if the PoolbootConfig does not exist", func() {
		config := &bootstrapv1.PoolbootConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "edge-0", Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}},
			Status:     bootstrapv1.PoolbootConfigStatus{PoolRole: "infra"},
		}
		flowOf := fairqueue.FlowOfConfig(fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(config).Build())
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal", Name: "edge"}, Pool: "infra"}))
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "metal", Name: "edge-1"}})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal"}}))
	})

	It("for a PoolbootConfig that is being deleted is not that of its pool, whose hosts it would wait for", func() {
		now := metav1.Now()
		config := controllertest.NewConfig(client.ObjectKey{Namespace: "metal", Name: "edge"}, "edge-0")
		config.Status.PoolRole, config.DeletionTimestamp, config.Finalizers = "infra", &now, []string{bootstrapv1.Finalizer}
		flowOf := fairqueue.FlowOfConfig(controllertest.NewClientBuilder(config).Build())
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal", Name: "edge"}}))
	})

	It("for a MachineConfigPool is that of the pool, or of its namespace if the pool does not exist", func() {
		infra := controllertest.NewPool(client.ObjectKey{Namespace: "metal", Name: "edge"}, "infra")
		flowOf := fairqueue.FlowOfPool(controllertest.NewClientBuilder(infra).Build())
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(infra)})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal", Name: "edge"}, Pool: "infra"}))
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "metal", Name: "gone"}})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal"}}))
	})

	It("for an Enrollment is that of its Cluster, or of its namespace if the Enrollment does not exist", func() {
		workers := &poolv1.Enrollment{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers"}, Spec: poolv1.EnrollmentSpec{ClusterName: "edge"}}
		flowOf := fairqueue.FlowOfEnrollment(controllertest.NewClientBuilder(workers).Build())
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(workers)})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal", Name: "edge"}}))
		Expect(flowOf(ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "metal", Name: "gone"}})).
			To(Equal(fairqueue.Flow{Cluster: client.ObjectKey{Namespace: "metal"}}))
	})

	It("for a Cluster is that of the Cluster", func() {
		edge := client.ObjectKey{Namespace: "metal", Name: "edge"}
		Expect(fairqueue.FlowOfCluster(ctrl.Request{NamespacedName: edge})).To(Equal(fairqueue.Flow{Cluster: edge}))
	})
})
