package node

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("The Node of a BareMetalHost without a Machine", func() {
	noon := time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

	DescribeTable("that is Ready and not recorded",
		func(created time.Time, pointer string, hasJoined bool) {
			config := newConfig()
			config.OwnerReferences, config.Status = nil, bootstrapv1.PoolbootConfigStatus{}
			config.CreationTimestamp = metav1.Time{Time: noon}
			config.Spec.PoolRole, config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: name, BareMetalHostName: name}
			config.Annotations[bootstrapv1.PointerIDAnnotation] = pointer
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: oldUID, CreationTimestamp: metav1.Time{Time: created}, Labels: role("infra"),
				Annotations: map[string]string{poolv1.NodeConfigAnnotation: client.ObjectKeyFromObject(config).String()}}}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
			Expect(decide(facts{config: config, node: n, pools: pools()}).hasJoined).To(Equal(hasJoined))
		},
		Entry("belongs to an earlier installation if it is older than the PoolbootConfig", noon.Add(-time.Hour), "config-uid", false),
		Entry("belongs to an earlier installation, also before the PoolbootConfig has a pointer id", noon.Add(-time.Hour), "", false),
		Entry("belongs to the host after a move, which creates the PoolbootConfig again", noon.Add(-time.Hour), "uid-before-the-move", true),
		Entry("belongs to the host if it was pre-registered for this PoolbootConfig", noon.Add(time.Minute), "config-uid", true),
	)
})
