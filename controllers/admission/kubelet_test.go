package admission

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

func kubeletConfiguration(section string) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) {
		s.Kubelet.Configuration = raw(strings.Replace(section, "{", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",`, 1))
	}
}

var _ = Describe("The kubelet configuration in the MachineConfigPool webhook", func() {
	// validate validates the creation of a pool, or an update that adds the kubelet configuration.
	validate := func(update bool, p, other *poolv1.MachineConfigPool) error {
		webhook := newWebhook(other)
		if !update {
			_, err := webhook.ValidateCreate(ctx(), p)
			return err
		}
		before := p.DeepCopy()
		before.Spec.Kubelet.Configuration = nil
		_, err := webhook.ValidateUpdate(ctx(), before, p)
		return err
	}

	DescribeTable("is refused with the field and the remedy, in a creation and in an update",
		func(p, other *poolv1.MachineConfigPool, fieldPath string, words ...string) {
			for _, update := range []bool{false, true} {
				Expect(validate(update, p, other)).To(beRefusedAt(fieldPath, words...))
			}
		},
		Entry("an unknown field", newPool("infra", "infra", kubeletConfiguration(`{"maxPod":5}`)), newPool("worker", "worker"), "spec.kubelet.configuration.maxPod", "no such field"),
		Entry("a wrong type", newPool("infra", "infra", kubeletConfiguration(`{"maxPods":"5"}`)), newPool("worker", "worker"), "spec.kubelet.configuration.maxPods", "must be a whole number"),
		Entry("a field that is not for pools", newPool("infra", "infra", kubeletConfiguration(`{"registerWithTaints":[]}`)), newPool("worker", "worker"), "spec.kubelet.configuration.registerWithTaints", "spec.node.taints"),
		Entry("a static policy without reserved CPUs", newPool("infra", "infra", kubeletConfiguration(`{"cpuManagerPolicy":"static"}`)), newPool("worker", "worker"), "spec.kubelet.configuration.cpuManagerPolicy", "set reservedSystemCPUs"),
		Entry("a static policy without reserved memory", newPool("infra", "infra", kubeletConfiguration(`{"memoryManagerPolicy":"Static"}`)), newPool("worker", "worker"), "spec.kubelet.configuration.memoryManagerPolicy", "reservedMemory"),
		Entry("an invalid value in the worker pool", newPool("worker", "worker", kubeletConfiguration(`{"maxPods":-1}`)), newPool("infra", "infra"), "spec.kubelet.configuration.maxPods", "0 or more"),
		Entry("a value that conflicts with that of the worker pool", newPool("infra", "infra", kubeletConfiguration(`{"reservedSystemCPUs":"0"}`)),
			newPool("worker", "worker", kubeletConfiguration(`{"kubeReservedCgroup":"/kube.slice"}`)), "spec.kubelet.configuration.reservedSystemCPUs", "cannot be combined with systemReservedCgroup or kubeReservedCgroup", "(it inherits fields of the worker pool)"),
		Entry("a value of the worker pool that conflicts with that of a custom pool", newPool("worker", "worker", kubeletConfiguration(`{"kubeReservedCgroup":"/kube.slice"}`)),
			newPool("infra", "infra", kubeletConfiguration(`{"reservedSystemCPUs":"0"}`)), "spec.kubelet.configuration.reservedSystemCPUs", "cannot be combined with systemReservedCgroup or kubeReservedCgroup", "(in MachineConfigPool infra, which inherits fields of this pool)"),
	)

	DescribeTable("is accepted",
		func(p, other *poolv1.MachineConfigPool) { Expect(validate(false, p, other)).To(Succeed()) },
		Entry("with valid values", newPool("infra", "infra", kubeletConfiguration(`{"maxPods":500}`)), newPool("worker", "worker")),
		Entry("with a value that requires one of the worker pool", newPool("infra", "infra", kubeletConfiguration(`{"maxParallelImagePulls":5}`)), newPool("worker", "worker", kubeletConfiguration(`{"serializeImagePulls":false}`))),
		Entry("while that of the worker pool is invalid, because it was stored before", newPool("infra", "infra", kubeletConfiguration(`{"maxPods":500}`)), newPool("worker", "worker", kubeletConfiguration(`{"maxPods":-1}`))),
		Entry("in the worker pool, while that of a custom pool is invalid", newPool("worker", "worker", kubeletConfiguration(`{"maxPods":500}`)), newPool("infra", "infra", kubeletConfiguration(`{"maxPods":-1}`))),
	)
})
