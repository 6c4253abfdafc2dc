package registration_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

var _ = Describe("The registration of a Node whose kubelet has an external cloud provider", func() {
	const source = "MachineConfig metal/rendered-edge-infra-1 (file /etc/default/kubelet)"
	taint := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	var in *registration.Sources

	BeforeEach(func() {
		in = infraInput()
		in.CloudProviderSource = source
	})

	It("has the kubelet's taint on the pre-registered Node, with its source, and not in the kubelet flags", func() {
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Node().Spec.Taints).To(ContainElement(taint))
		Expect(got.TaintSources).To(HaveKeyWithValue(taint.ToString(), []string{source}))
		Expect(got.Taints).NotTo(ContainElement(taint), "a Node that exists does not get it again")
		Expect(got.KubeletArgs()).NotTo(ContainElement(ContainSubstring("cloudprovider")))
	})

	It("has the taint once if the pool declares it too", func() {
		in.Pool.Spec.Node.Taints = []nodev1.Taint{{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}}
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Node().Spec.Taints).To(Equal(got.Taints))
		Expect(got.Taints).To(ContainElement(taint))
		Expect(got.TaintSources).To(HaveKeyWithValue(taint.ToString(), []string{"MachineConfigPool metal/edge-infra spec.node.taints"}))
	})

	It("has no such taint without an external cloud provider, and has it if the pool declares it for the image's own unit", func() {
		in.CloudProviderSource = ""
		got, err := registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Node().Spec.Taints).NotTo(ContainElement(taint))

		in.Pool.Spec.Node.Taints = []nodev1.Taint{{Key: taint.Key, Value: taint.Value, Effect: taint.Effect}}
		got, err = registration.Register(*in)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.Node().Spec.Taints).To(ContainElement(taint))
		Expect(got.KubeletArgs()).NotTo(ContainElement(ContainSubstring("cloudprovider")), "the API server refuses a Node that has a taint twice")
	})
})
