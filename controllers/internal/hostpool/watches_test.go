package hostpool

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestHostpool(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Pools of hosts without a Machine")
}

var _ = Describe("The watch on Clusters", func() {
	It("triggers at the start and at the end of a deletion", func() {
		before, deleted := &clusterv1.Cluster{}, &clusterv1.Cluster{}
		now := metav1.Now()
		deleted.DeletionTimestamp = &now
		Expect(clusterDeletion().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: deleted})).To(BeTrue())
		Expect(clusterDeletion().Update(event.UpdateEvent{ObjectOld: deleted, ObjectNew: deleted})).To(BeFalse())
		Expect(clusterDeletion().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: before})).To(BeFalse())
		Expect(clusterDeletion().Delete(event.DeleteEvent{Object: deleted})).To(BeTrue())
	})
})
