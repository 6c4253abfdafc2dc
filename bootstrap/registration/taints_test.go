package registration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/core/webhooks/admission"
	"sigs.k8s.io/cluster-api/feature"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

var _ = Describe("The registration of a Node whose Machine has taints", func() {
	const key = "example.com/dedicated"
	taint := func(value string) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
	}
	var in *registration.Sources
	ofMachine := func(value string, propagation clusterv1.MachineTaintPropagation) {
		in.Machine.Spec.Taints = []clusterv1.MachineTaint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule, Propagation: propagation}}
	}
	ofPool := func(value string) {
		in.Pool.Spec.Node.Taints = []nodev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}
	}
	register := func() registration.Registration {
		got, err := registration.Register(*in)
		ExpectWithOffset(1, err).NotTo(HaveOccurred())
		return got
	}

	BeforeEach(func() {
		in = infraInput()
		in.Machine.ObjectMeta = metav1.ObjectMeta{Namespace: "metal", Name: "infra-x7k2p"}
	})

	DescribeTable("has them on the pre-registered Node and in the kubelet's flags, so that they are there after the kubelet creates the Node again",
		func(propagation clusterv1.MachineTaintPropagation) {
			ofMachine("db", propagation)
			got := register()
			Expect(got.Node().Spec.Taints).To(ContainElement(taint("db")))
			Expect(got.KubeletTaints()).To(ContainElement(taint("db")))
			Expect(got.KubeletArgs()).To(ContainElement(And(HavePrefix("--register-with-taints="), ContainSubstring(key+"=db:NoSchedule"))))
			Expect(got.TaintSources).To(HaveKeyWithValue("example.com/dedicated=db:NoSchedule", []string{"Machine spec.taints"}))
			Expect(got.Annotations).NotTo(HaveKey("poolboot.io/applied-taints"), "the pool does not declare it")
		},
		Entry("Always", clusterv1.MachineTaintPropagationAlways),
		Entry("OnInitialization", clusterv1.MachineTaintPropagationOnInitialization),
	)

	It("adds those with OnInitialization only to a new Node", func() {
		ofMachine("db", clusterv1.MachineTaintPropagationOnInitialization)
		Expect(register().Taints).NotTo(ContainElement(taint("db")))
		ofPool("db")
		Expect(register().Taints).To(ContainElement(taint("db")), "the pool declares it too")
		Expect(register().Node().Spec.Taints).To(HaveLen(3), "each taint once")
		ofMachine("db", clusterv1.MachineTaintPropagationAlways)
		Expect(register().Taints).To(ContainElement(taint("db")))
	})

	DescribeTable("has the value of the Machine where the pool or the PoolbootConfig has another one, because Cluster API sets it, and reports that",
		func(propagation clusterv1.MachineTaintPropagation, declare func(), source string) {
			in.Machine.Labels = map[string]string{clusterv1.MachineDeploymentNameLabel: "infra"}
			ofMachine("db", propagation)
			declare()
			got := register()
			Expect(got.Node().Spec.Taints).To(ContainElement(taint("db")))
			Expect(got.Node().Spec.Taints).NotTo(ContainElement(taint("cache")))
			Expect(got.KubeletTaints()).NotTo(ContainElement(taint("cache")))
			Expect(registration.MachineTaintWarning(in.Machine, &in.Pool, in.Config)).To(Equal(
				"the taint example.com/dedicated=db:NoSchedule of Machine metal/infra-x7k2p spec.taints replaces example.com/dedicated=cache:NoSchedule of " +
					source + " spec.node.taints: set one value in both, or remove the taint in spec.template.spec.taints of MachineDeployment infra"))
		},
		Entry("Always, the pool", clusterv1.MachineTaintPropagationAlways, func() { ofPool("cache") }, "MachineConfigPool metal/edge-infra"),
		Entry("OnInitialization, the pool", clusterv1.MachineTaintPropagationOnInitialization, func() { ofPool("cache") }, "MachineConfigPool metal/edge-infra"),
		Entry("the PoolbootConfig", clusterv1.MachineTaintPropagationAlways, func() {
			in.Config.Spec.Node.Taints = []nodev1.Taint{{Key: key, Value: "cache", Effect: corev1.TaintEffectNoSchedule}}
		}, "PoolbootConfig metal/infra-boot"),
	)

	It("reports nothing for the same value, another effect, or no Machine", func() {
		ofMachine("db", clusterv1.MachineTaintPropagationAlways)
		ofPool("db")
		Expect(registration.MachineTaintWarning(in.Machine, &in.Pool, in.Config)).To(BeEmpty())
		in.Pool.Spec.Node.Taints[0] = nodev1.Taint{Key: key, Value: "cache", Effect: corev1.TaintEffectNoExecute}
		Expect(registration.MachineTaintWarning(in.Machine, &in.Pool, in.Config)).To(BeEmpty())
		Expect(registration.MachineTaintWarning(nil, &in.Pool, in.Config)).To(BeEmpty())
		in.Machine = nil
		register()
	})

	It("is refused if the Machine has Poolboot's own taint, which Cluster API would add again and again", func() {
		in.Machine.Spec.Taints = []clusterv1.MachineTaint{{Key: "poolboot.io/unassigned", Effect: corev1.TaintEffectNoSchedule, Propagation: clusterv1.MachineTaintPropagationAlways}}
		_, err := registration.Register(*in)
		Expect(err).To(MatchError("Machine metal/infra-x7k2p spec.taints: Poolboot adds and removes the taint poolboot.io/unassigned: leave it out"))
	})

	It("has none without the feature gate of Cluster API: there, no Machine can have taints that nobody would remove from the Node", func(ctx SpecContext) {
		ofMachine("db", clusterv1.MachineTaintPropagationOnInitialization)
		in.Machine.Spec.Bootstrap.DataSecretName = ptr.To("infra-x7k2p")
		Expect(feature.Gates.Enabled(feature.MachineTaintPropagation)).To(BeFalse())
		_, err := (&admission.Machine{}).ValidateCreate(ctx, in.Machine)
		Expect(err).To(MatchError(ContainSubstring("spec.taints: Forbidden")))
		in.Machine.Spec.Taints = nil
		Expect((&admission.Machine{}).ValidateCreate(ctx, in.Machine)).Error().NotTo(HaveOccurred())
	})

	It("leaves taints that Cluster API keeps to Cluster API, and adds the pool's when Cluster API has removed its own", func() {
		ofPool("db")
		declared := nodev1.CoreTaints(in.Pool.Spec.Node.Taints)
		node := register().Node()
		node.Annotations[clusterv1.TaintsFromMachineAnnotation] = key + ":NoSchedule"
		node.Spec.Taints = []corev1.Taint{taint("cache")}
		registration.DeclareTaints(node, declared)
		Expect(node.Spec.Taints).To(ConsistOf(taint("cache")))
		node.Annotations[clusterv1.TaintsFromMachineAnnotation], node.Spec.Taints = "", nil
		registration.DeclareTaints(node, declared)
		Expect(node.Spec.Taints).To(ConsistOf(taint("db")))
		node.Spec.Taints = nil
		registration.DeclareTaints(node, declared)
		Expect(node.Spec.Taints).To(BeEmpty(), "a user removed it")
	})
})
