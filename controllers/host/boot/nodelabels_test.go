package boot

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("Derived labels", func() {
	var s *setting
	zone := nodev1.NodeLabelRule{Key: "topology.kubernetes.io/zone", ValueExpression: `host.labels["zone"]`, OnMissing: nodev1.OnMissingBlock}
	vendor := nodev1.NodeLabelRule{Key: "example.com/vendor", ValueExpression: `host.hardware.vendor`}
	BeforeEach(func() { s = newSetting() })

	from := func(vendor string) *bmov1alpha1.HardwareDetails {
		return &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: vendor}}
	}
	data := func(vendor string) *bmov1alpha1.HardwareData {
		return &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hostName},
			Spec: bmov1alpha1.HardwareDataSpec{HardwareDetails: from(vendor)}}
	}
	condition := func(ctx SpecContext, w *world) *metav1.Condition {
		return conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)
	}

	It("are on the Node when it is created, in the kubelet's flags if a kubelet is allowed to set them, and recorded", func(ctx SpecContext) {
		s.host.Labels = map[string]string{"zone": "dallas-b", "rack": "r7"}
		s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{zone, vendor}
		s.config.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "node-restriction.kubernetes.io/rack", ValueExpression: `machine.name + "." + cluster.name + "." + host.labels["rack"]`}}
		w := s.world(data("Dell"))
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		expected := map[string]string{"topology.kubernetes.io/zone": "dallas-b", "example.com/vendor": "Dell", "node-restriction.kubernetes.io/rack": machineName + ".edge.r7"}
		for key, value := range expected {
			Expect(w.node(ctx).Labels).To(HaveKeyWithValue(key, value))
		}
		Expect(w.config(ctx).Status.DerivedNodeLabels).To(Equal(expected))
		Expect(string(unpacked(w.overlays(ctx)[0]))).To(ContainSubstring("kubelet.env"))
		Expect(w.hardwareWatched).To(BeTrue())
	})

	It("come from the rules of the Machine's pool: the rules of the worker pool apply only to its own Machines", func(ctx SpecContext) {
		s.worker.Spec.Node.LabelRules = []nodev1.NodeLabelRule{zone}
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).Labels).NotTo(HaveKey(zone.Key))
		Expect(w.hardwareWatched).To(BeFalse(), "no rule needs facts")
	})

	It("need no rule for the inspected architecture, which the Node has from the start, with hostname and os", func(ctx SpecContext) {
		inspected := data("Dell")
		inspected.Spec.HardwareDetails.CPU.Arch = "aarch64"
		w := s.world(inspected)
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(w.node(ctx).Labels).To(And(HaveKeyWithValue("kubernetes.io/arch", "arm64"), HaveKeyWithValue("kubernetes.io/os", "linux"),
			HaveKeyWithValue("kubernetes.io/hostname", machineName)))
		Expect(w.hardwareWatched).To(BeFalse(), "the kubelet corrects what changes later")
		Expect(w.config(ctx).Status.DerivedNodeLabels).To(BeEmpty())
	})

	It("do not let a host boot whose architecture differs from that of its pool", func(ctx SpecContext) {
		s.infra.Spec.Node.Labels = map[string]string{"kubernetes.io/arch": "amd64"}
		s.host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{CPU: bmov1alpha1.CPU{Arch: "aarch64"}}
		w := s.world()
		_, err := w.sendRequest(ctx)
		Expect(err).To(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.LabelConflictReason, "BareMetalHost status.hardware.cpu.arch (\"arm64\")", "spec.node.labels (\"amd64\")")
	})

	DescribeTable("get the hardware from",
		func(ctx SpecContext, status *bmov1alpha1.HardwareDetails, more []client.Object, label string) {
			s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{vendor}
			s.host.Status.HardwareDetails = status
			w := s.world(more...)
			Expect(w.sendRequest(ctx)).To(BeZero())
			if label == "" {
				Expect(w.node(ctx).Labels).NotTo(HaveKey(vendor.Key))
			} else {
				Expect(w.node(ctx).Labels).To(HaveKeyWithValue(vendor.Key, label))
			}
		},
		Entry("HardwareData, even if the status of the host differs", from("Old"), []client.Object{data("Dell")}, "Dell"),
		Entry("the status of the host without HardwareData", from("Old"), nil, "Old"),
		Entry("the status of the host if HardwareData is empty", from("Old"), []client.Object{&bmov1alpha1.HardwareData{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hostName}}}, "Old"),
		Entry("nowhere", nil, nil, ""),
	)

	It("get the hardware from the status of the host if Metal3 has no HardwareData, and watch no kind that does not exist", func(ctx SpecContext) {
		s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{vendor}
		s.host.Status.HardwareDetails = from("Old")
		w := s.world()
		w.reconciler.Client = olderMetal3{w.reconciler.Client}
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.node(ctx).Labels).To(HaveKeyWithValue(vendor.Key, "Old"))
		Expect(w.hardwareWatched).To(BeFalse())
	})

	It("know only the name of a host that enrolled", func(ctx SpecContext) {
		s.config.OwnerReferences, s.config.Status.DataSecretName = nil, ""
		s.config.Spec.PoolRole, s.config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{vendor, {Key: "example.com/site", ValueExpression: `cluster.name + "-" + host.name`}}
		w := s.world()
		Expect(w.sendRequest(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.node(ctx).Labels).To(And(HaveKeyWithValue("example.com/site", "edge-edge-7"), Not(HaveKey(vendor.Key))))
	})

	It("block the host while a required fact is missing, and continue on their own when it exists", func(ctx SpecContext) {
		s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{zone}
		w := s.world()
		Expect(w.sendRequest(ctx)).To(Equal(ctrl.Result{}), "a watch triggers the next try")
		Expect(w.nodes(ctx)).To(BeEmpty())
		Expect(w.overlays(ctx)).To(BeEmpty())
		Expect(condition(ctx, w)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.HostFactMissingReason),
			HaveField("Message", `host rack1-u12: MachineConfigPool metal/edge-infra spec.node.labelRules[topology.kubernetes.io/zone]: `+
				`host.labels["zone"] is missing: add this fact to the BareMetalHost, or set onMissing: Skip`)))
		Expect(w.newEvents()).To(ConsistOf(ContainSubstring("HostFactMissing")))

		change(ctx, w.management, s.host, func(h *bmov1alpha1.BareMetalHost) { h.Labels = map[string]string{"zone": "dallas-b"} })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.newEvents()).To(ConsistOf(HavePrefix("Normal "+bootstrapv1.EventBootPrepared)), "the problem is resolved")
		expectPrepared(ctx, w, machineName)
		Expect(w.node(ctx).Labels).To(HaveKeyWithValue(zone.Key, "dallas-b"))
	})

	DescribeTable("block the host until a user corrects",
		func(ctx SpecContext, rule nodev1.NodeLabelRule, message string) {
			s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{rule}
			w := s.world(data("Dell Inc."))
			Expect(w.sendRequest(ctx)).Error().To(MatchError(ContainSubstring(message)))
			Expect(w.nodes(ctx)).To(BeEmpty())
			Expect(condition(ctx, w)).To(And(HaveField("Reason", bootstrapv1.NodeLabelRuleInvalidReason), HaveField("Message", ContainSubstring(message))))
		},
		Entry("a value that is not a valid label value", vendor, `"Dell Inc." is not a valid label value`),
		Entry("an expression that fails for the host", nodev1.NodeLabelRule{Key: "a", ValueExpression: `host.name.substring(0, 40)`}, "index out of range"),
		Entry("an expression that earlier validation accepted", nodev1.NodeLabelRule{Key: "a", ValueExpression: `host.nmae`}, "valueExpression:1:5: undefined field 'nmae'"),
	)

	It("never move the Node to another pool", func(ctx SpecContext) {
		s.config.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: poolv1.NodeRoleLabelPrefix + "control-plane", ValueExpression: `""`}}
		w := s.world()
		Expect(w.sendRequest(ctx)).Error().To(HaveOccurred())
		Expect(w.nodes(ctx)).To(BeEmpty())
		Expect(condition(ctx, w)).To(HaveField("Reason", bootstrapv1.LabelConflictReason))
	})

	It("are refused if another field sets a different value, and the message names both sources", func(ctx SpecContext) {
		s.infra.Spec.Node.LabelRules = []nodev1.NodeLabelRule{vendor}
		s.config.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: vendor.Key, ValueExpression: `"another"`}}
		w := s.world(data("Dell"))
		Expect(w.sendRequest(ctx)).Error().To(HaveOccurred())
		Expect(condition(ctx, w)).To(And(HaveField("Reason", bootstrapv1.LabelConflictReason), HaveField("Message", And(
			ContainSubstring(`MachineConfigPool metal/edge-infra spec.node.labelRules ("Dell")`), ContainSubstring(`PoolbootConfig metal/edge-x7k2p spec.node.labelRules ("another")`)))))
	})
})

// olderMetal3 is a client of a management cluster without HardwareData.
type olderMetal3 struct{ client.Client }

func (olderMetal3) RESTMapper() meta.RESTMapper { return meta.NewDefaultRESTMapper(nil) }
