package record_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("The names that belong to a PoolbootConfig", func() {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: "infra-x7k", UID: "u-1", Labels: map[string]string{"cluster.x-k8s.io/cluster-name": "edge"}}}

	It("are those of itself, its Cluster and its overlay", func() {
		Expect(record.Key(config)).To(Equal(types.NamespacedName{Namespace: "metal", Name: "infra-x7k"}))
		Expect(record.ClusterName(config)).To(Equal("edge"))
		Expect(record.ClusterKey(config)).To(Equal(types.NamespacedName{Namespace: "metal", Name: "edge"}))
		Expect(record.ClusterName(&bootstrapv1.PoolbootConfig{})).To(BeEmpty())
		Expect(record.OverlayName(config.UID)).To(Equal("overlay-u-1"))
		Expect(record.OverlayOwner(record.OverlayName(config.UID))).To(Equal(config.UID))
	})

	DescribeTable("of its host in messages is the one that users know", func(change func(*bootstrapv1.PoolbootConfig), name string) {
		config := config.DeepCopy()
		config.OwnerReferences = []metav1.OwnerReference{{Kind: "Machine", Name: "infra-m"}}
		change(config)
		Expect(record.HostName(config)).To(Equal(name))
	},
		Entry("its Node", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.NodeRef.Name, c.Status.HostRef.Name = "node-7", "rack1-u12"
		}, "node-7"),
		Entry("its BareMetalHost before it has a Node", func(c *bootstrapv1.PoolbootConfig) { c.Status.HostRef.Name = "rack1-u12" }, "rack1-u12"),
		Entry("its BareMetalHost without a Machine before it boots", func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: "node-7", BareMetalHostName: "rack1-u12"}
		}, "rack1-u12"),
		Entry("the name with which it enrolled", func(c *bootstrapv1.PoolbootConfig) { c.Spec.Host.NodeName = "shop-7" }, "shop-7"),
		Entry("its Machine before it has a host", func(*bootstrapv1.PoolbootConfig) {}, "infra-m"),
		Entry("the PoolbootConfig without any of these", func(c *bootstrapv1.PoolbootConfig) { c.OwnerReferences = nil }, "infra-x7k"),
	)

	DescribeTable("are on the Node that was pre-registered for it", func(annotation string, found, its bool) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"poolboot.io/poolbootconfig": annotation}}}
		_, ok := record.ConfigOfNode(node)
		Expect([]bool{ok, record.IsNodeOf(node, config)}).To(Equal([]bool{found, its}))
	},
		Entry("of this PoolbootConfig", "metal/infra-x7k", true, true),
		Entry("of another name", "metal/infra", true, false),
		Entry("of another namespace", "other/infra-x7k", true, false),
		Entry("of no namespace", "/infra-x7k", false, false),
		Entry("of no name", "metal/", false, false),
		Entry("of no PoolbootConfig", "", false, false),
	)
})

var _ = Describe("The kind of a host", func() {
	DescribeTable("is that of spec.host", func(host bootstrapv1.HostType, kind record.HostKind, machineless, enrolled bool) {
		config := &bootstrapv1.PoolbootConfig{Spec: bootstrapv1.PoolbootConfigSpec{Host: bootstrapv1.HostWithoutMachine{Type: host}}}
		Expect(record.HostKindOf(config)).To(Equal(kind))
		Expect([]bool{record.IsMachineless(config), record.IsEnrolled(config)}).To(Equal([]bool{machineless, enrolled}))
	},
		Entry("of a Machine", bootstrapv1.HostType(""), record.MachineHost, false, false),
		Entry("of a BareMetalHost", bootstrapv1.HostTypeBareMetalHost, record.BareMetalHost, true, false),
		Entry("of an Enrollment", bootstrapv1.HostTypeEnrollment, record.EnrolledHost, true, true),
	)
})

