package install_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/repository"
	"sigs.k8s.io/cluster-api/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// certificate has the fields of cert-manager's Certificate that these specs read.
type certificate struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SecretName string          `json:"secretName"`
		DNSNames   []string        `json:"dnsNames"`
		IsCA       bool            `json:"isCA"`
		Duration   metav1.Duration `json:"duration"` // cert-manager's default is 90 days
		PrivateKey struct {
			Algorithm      string `json:"algorithm"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		IssuerRef struct {
			Name string `json:"name"`
		} `json:"issuerRef"`
	} `json:"spec"`
}

// issuer has the fields of cert-manager's Issuer that these specs read.
type issuer struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		CA struct {
			SecretName string `json:"secretName"`
		} `json:"ca"`
	} `json:"spec"`
}

var deployments = []TableEntry{
	Entry("of the manager", "poolboot-controller-manager"),
	Entry("of the config server", "poolboot-config-server"),
}

var _ = Describe("the Pods", func() {
	DescribeTable("comply with the restricted Pod Security Standard", func(ctx SpecContext, deployment string) {
		Expect(k8sClient.Create(ctx, newPod(deployment), client.DryRunAll)).To(Succeed())

		By("checking that they can't write to their own image")
		container := newPod(deployment).Spec.Containers[0].SecurityContext
		Expect(container.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
		Expect(container.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
		Expect(newPod(deployment).Spec.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))

		By("checking that unrestricted Pods are refused")
		unrestricted := newPod(deployment)
		unrestricted.Spec.Containers[0].SecurityContext = nil
		Expect(k8sClient.Create(ctx, unrestricted, client.DryRunAll)).To(MatchError(ContainSubstring("PodSecurity")))
	}, deployments)

	DescribeTable("survive the drain of a node: there are several, on different nodes, and one is evicted at a time", func(deployment string) {
		pod := newPod(deployment)
		Expect(findDeployment(deployment).Spec.Replicas).To(HaveValue(BeNumerically(">=", 2)))
		Expect(pod.Spec.TopologySpreadConstraints).To(ConsistOf(And(HaveField("TopologyKey", corev1.LabelHostname), HaveField("WhenUnsatisfiable", corev1.ScheduleAnyway),
			HaveField("LabelSelector", Satisfy(func(selector *metav1.LabelSelector) bool { return selects(selector, pod) })))))
		Expect(pod.Spec.PriorityClassName).To(Equal("system-cluster-critical"))
		Expect(listOfKind[policyv1.PodDisruptionBudget](components.Objs(), "PodDisruptionBudget")).To(ContainElement(And(
			HaveField("Spec.MaxUnavailable", HaveValue(Equal(intstr.FromInt32(1)))), HaveField("Spec.UnhealthyPodEvictionPolicy", HaveValue(Equal(policyv1.AlwaysAllow))),
			HaveField("Spec.Selector", Satisfy(func(selector *metav1.LabelSelector) bool { return selects(selector, pod) })))))
	}, deployments)

	DescribeTable("have the memory that docs/install.md has measured, and no limit of the processor", func(deployment, row string) {
		guide, err := os.ReadFile(sourcetree.Path("docs", "install.md"))
		Expect(err).NotTo(HaveOccurred())
		var measured []int64 // MiB
		line := regexp.MustCompile(`(?m)^\| ` + row + ` \|.*$`).FindString(string(guide))
		for _, number := range regexp.MustCompile(`(\d+) MiB`).FindAllStringSubmatch(line, -1) {
			value, err := strconv.ParseInt(number[1], 10, 64)
			Expect(err).NotTo(HaveOccurred())
			measured = append(measured, value<<20)
		}
		Expect(measured).NotTo(BeEmpty())
		resources := newPod(deployment).Spec.Containers[0].Resources
		Expect(resources.Requests.Memory().Value()).To(BeNumerically(">=", slices.Min(measured)))
		Expect(resources.Limits.Memory().Value()).To(BeNumerically(">=", 2*slices.Max(measured)))
		Expect(resources.Limits).NotTo(HaveKey(corev1.ResourceCPU))
	},
		Entry("of the manager", "poolboot-controller-manager", "Memory of the manager"),
		Entry("of the config server", "poolboot-config-server", "Memory of the config server"),
	)

	It("get credentials of a registry and a proxy from variables", func(ctx SpecContext) {
		for name, value := range map[string]string{
			"POOLBOOT_IMAGE_PULL_SECRETS": "[{name: registry}]", "POOLBOOT_HTTPS_PROXY": "http://proxy.example.com:3128", "POOLBOOT_NO_PROXY": "10.96.0.1,.svc",
		} {
			settings.Set(name, value)
			DeferCleanup(settings.Set, name, variables[name])
		}
		set, err := release.Components().Get(ctx, repository.ComponentsOptions{})
		Expect(err).NotTo(HaveOccurred())
		accounts := listOfKind[corev1.ServiceAccount](set.Objs(), "ServiceAccount")
		for _, deployment := range listOfKind[appsv1.Deployment](set.Objs(), "Deployment") {
			Expect(accounts).To(ContainElement(And(HaveField("Name", deployment.Spec.Template.Spec.ServiceAccountName),
				HaveField("ImagePullSecrets", Equal([]corev1.LocalObjectReference{{Name: "registry"}})))))
			if deployment.Name == "poolboot-controller-manager" {
				Expect(deployment.Spec.Template.Spec.Containers[0].Env).To(ContainElements(corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy.example.com:3128"},
					corev1.EnvVar{Name: "NO_PROXY", Value: "10.96.0.1,.svc"}))
			}
		}
		Expect(listOfKind[corev1.ServiceAccount](components.Objs(), "ServiceAccount")).To(HaveEach(HaveField("ImagePullSecrets", BeEmpty())))
	})

	It("serve requests of hosts in the IP families that a variable names", func(ctx SpecContext) {
		settings.Set("POOLBOOT_CONFIG_SERVER_IP_FAMILY_POLICY", "PreferDualStack")
		DeferCleanup(settings.Set, "POOLBOOT_CONFIG_SERVER_IP_FAMILY_POLICY", variables["POOLBOOT_CONFIG_SERVER_IP_FAMILY_POLICY"])
		set, err := release.Components().Get(ctx, repository.ComponentsOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(listOfKind[corev1.Service](set.Objs(), "Service")).To(ContainElement(And(HaveField("Name", "poolboot-config-server"), HaveField("Spec.IPFamilyPolicy", HaveValue(Equal(corev1.IPFamilyPolicyPreferDualStack))))))
		Expect(findService("poolboot-config-server").Spec.IPFamilyPolicy).To(BeNil())
	})

	DescribeTable("declare each port on which their program listens", func(ctx SpecContext, deployment string) {
		container := newPod(deployment).Spec.Containers[0]
		var named []int
		for _, port := range container.Ports {
			named = append(named, int(port.ContainerPort))
		}
		Expect(listListeningPorts(ctx, container)).To(ConsistOf(named))
		for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
			Expect(container.Ports).To(ContainElement(HaveField("Name", probe.HTTPGet.Port.StrVal)))
		}
	}, deployments)

	DescribeTable("mount Secrets of Certificates only, at the paths of their program's flags", func(deployment string) {
		pod := newPod(deployment)
		container := pod.Spec.Containers[0]
		for _, volume := range pod.Spec.Volumes {
			var secrets []string
			if volume.Secret != nil {
				secrets = append(secrets, volume.Secret.SecretName)
			}
			if volume.Projected != nil {
				for _, source := range volume.Projected.Sources {
					if source.Secret != nil {
						Expect(source.Secret.Items).To(ConsistOf(corev1.KeyToPath{Key: "ca.crt", Path: "ca.crt"}), "the private key is not mounted")
						secrets = append(secrets, source.Secret.Name)
					}
				}
			}
			if len(secrets) == 0 {
				continue
			}
			Expect(secrets).To(HaveLen(1))
			Expect(listOfKind[certificate](components.Objs(), "Certificate")).To(ContainElement(And(
				HaveField("Spec.SecretName", secrets[0]), HaveField("Namespace", pod.Namespace))))
			var mounts []corev1.VolumeMount
			Expect(container.VolumeMounts).To(ContainElement(HaveField("Name", volume.Name), &mounts))
			Expect(container.Args).To(ContainElement(MatchRegexp(`^--[a-z-]+=%s$`, regexp.QuoteMeta(mounts[0].MountPath))))
		}
	}, deployments)
})

// selects reports whether a selector selects a Pod.
func selects(selector *metav1.LabelSelector, pod *corev1.Pod) bool {
	GinkgoHelper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	Expect(err).NotTo(HaveOccurred())
	return s.Matches(labels.Set(pod.Labels))
}

// listListeningPorts returns the ports of a container's program, from its arguments or from the defaults in its help.
func listListeningPorts(ctx SpecContext, container corev1.Container) []int {
	GinkgoHelper()
	help, err := exec.CommandContext(ctx, filepath.Join(binDir, filepath.Base(container.Command[0])), "--help").CombinedOutput()
	Expect(err).NotTo(HaveOccurred())
	flags := map[string]string{}
	for _, flag := range regexp.MustCompile(`(?m)^ +--([a-z-]+-(?:addr|address|port)) .*\(default "?:?(\d+)"?\)$`).FindAllStringSubmatch(string(help), -1) {
		flags[flag[1]] = flag[2]
	}
	for _, arg := range container.Args {
		if flag := regexp.MustCompile(`^--([a-z-]+-(?:addr|address|port))=.*?:?(\d+)$`).FindStringSubmatch(arg); flag != nil {
			flags[flag[1]] = flag[2]
		}
	}
	var ports []int
	for _, text := range flags {
		port, err := strconv.Atoi(text)
		Expect(err).NotTo(HaveOccurred())
		ports = append(ports, port)
	}
	return ports
}

var _ = Describe("the Services", func() {
	DescribeTable("select a port of the Pods", func(service, deployment, port string) {
		found := findService(service)
		pod := newPod(deployment)
		Expect(labels.SelectorFromSet(found.Spec.Selector).Matches(labels.Set(pod.Labels))).To(BeTrue())
		Expect(found.Spec.Ports).To(ConsistOf(HaveField("TargetPort", intstr.FromString(port))))
		Expect(pod.Spec.Containers[0].Ports).To(ContainElement(HaveField("Name", port)))

		By("checking that they select no other Pods")
		for _, other := range listOfKind[appsv1.Deployment](components.Objs(), "Deployment") {
			if other.Name != deployment {
				Expect(labels.SelectorFromSet(found.Spec.Selector).Matches(labels.Set(other.Spec.Template.Labels))).To(BeFalse())
			}
		}
	},
		Entry("of the manager", "poolboot-webhook-service", "poolboot-controller-manager", "webhook-server"),
		Entry("of the config server", "poolboot-config-server", "poolboot-config-server", "config"),
	)
})

var _ = Describe("the webhooks", func() {
	It("refer to an existing Service, whose certificate the API server trusts", func() {
		validating := listOfKind[admissionregistrationv1.ValidatingWebhookConfiguration](components.Objs(), "ValidatingWebhookConfiguration")[0]
		clients := map[string][]admissionregistrationv1.WebhookClientConfig{}
		for _, webhook := range validating.Webhooks {
			from := validating.Annotations["cert-manager.io/inject-ca-from"]
			clients[from] = append(clients[from], webhook.ClientConfig)
		}
		Expect(clients).To(HaveLen(1))
		serving := findCertificate("poolboot-webhook")
		for _, client := range clients[serving.Namespace+"/"+serving.Name] {
			service := findService(client.Service.Name)
			Expect(client.Service.Namespace).To(Equal(service.Namespace))
			Expect(client.Service.Port).To(BeNil(), "443 by default")
			Expect(service.Spec.Ports).To(ConsistOf(HaveField("Port", int32(443))))
			Expect(serving.Spec.DNSNames).To(ContainElement(service.Name + "." + service.Namespace + ".svc"))
		}
		Expect(newPod("poolboot-controller-manager").Spec.Volumes).To(ContainElement(HaveField("Secret.SecretName", serving.Spec.SecretName)))
	})
})

var _ = Describe("the config server's address", func() {
	It("is the same in its flags, in its certificate, in its Service and for the manager", func() {
		url := "https://" + serverHost + ":9444"
		Expect(newPod("poolboot-config-server").Spec.Containers[0].Args).To(ContainElement("--external-url=" + url))
		Expect(newPod("poolboot-controller-manager").Spec.Containers[0].Args).To(ContainElement("--config-server-url=" + url))
		Expect(findService("poolboot-config-server").Spec.Ports).To(ConsistOf(HaveField("Port", int32(9444))))
		Expect(findCertificate("poolboot-config-server").Spec.DNSNames).To(ContainElement(serverHost))
	})
})

var _ = Describe("the certificates", func() {
	It("are ECDSA, and signed by a CA that keeps its key and is valid for years", func() {
		for _, each := range listOfKind[certificate](components.Objs(), "Certificate") {
			Expect(each.Spec.PrivateKey.Algorithm).To(Equal("ECDSA"), each.Name)
			if each.Spec.IsCA {
				Expect(each.Spec.PrivateKey.RotationPolicy).To(Equal("Never"))
				Expect(each.Spec.Duration.Hours()).To(BeNumerically(">=", 5*365*24))
				continue
			}
			Expect(each.Spec.PrivateKey.RotationPolicy).To(Equal("Always"), each.Name)
			Expect(each.Spec.Duration.Hours()).To(BeZero(), each.Name)
			Expect(each.Spec.IssuerRef.Name).To(Equal(findCertificate("poolboot-ca").Spec.SecretName))
		}
	})

	It("can be replaced as docs/install.md shows", func(ctx SpecContext) {
		guide, err := os.ReadFile(sourcetree.Path("docs", "install.md"))
		Expect(err).NotTo(HaveOccurred())
		_, section, found := strings.Cut(string(guide), "\n### Replace the CA\n")
		Expect(found).To(BeTrue())
		section, _, _ = strings.Cut(section, "\n## ")
		blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(section, -1)
		Expect(blocks).To(HaveLen(1))
		objects, err := yaml.ToUnstructured([]byte(blocks[0][1]))
		Expect(err).NotTo(HaveOccurred())
		for i := range objects {
			Expect(k8sClient.Create(ctx, &objects[i], client.DryRunAll, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())
		}
		next := listOfKind[certificate](objects, "Certificate")[0]
		Expect(next.Spec.IssuerRef.Name).To(Equal(findCertificate("poolboot-ca").Name))
		Expect(listOfKind[issuer](objects, "Issuer")[0].Spec.CA.SecretName).To(Equal(next.Spec.SecretName))
	})

	It("can be signed by another CA while hosts have the old one: the manager gives both to hosts", func() {
		pod := newPod("poolboot-controller-manager")
		Expect(pod.Spec.Volumes).To(ContainElement(HaveField("Projected.Sources", ConsistOf(
			HaveField("Secret.Name", findCertificate("poolboot-config-server").Spec.SecretName),
			HaveField("ConfigMap", HaveValue(And(HaveField("Name", "poolboot-config-server-more-ca"), HaveField("Optional", HaveValue(BeTrue())),
				HaveField("Items", ConsistOf(HaveField("Path", HaveSuffix(".crt")))))))))))
	})
})

func findService(name string) corev1.Service {
	GinkgoHelper()
	var found []corev1.Service
	Expect(listOfKind[corev1.Service](components.Objs(), "Service")).To(ContainElement(HaveField("Name", name), &found))
	return found[0]
}

func findCertificate(name string) certificate {
	GinkgoHelper()
	var found []certificate
	Expect(listOfKind[certificate](components.Objs(), "Certificate")).To(ContainElement(HaveField("Name", name), &found))
	return found[0]
}
