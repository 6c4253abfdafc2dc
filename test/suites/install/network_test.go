package install_test

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// findNetworkPolicy returns the NetworkPolicy that selects a Pod.
func findNetworkPolicy(pod *corev1.Pod) networkingv1.NetworkPolicy {
	GinkgoHelper()
	var found []networkingv1.NetworkPolicy
	for _, policy := range listOfKind[networkingv1.NetworkPolicy](components.Objs(), "NetworkPolicy") {
		selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
		Expect(err).NotTo(HaveOccurred())
		if policy.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			found = append(found, policy)
		}
	}
	Expect(found).To(HaveLen(1), pod.Name)
	return found[0]
}

// listOpenPorts returns the Pod's ports that a policy opens to all clients, and those that it opens to namespaces with
// the metrics label. It fails on a port that the Pod does not have, and on a rule for all ports.
func listOpenPorts(policy networkingv1.NetworkPolicy, pod *corev1.Pod) (all, metricsOnly []int32) {
	GinkgoHelper()
	Expect(policy.Spec.PolicyTypes).To(ContainElement(networkingv1.PolicyTypeIngress))
	for _, rule := range policy.Spec.Ingress {
		Expect(rule.Ports).NotTo(BeEmpty(), "a rule without ports opens all ports")
		for _, open := range rule.Ports {
			at := slices.IndexFunc(pod.Spec.Containers[0].Ports, func(port corev1.ContainerPort) bool {
				return *open.Port == intstr.FromString(port.Name) && port.Protocol == corev1.ProtocolTCP
			})
			Expect(at).NotTo(Equal(-1), "%s has no port %s", pod.Name, open.Port)
			Expect(open.EndPort).To(BeNil())
			if port := pod.Spec.Containers[0].Ports[at].ContainerPort; len(rule.From) == 0 {
				all = append(all, port)
			} else {
				Expect(rule.From).To(ConsistOf(networkingv1.NetworkPolicyPeer{
					NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"metrics": "enabled"}},
				}))
				metricsOnly = append(metricsOnly, port)
			}
		}
	}
	return all, metricsOnly
}

var _ = Describe("the NetworkPolicies", func() {
	DescribeTable("open the Pods' ports for Services and probes, metrics to labeled namespaces, and no other port",
		func(deployment, service string, all, metricsOnly []int32) {
			pod := newPod(deployment)
			openToAll, openForMetrics := listOpenPorts(findNetworkPolicy(pod), pod)
			Expect(openToAll).To(ConsistOf(all))
			Expect(openForMetrics).To(ConsistOf(metricsOnly))
			var named []int32
			for _, port := range pod.Spec.Containers[0].Ports {
				named = append(named, port.ContainerPort)
				target := HaveField("TargetPort", intstr.FromString(port.Name))
				probed := pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Port == intstr.FromString(port.Name)
				if served, err := ContainElement(target).Match(findService(service).Spec.Ports); err == nil && served || probed {
					Expect(openToAll).To(ContainElement(port.ContainerPort))
				} else {
					Expect(openForMetrics).To(ContainElement(port.ContainerPort))
				}
			}
			Expect(append(openToAll, openForMetrics...)).To(ConsistOf(named))
		},
		Entry("of the config server", "poolboot-config-server", "poolboot-config-server", []int32{9444, 9440}, []int32{8080}),
		Entry("of the manager", "poolboot-controller-manager", "poolboot-webhook-service", []int32{9443, 9440}, []int32{8443}),
	)

	It("allow the config server connections to API servers only, and the manager all connections", func() {
		config := findNetworkPolicy(newPod("poolboot-config-server"))
		Expect(config.Spec.PolicyTypes).To(ContainElement(networkingv1.PolicyTypeEgress))
		Expect(config.Spec.Egress).To(HaveLen(1))
		Expect(config.Spec.Egress[0].Ports).To(ConsistOf(
			HaveField("Port", HaveValue(Equal(intstr.FromInt32(443)))), HaveField("Port", HaveValue(Equal(intstr.FromInt32(6443))))))
		Expect(findNetworkPolicy(newPod("poolboot-controller-manager")).Spec.PolicyTypes).NotTo(ContainElement(networkingv1.PolicyTypeEgress))
	})

	It("have the ports of the firewall table in docs/tasks.md", func() {
		page, err := os.ReadFile(sourcetree.Path("docs", "tasks.md"))
		Expect(err).NotTo(HaveOccurred())
		row := regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \| ([^|]*)\| ([^|]*)\|$`)
		// documented returns the ports of the rows whose cell names a program.
		documented := func(cell int, program string) (ports []int32) {
			for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
				if strings.Contains(strings.ToLower(cells[cell]), program) {
					for _, digits := range regexp.MustCompile(`\d+`).FindAllString(cells[3], -1) {
						port, err := strconv.ParseInt(digits, 10, 32)
						Expect(err).NotTo(HaveOccurred())
						ports = append(ports, int32(port))
					}
				}
			}
			slices.Sort(ports)
			return slices.Compact(ports)
		}
		for program, names := range map[string][2]string{
			"manager": {"poolboot-controller-manager", "poolboot-webhook-service"}, "config server": {"poolboot-config-server", "poolboot-config-server"},
		} {
			var open []int32
			for _, port := range newPod(names[0]).Spec.Containers[0].Ports {
				open = append(open, port.ContainerPort)
			}
			for _, port := range findService(names[1]).Spec.Ports {
				open = append(open, port.Port)
			}
			slices.Sort(open)
			Expect(documented(2, program)).To(Equal(slices.Compact(open)), program)
		}
		var egress []int32
		for _, port := range findNetworkPolicy(newPod("poolboot-config-server")).Spec.Egress[0].Ports {
			egress = append(egress, port.Port.IntVal)
		}
		Expect(documented(1, "config server")).To(ConsistOf(egress))
	})
})
