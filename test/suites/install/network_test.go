package install_test

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// policyFor returns the one NetworkPolicy that selects a Pod.
func policyFor(pod *corev1.Pod) networkingv1.NetworkPolicy {
	GinkgoHelper()
	var found []networkingv1.NetworkPolicy
	for _, policy := range ofKind[networkingv1.NetworkPolicy](components.Objs(), "NetworkPolicy") {
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		Expect(err).NotTo(HaveOccurred())
		if policy.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, policy)
		}
	}
	Expect(found).To(HaveLen(1), pod.Name)
	return found[0]
}

// letIn returns the numbers of a Pod's ports that a policy opens to everybody, and to some. It fails on a port that the
// Pod does not have, and on a rule for all ports.
func letIn(policy networkingv1.NetworkPolicy, pod *corev1.Pod) (everybody, some []int32) {
	GinkgoHelper()
	Expect(policy.Spec.PolicyTypes).To(ContainElement(networkingv1.PolicyTypeIngress))
	for _, rule := range policy.Spec.Ingress {
		Expect(rule.Ports).NotTo(BeEmpty(), "a rule without ports opens all")
		for _, open := range rule.Ports {
			at := slices.IndexFunc(pod.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool {
				return *open.Port == intstr.FromString(port.Name) && port.Protocol == corev1.ProtocolTCP
			})
			Expect(at).NotTo(Equal(-1), "%s has no port %s", pod.Name, open.Port)
			Expect(open.EndPort).To(BeNil())
			if port := pod.Spec.Containers[0].Ports[at].ContainerPort; len(rule.From) == 0 {
				everybody = append(everybody, port)
			} else {
				Expect(rule.From).To(ConsistOf(networkingv1.NetworkPolicyPeer{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"metrics": "enabled"}},
				}))
				some = append(some, port)
			}
		}
	}
	return everybody, some
}

var _ = Describe("the NetworkPolicies", func() {
	DescribeTable("let in to the Pods the ports that Services and probes need, metrics for those who are to read them, and no other",
		func(deployment, service string, everybody, some []int32) {
			pod := podOf(deployment)
			toAll, toSome := letIn(policyFor(pod), pod)
			Expect(toAll).To(ConsistOf(everybody))
			Expect(toSome).To(ConsistOf(some))
			var named []int32
			for _, port := range pod.Spec.Containers[0].Ports {
				named = append(named, port.ContainerPort)
				target := HaveField("TargetPort", intstr.FromString(port.Name))
				probed := pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Port == intstr.FromString(port.Name)
				if served, err := ContainElement(target).Match(serviceNamed(service).Spec.Ports); err == nil && served || probed {
					Expect(toAll).To(ContainElement(port.ContainerPort))
				} else {
					Expect(toSome).To(ContainElement(port.ContainerPort))
				}
			}
			Expect(append(toAll, toSome...)).To(ConsistOf(named))
		},
		Entry("of the config server", "poolboot-config-server", "poolboot-config-server", []int32{9444, 9440}, []int32{8080}),
		Entry("of the manager", "poolboot-controller-manager", "poolboot-webhook-service", []int32{9443, 9440}, []int32{8443}),
	)

	It("let the config server out to API servers only, and the manager to wherever workload clusters are", func() {
		config := policyFor(podOf("poolboot-config-server"))
		Expect(config.Spec.PolicyTypes).To(ContainElement(networkingv1.PolicyTypeEgress))
		Expect(config.Spec.Egress).To(HaveLen(1))
		Expect(config.Spec.Egress[0].Ports).To(ConsistOf(
			HaveField("Port", HaveValue(Equal(intstr.FromInt32(443)))), HaveField("Port", HaveValue(Equal(intstr.FromInt32(6443))))))
		Expect(policyFor(podOf("poolboot-controller-manager")).Spec.PolicyTypes).NotTo(ContainElement(networkingv1.PolicyTypeEgress))
	})
})
