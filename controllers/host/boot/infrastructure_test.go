package boot

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

var _ = Describe("A host of another infrastructure provider", func() {
	var s *setting
	BeforeEach(func() {
		s = newSetting()
		s.machine.Spec.InfrastructureRef.Kind, s.machine.Spec.ProviderID = "BareMachine", "bare://rack1/u12"
	})

	It("boots into the pool of its Machine, and is not reconciled again until its credential must be extended", func(ctx SpecContext) {
		w := s.world()
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.writes).To(BeZero(), "nothing is known about it before its request")
		Expect(w.sendRequest(ctx)).To(BeZero())
		node := w.node(ctx)
		Expect(node.Name).To(Equal(machineName))
		Expect(node.Spec.ProviderID).To(Equal("bare://rack1/u12"))
		Expect(node.Labels).To(And(HaveKey(infraLabel), HaveKeyWithValue(poolv1.NodePoolLabel, "infra"), Not(HaveKey(poolv1.NodeMetal3UUIDLabel))))
		Expect(w.overlays(ctx)).To(HaveLen(1))
		Expect(w.credentials(ctx)).To(HaveLen(1))
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)))
		Expect(w.newEvents()).To(BeEmpty())
	})

	It("gets its Node immediately if it boots from its data Secret, because nothing reports when it starts", func(ctx SpecContext) {
		s.inline(time.Now().Add(join.Lifetime))
		w := s.world()
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically("~", join.Lifetime/2, 10*time.Second)))
		Expect(w.node(ctx).Labels).To(HaveKey(infraLabel))
	})

	DescribeTable("waits, and the condition reports why, if the boot needs a fact that only Metal3 provides:",
		func(ctx SpecContext, change func(), reason, why string) {
			change()
			w := s.world()
			Expect(w.sendRequest(ctx)).To(BeZero(), "there is nothing to try again")
			Expect(w.nodes(ctx)).To(BeEmpty())
			Expect(conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(And(
				HaveField("Reason", reason), HaveField("Message", ContainSubstring(why))))
		},
		Entry("the name of the host for the Node", func() { s.config.Spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }, bootstrapv1.BootFailedReason, "set spec.nodeNameSource to Machine"),
		Entry("the name of the host for a label", func() {
			s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/rack", ValueExpression: "host.name", OnMissing: nodev1.OnMissingBlock}}
		}, bootstrapv1.HostFactMissingReason, "host.name is missing"),
	)
})
