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
	RunSpecs(t, "Pools that take hosts without a Machine")
}

var _ = Describe("Those who have a Cluster's pools looked up", func() {
	It("look again when its deletion begins, and when it is gone", func() {
		is, goes := &clusterv1.Cluster{}, &clusterv1.Cluster{}
		now := metav1.Now()
		goes.DeletionTimestamp = &now
		Expect(clusterDeletion().Update(event.UpdateEvent{ObjectOld: is, ObjectNew: goes})).To(BeTrue())
		Expect(clusterDeletion().Update(event.UpdateEvent{ObjectOld: goes, ObjectNew: goes})).To(BeFalse())
		Expect(clusterDeletion().Update(event.UpdateEvent{ObjectOld: is, ObjectNew: is})).To(BeFalse())
		Expect(clusterDeletion().Delete(event.DeleteEvent{Object: goes})).To(BeTrue())
	})
})
