package kubelet_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
)

var at = field.NewPath("spec", "kubelet", "configuration")

// parsed returns a valid section.
func parsed(raw string) kubelet.Section {
	GinkgoHelper()
	section, errs := kubelet.Parse([]byte(whole(raw)), at)
	Expect(errs).To(BeEmpty())
	return section
}

// whole adds the apiVersion and kind of a section to a JSON object. An object that has one of them remains unchanged.
func whole(raw string) string {
	rest, isObject := strings.CutPrefix(raw, "{")
	if !isObject || strings.Contains(raw, `"apiVersion"`) || strings.Contains(raw, `"kind"`) {
		return raw
	}
	if rest != "}" {
		rest = "," + rest
	}
	return `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration"` + rest
}

// refused returns the errors of Parse. If there are none, it returns those of Check.
func refused(raw string) []string {
	section, errs := kubelet.Parse([]byte(whole(raw)), at)
	if len(errs) == 0 {
		errs = section.Check(at)
	}
	return messagesOf(errs)
}

func messagesOf(errs field.ErrorList) (all []string) {
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// nested returns a list that is nested the given number of times.
func nested(times int) string { return strings.Repeat("[", times) + strings.Repeat("]", times) }

var _ = Describe("A kubelet section", func() {
	DescribeTable("can set everything that the kubelets of a pool have in common",
		func(raw string) { Expect(refused(raw)).To(BeEmpty()) },
		Entry("no fields", `{}`),
		Entry("one field", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":500}`),
		Entry("the fields in the documentation of OpenShift", `{"maxPods":500,"podsPerCore":10,"kubeAPIBurst":200,"kubeAPIQPS":100,"nodeStatusUpdateFrequency":"10s",
			"systemReserved":{"cpu":"2000m","memory":"1Gi"},"kubeReserved":{"pid":"100","ephemeral-storage":"1Gi"},"podPidsLimit":4096,
			"evictionSoft":{"memory.available":"500Mi","nodefs.available":"10%"},"evictionSoftGracePeriod":{"memory.available":"1m30s"},
			"evictionHard":{"imagefs.inodesFree":"5.5%"},"evictionPressureTransitionPeriod":"0s","imageMinimumGCAge":"5m",
			"imageGCHighThresholdPercent":80,"imageGCLowThresholdPercent":75,"allowedUnsafeSysctls":["net.core.somaxconn"]}`),
		Entry("fields for low latency", `{"cpuManagerPolicy":"static","cpuManagerReconcilePeriod":"5s","reservedSystemCPUs":"0,2-3","topologyManagerPolicy":"single-numa-node",
			"topologyManagerScope":"pod","memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":0,"limits":{"memory":"1100Mi"}}]}`),
		Entry("the fields in the templates of OpenShift", `{"clusterDNS":["10.96.0.10","fd00::a"],"clusterDomain":"cluster.local","containerRuntimeEndpoint":"unix:///run/crio/crio.sock",
			"failSwapOn":false,"memorySwap":{"swapBehavior":"LimitedSwap"},"featureGates":{"KubeletCrashLoopBackOffMax":true},"serverTLSBootstrap":true,
			"tlsMinVersion":"VersionTLS12","tlsCipherSuites":["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]}`),
		Entry("parallel image pulls", `{"serializeImagePulls":false,"maxParallelImagePulls":5}`),
		Entry("logging and tracing", `{"logging":{"format":"json","verbosity":4,"flushFrequency":"5s"},"tracing":{"endpoint":"localhost:4317","samplingRatePerMillion":100}}`),
		Entry("a logging option that a feature gate enables", `{"featureGates":{"LoggingAlphaOptions":true},"logging":{"options":{"text":{"splitStream":true}}}}`),
		Entry("no static Pods", `{"staticPodPath":""}`),
		Entry("zeros, which mean the defaults of the kubelet", `{"maxPods":0,"port":0,"nodeLeaseDurationSeconds":0}`),
	)

	DescribeTable("is refused with an error for each wrong field that names the remedy",
		func(raw string, all ...string) { Expect(refused(raw)).To(Equal(all)) },
		Entry("an unknown field", `{"maxPod":5}`, "spec.kubelet.configuration.maxPod: Invalid value: a KubeletConfiguration has no such field: correct its name to maxPods, or remove it"),
		Entry("a field with the wrong case", `{"maxpods":5}`, "spec.kubelet.configuration.maxpods: Invalid value: a KubeletConfiguration has no such field: correct its name to maxPods, or remove it"),
		Entry("an unknown field in an object", `{"logging":{"options":{"jsn":{}}}}`, "spec.kubelet.configuration.logging.options.jsn: Invalid value: a KubeletConfiguration has no such field: correct its name to json, or remove it"),
		Entry("an unknown field in a list element", `{"reservedMemory":[{"numaNode":0,"limits":{}},{"numa":1}]}`,
			"spec.kubelet.configuration.reservedMemory[1].numa: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("a string instead of a number", `{"maxPods":"many"}`, `spec.kubelet.configuration.maxPods: Invalid value: must be a whole number, not the string "many"`),
		Entry("a number that does not fit", `{"maxPods":3000000000}`, `spec.kubelet.configuration.maxPods: Invalid value: must be a whole number from -2147483648 to 2147483647, not 3000000000`),
		Entry("an invalid duration", `{"syncFrequency":"often"}`, `spec.kubelet.configuration.syncFrequency: Invalid value: must be a duration, as 1m30s, not the string "often"`),
		Entry("an element of the wrong type", `{"clusterDNS":["10.0.0.1",5]}`, "spec.kubelet.configuration.clusterDNS[1]: Invalid value: must be a string, not 5: quote it"),
		Entry("a value of the wrong type in a map", `{"featureGates":{"A":"yes"}}`, `spec.kubelet.configuration.featureGates.A: Invalid value: must be true or false, not the string "yes"`),
		Entry("several mistakes", `{"maxPods":"a","podsPerCore":"b"}`,
			`spec.kubelet.configuration.maxPods: Invalid value: must be a whole number, not the string "a"`, `spec.kubelet.configuration.podsPerCore: Invalid value: must be a whole number, not the string "b"`),
		Entry("a duplicate field", `{"maxPods":5,"maxPods":6}`, "spec.kubelet.configuration.maxPods: Invalid value: is a duplicate: remove one"),
		Entry("a duplicate field in an object", `{"evictionHard":{"a":"1","a":"2"}}`, "spec.kubelet.configuration.evictionHard.a: Invalid value: is a duplicate: remove one"),
		Entry("null", `{"maxPods":null}`, "spec.kubelet.configuration.maxPods: Required value: null is not a value: set a value, or remove the field"),
		Entry("null in an object", `{"systemReserved":{"cpu":null}}`, "spec.kubelet.configuration.systemReserved.cpu: Required value: null is not a value: set a value, or remove the field"),
		Entry("a value that is not an object", `[]`, "spec.kubelet.configuration: Invalid value: must be an object with fields of a KubeletConfiguration"),
		Entry("a value that is not JSON", `{`, "spec.kubelet.configuration: Invalid value: must be an object with fields of a KubeletConfiguration"),
		Entry("null instead of an object", `null`, "spec.kubelet.configuration: Invalid value: must be an object with fields of a KubeletConfiguration"),
		Entry("no kind", `{"apiVersion":"kubelet.config.k8s.io/v1beta1"}`, "spec.kubelet.configuration.kind: Required value: set it to KubeletConfiguration"),
		Entry("no apiVersion", `{"kind":"KubeletConfiguration"}`, "spec.kubelet.configuration.apiVersion: Required value: set it to kubelet.config.k8s.io/v1beta1"),
		Entry("metadata", `{"metadata":{"name":"a"}}`, "spec.kubelet.configuration.metadata: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("another kind", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeProxyConfiguration"}`, `spec.kubelet.configuration.kind: Unsupported value: "KubeProxyConfiguration": supported values: "KubeletConfiguration"`),
		Entry("another apiVersion", `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"KubeletConfiguration"}`, `spec.kubelet.configuration.apiVersion: Unsupported value: "kubelet.config.k8s.io/v1": supported values: "kubelet.config.k8s.io/v1beta1"`),
		Entry("deep nesting", `{"featureGates":`+nested(5000)+`}`, "spec.kubelet.configuration.featureGates: Invalid value: must be an object, not a list"),
		Entry("a section that is too large", `{"clusterDomain":"`+strings.Repeat("a", 64<<10)+`"}`, "spec.kubelet.configuration: Too long: may not be more than 65536 bytes"),
	)

	It("returns a limited number of errors", func() {
		var fields []string
		for i := range 2000 {
			fields = append(fields, fmt.Sprintf(`"field%d":1`, i))
		}
		Expect(refused("{" + strings.Join(fields, ",") + "}")).To(HaveLen(20))
	})

	DescribeTable("is refused when it has a field that a pool cannot set",
		func(raw, want string) { Expect(refused(raw)).To(Equal([]string{"spec.kubelet.configuration." + want})) },
		Entry("the providerID", `{"providerID":"metal3://a"}`, "providerID: Forbidden: it identifies the host of a Node, and Poolboot sets it when the host is known: remove it"),
		Entry("taints", `{"registerWithTaints":[]}`, "registerWithTaints: Forbidden: set spec.node.taints"),
		Entry("no registration", `{"registerNode":false}`, "registerNode: Forbidden: a kubelet that does not register has no Node, and a pool contains Nodes: remove it"),
		Entry("the Pod addresses of a Node", `{"podCIDR":"10.0.0.0/24"}`, "podCIDR: Forbidden: it is specific to one host, and all hosts of a pool get the same value: remove it"),
		Entry("the address of a host", `{"address":"10.0.0.1"}`, "address: Forbidden: it is specific to one host, and all hosts of a pool get the same value: remove it"),
		Entry("authentication", `{"authentication":{"anonymous":{"enabled":true}}}`, "authentication: Forbidden: a pool cannot change who has access to the kubelet, and the API server needs access: remove it"),
		Entry("authorization", `{"authorization":{"mode":"AlwaysAllow"}}`, "authorization: Forbidden: a pool cannot change who has access to the kubelet, and the API server needs access: remove it"),
		Entry("no server", `{"enableServer":false}`, "enableServer: Forbidden: a pool cannot change who has access to the kubelet, and the API server needs access: remove it"),
		Entry("the read-only port", `{"readOnlyPort":10255}`, "readOnlyPort: Forbidden: it serves all clients without authentication: remove it"),
		Entry("no certificate rotation", `{"rotateCertificates":false}`, "rotateCertificates: Forbidden: without rotation, the certificate of the kubelet expires and its Node becomes NotReady: remove it"),
		Entry("static Pods", `{"staticPodPath":"/etc/pods"}`, `staticPodPath: Forbidden: static Pods are not supported: use a DaemonSet; "" disables static Pods`),
		Entry("static Pods from a URL", `{"staticPodURL":"https://a"}`, "staticPodURL: Forbidden: static Pods are not supported: use a DaemonSet"),
		Entry("headers for the URL of static Pods", `{"staticPodURLHeader":{"a":["b"]}}`, "staticPodURLHeader: Forbidden: static Pods are not supported: use a DaemonSet"),
		Entry("runOnce", `{"runOnce":true}`, "runOnce: Forbidden: the kubelet would exit after it ran its first Pods: remove it"),
		Entry("the health port that kubeadm uses", `{"healthzPort":0}`, "healthzPort: Forbidden: kubeadm join checks the health of the kubelet there: remove it"),
		Entry("the health address that kubeadm uses", `{"healthzBindAddress":"0.0.0.0"}`, "healthzBindAddress: Forbidden: kubeadm join checks the health of the kubelet there: remove it"),
		Entry("the cgroup driver", `{"cgroupDriver":"cgroupfs"}`, "cgroupDriver: Forbidden: the kubelet gets it from the container runtime of the host: remove it"),
	)

	DescribeTable("is merged over another as the kubelet merges drop-ins",
		func(base, over, want string) {
			merged, err := parsed(over).MergeOver(parsed(base))
			Expect(err).NotTo(HaveOccurred())
			Expect(merged).To(Equal(parsed(want)))
		},
		Entry("different fields", `{"maxPods":5}`, `{"podsPerCore":6}`, `{"maxPods":5,"podsPerCore":6}`),
		Entry("the same field", `{"maxPods":5}`, `{"maxPods":6}`, `{"maxPods":6}`),
		Entry("objects by key", `{"systemReserved":{"cpu":"1","memory":"1Gi"}}`, `{"systemReserved":{"cpu":"2"}}`, `{"systemReserved":{"cpu":"2","memory":"1Gi"}}`),
		Entry("lists as a whole", `{"clusterDNS":["10.0.0.1","10.0.0.2"]}`, `{"clusterDNS":["10.0.0.3"]}`, `{"clusterDNS":["10.0.0.3"]}`),
		Entry("an empty section", `{"maxPods":5}`, `{}`, `{"maxPods":5}`),
	)

	DescribeTable("is refused over another if a zero value erases a value of the other",
		func(base, over string, all ...string) {
			Expect(messagesOf(parsed(over).CheckOver(parsed(base), at))).To(Equal(all))
		},
		Entry("text", `{"reservedSystemCPUs":"0-1","tlsMinVersion":"VersionTLS13"}`, `{"reservedSystemCPUs":"","tlsMinVersion":""}`,
			`spec.kubelet.configuration.reservedSystemCPUs: Invalid value: "": would erase 0-1, which the worker pool sets, and the kubelet would use its default: remove it, or set a value`,
			`spec.kubelet.configuration.tlsMinVersion: Invalid value: "": would erase VersionTLS13, which the worker pool sets, and the kubelet would use its default: remove it, or set a value`),
		Entry("a list", `{"tlsCipherSuites":["TLS_AES_128_GCM_SHA256"]}`, `{"tlsCipherSuites":[]}`,
			`spec.kubelet.configuration.tlsCipherSuites: Invalid value: []: would erase the list, which the worker pool sets, and the kubelet would use its default: remove it, or set a value`),
		Entry("fields of objects", `{"memorySwap":{"swapBehavior":"LimitedSwap"},"logging":{"format":"json","flushFrequency":"9s"}}`, `{"memorySwap":{"swapBehavior":""},"logging":{"format":"","flushFrequency":"0s"}}`,
			`spec.kubelet.configuration.logging.flushFrequency: Invalid value: "0s": would erase 9s, which the worker pool sets, and the kubelet would use its default: remove it, or set a value`,
			`spec.kubelet.configuration.logging.format: Invalid value: "": would erase json, which the worker pool sets, and the kubelet would use its default: remove it, or set a value`,
			`spec.kubelet.configuration.memorySwap.swapBehavior: Invalid value: "": would erase LimitedSwap, which the worker pool sets, and the kubelet would use its default: remove it, or set a value`),
	)

	DescribeTable("keeps zero values that are values",
		func(base, over string) { Expect(parsed(over).CheckOver(parsed(base), at)).To(BeEmpty()) },
		Entry("of numbers, durations and switches", `{"shutdownGracePeriod":"30s","protectKernelDefaults":true,"podsPerCore":5,"logging":{"verbosity":4}}`,
			`{"shutdownGracePeriod":"0s","protectKernelDefaults":false,"podsPerCore":0,"logging":{"verbosity":0}}`),
		Entry("of fields that are pointers", `{"eventRecordQPS":5,"resolvConf":"/a"}`, `{"eventRecordQPS":0,"resolvConf":""}`),
		Entry("of lists that allow or enforce", `{"allowedUnsafeSysctls":["net.core.somaxconn"],"enforceNodeAllocatable":["pods"]}`, `{"allowedUnsafeSysctls":[],"enforceNodeAllocatable":[]}`),
		Entry("of objects, which are merged by key", `{"evictionHard":{"memory.available":"1Gi"},"memorySwap":{"swapBehavior":"LimitedSwap"}}`, `{"evictionHard":{},"memorySwap":{}}`),
		Entry("over nothing", `{"tlsMinVersion":""}`, `{"tlsMinVersion":"","staticPodPath":""}`),
	)

	It("is a drop-in that has only the fields that are set", func() {
		text, err := parsed(`{"podsPerCore":0,"maxPods":500,"systemReserved":{"memory":"1Gi","cpu":"1"}}`).DropIn("somewhere")
		Expect(err).NotTo(HaveOccurred())
		Expect(string(text)).To(Equal(`# From somewhere. Change it there.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 500
podsPerCore: 0
systemReserved:
  cpu: "1"
  memory: 1Gi
`))
	})

	It("is empty when it has only apiVersion and kind", func() {
		Expect(parsed(`{}`).IsEmpty()).To(BeTrue())
		Expect(kubelet.Section{}.IsEmpty()).To(BeTrue())
		Expect(kubelet.Section{}.Check(at)).To(BeEmpty())
		Expect(parsed(`{"maxPods":0}`).IsEmpty()).To(BeFalse())
	})
})