var _ = Describe("The progress of a boot", func() {
	type answers struct{ requested, pending, prepared, waiting, withdrawn, inPool, missing, complete, released bool }
	answersOf := func(c *bootstrapv1.PoolbootConfig) answers {
		return answers{record.HasRequested(c), record.IsRequestPending(c), record.IsPrepared(c), record.IsWaitingForHost(c), record.IsWithdrawn(c),
			record.IsNodeInPool(c), record.IsNodeMissing(c), record.IsBootComplete(c), record.IsReleased(c)}
	}
	waiting := condition(bootstrapv1.BootPreparedCondition, bootstrapv1.WaitingForRequestReason, metav1.ConditionUnknown, 0)
	prepared := condition(bootstrapv1.BootPreparedCondition, bootstrapv1.BootPreparedReason, metav1.ConditionTrue, 0)
	inPool := condition(bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeReadyInPoolReason, metav1.ConditionTrue, 0)
	missing := condition(bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeMissingReason, metav1.ConditionFalse, 0)
	revoked := map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}

	DescribeTable("is read from times, conditions and the token", func(requested *metav1.MicroTime, boot bootstrapv1.BootStatus, annotations map[string]string, want answers, cs ...metav1.Condition) {
		config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}, Status: bootstrapv1.PoolbootConfigStatus{
			Requests: bootstrapv1.HostRequests{RequestedTime: requested}, Boot: boot, Conditions: cs}}
		Expect(answersOf(config)).To(Equal(want))
	},
		Entry("at the beginning", nil, bootstrapv1.BootStatus{}, nil, answers{}),
		Entry("with a chosen host", nil, bootstrapv1.BootStatus{}, nil, answers{waiting: true}, waiting),
		Entry("with the first request", micro(1), bootstrapv1.BootStatus{}, nil, answers{requested: true, pending: true, waiting: true}, waiting),
		Entry("prepared", micro(1), bootstrapv1.BootStatus{PreparedTime: micro(2), AnsweredRequestTime: micro(1), CredentialID: "abcdef"}, nil,
			answers{requested: true, prepared: true}, prepared),
		Entry("prepared by a manager whose clock is behind", micro(2), bootstrapv1.BootStatus{PreparedTime: micro(1), AnsweredRequestTime: micro(2)}, nil,
			answers{requested: true, prepared: true}, prepared),
		Entry("prepared for an inline data Secret", nil, bootstrapv1.BootStatus{PreparedTime: micro(2)}, nil, answers{prepared: true}, prepared),
		Entry("with another request, from a clock that is behind", micro(1), bootstrapv1.BootStatus{PreparedTime: micro(2), AnsweredRequestTime: micro(3)}, nil,
			answers{requested: true, pending: true, prepared: true}, prepared),
		Entry("withdrawn", micro(1), bootstrapv1.BootStatus{PreparedTime: micro(2), AnsweredRequestTime: micro(1)}, nil,
			answers{requested: true, waiting: true, withdrawn: true}, waiting),
		Entry("withdrawn, with a request since", micro(3), bootstrapv1.BootStatus{PreparedTime: micro(2), AnsweredRequestTime: micro(1)}, nil,
			answers{requested: true, pending: true, waiting: true}, waiting),
		Entry("without its Node", nil, bootstrapv1.BootStatus{PreparedTime: micro(2)}, nil, answers{prepared: true, missing: true}, prepared, missing),
		Entry("with its Node in the pool", nil, bootstrapv1.BootStatus{CredentialID: "abcdef"}, nil, answers{inPool: true, complete: true}, inPool),
		Entry("with a revoked token and a credential", nil, bootstrapv1.BootStatus{CredentialID: "abcdef"}, revoked, answers{complete: true}),
		Entry("released", nil, bootstrapv1.BootStatus{}, revoked, answers{complete: true, released: true}),
	)

	It("includes whether the join credential was used", func() {
		config := &bootstrapv1.PoolbootConfig{}
		Expect([]bool{record.HasCredential(config), record.IsCredentialUsed(config)}).To(Equal([]bool{false, false}))
		config.Status.Boot.CredentialID = "abcdef"
		Expect([]bool{record.HasCredential(config), record.IsCredentialUsed(config)}).To(Equal([]bool{true, false}))
		config.Status.Certificate = bootstrapv1.GrantedCertificate{CredentialID: "uvwxyz", PublicKeySHA256: "00"}
		Expect(record.IsCredentialUsed(config)).To(BeFalse(), "an earlier credential was used")
		config.Status.Certificate.CredentialID = "abcdef"
		Expect(record.IsCredentialUsed(config)).To(BeTrue())
	})
})
