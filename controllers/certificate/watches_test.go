package certificate

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = DescribeTable("A change of a PoolbootConfig triggers the decisions about its requests",
	func(change func(*bootstrapv1.PoolbootConfig), triggers bool) {
		before := &bootstrapv1.PoolbootConfig{}
		before.ResourceVersion = "1"
		after := before.DeepCopy()
		after.ResourceVersion, after.ManagedFields = "2", []metav1.ManagedFieldsEntry{{Manager: "poolboot-manager"}}
		change(after)
		Expect(hostChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(triggers))
	},
	Entry("its credential", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.CredentialID = "aaaaaa" }, true),
	Entry("its Node", func(c *bootstrapv1.PoolbootConfig) { c.Status.NodeRef.Name = "edge-7" }, true),
	Entry("its pool", func(c *bootstrapv1.PoolbootConfig) { c.Status.PoolRole = "infra" }, true),
	Entry("its addresses", func(c *bootstrapv1.PoolbootConfig) { c.Annotations = map[string]string{"a": "b"} }, true),
	Entry("its Machine", func(c *bootstrapv1.PoolbootConfig) { c.OwnerReferences = []metav1.OwnerReference{{Name: "edge-7"}} }, true),
	Entry("its preparation", func(c *bootstrapv1.PoolbootConfig) {
		c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.BootPreparedCondition}}
	}, true),
	Entry("a resync", func(c *bootstrapv1.PoolbootConfig) { c.ResourceVersion = "1" }, true),
	Entry("but not the progress of its update", func(c *bootstrapv1.PoolbootConfig) {
		c.Status.Update.DesiredRevision = "2"
		c.Status.Conditions = []metav1.Condition{{Type: bootstrapv1.UpdatedCondition}, {Type: clusterv1.ReadyCondition}}
	}, false),
)

var _ = DescribeTable("A change of a BareMetalHost triggers the decisions about the requests of its host",
	func(change func(*bmov1alpha1.BareMetalHost), triggers bool) {
		before := newHost("192.0.2.7")
		after := before.DeepCopy()
		change(after)
		Expect(hostAddressesChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(triggers))
	},
	Entry("its annotated addresses", func(h *bmov1alpha1.BareMetalHost) {
		h.Annotations = map[string]string{poolv1.HostAddressesAnnotation: "192.0.2.8"}
	}, true),
	Entry("its inspection", func(h *bmov1alpha1.BareMetalHost) { h.Status.HardwareDetails = nil }, true),
	Entry("the Secret with its network data", func(h *bmov1alpha1.BareMetalHost) { h.Spec.PreprovisioningNetworkDataName = "another" }, true),
	Entry("but not its power", func(h *bmov1alpha1.BareMetalHost) { h.Status.PoweredOn = true }, false),
)
