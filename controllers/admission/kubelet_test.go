package admission

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

func kubelets(section string) func(*poolv1.MachineConfigPoolSpec) {
	return func(s *poolv1.MachineConfigPoolSpec) {
		s.KubeletConfiguration = raw(strings.Replace(section, "{", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",`, 1))
	}
}

var _ = Describe("MachineConfigPool webhook: the kubelet section", func() {
	// write is the creation of a pool beside another, or its update from one without a section.
	write := func(update bool, p, other *poolv1.MachineConfigPool) error {
		webhook := webhookWith(other)
		if !update {
			_, err := webhook.ValidateCreate(ctx(), p)
			return err
		}
		before := p.DeepCopy()
		before.Spec.KubeletConfiguration = nil
		_, err := webhook.ValidateUpdate(ctx(), before, p)
		return err
	}

	DescribeTable("is refused with the field and the cure, when a pool is made and when it changes",
		func(p, other *poolv1.MachineConfigPool, fieldPath string, words ...string) {
			for _, update := range []bool{false, true} {
				Expect(write(update, p, other)).To(refuse(fieldPath, words...))
			}
		},
		Entry("a field that there is not", aPool("infra", "infra", kubelets(`{"maxPod":5}`)), aPool("worker", "worker"), "spec.kubeletConfiguration.maxPod", "no such field"),
		Entry("a type that is another", aPool("infra", "infra", kubelets(`{"maxPods":"5"}`)), aPool("worker", "worker"), "spec.kubeletConfiguration.maxPods", "int32"),
		Entry("what is not a pool's", aPool("infra", "infra", kubelets(`{"registerWithTaints":[]}`)), aPool("worker", "worker"), "spec.kubeletConfiguration.registerWithTaints", "spec.nodeTaints"),
		Entry("worker's", aPool("worker", "worker", kubelets(`{"maxPods":-1}`)), aPool("infra", "infra"), "spec.kubeletConfiguration.maxPods", "0 or more"),
		Entry("what does not go with worker's", aPool("infra", "infra", kubelets(`{"reservedSystemCPUs":"0"}`)),
			aPool("worker", "worker", kubelets(`{"kubeReservedCgroup":"/kube.slice"}`)), "spec.kubeletConfiguration", `MachineConfigPool "infra": together with spec.kubeletConfiguration of the worker pool`),
		Entry("worker's that does not go with a custom pool's", aPool("worker", "worker", kubelets(`{"kubeReservedCgroup":"/kube.slice"}`)),
			aPool("infra", "infra", kubelets(`{"reservedSystemCPUs":"0"}`)), "spec.kubeletConfiguration", `MachineConfigPool "infra": together with spec.kubeletConfiguration of the worker pool`),
	)

	DescribeTable("is taken",
		func(p, other *poolv1.MachineConfigPool) { Expect(write(false, p, other)).To(Succeed()) },
		Entry("that is right", aPool("infra", "infra", kubelets(`{"maxPods":500}`)), aPool("worker", "worker")),
		Entry("that leans on worker's", aPool("infra", "infra", kubelets(`{"maxParallelImagePulls":5}`)), aPool("worker", "worker", kubelets(`{"serializeImagePulls":false}`))),
		Entry("beside one of worker's that is not right, which was stored before", aPool("infra", "infra", kubelets(`{"maxPods":500}`)), aPool("worker", "worker", kubelets(`{"maxPods":-1}`))),
		Entry("of worker, beside a custom one that is not right by itself", aPool("worker", "worker", kubelets(`{"maxPods":500}`)), aPool("infra", "infra", kubelets(`{"maxPods":-1}`))),
	)
})
