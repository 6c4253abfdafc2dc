package kubelet_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubelet"
)

var at = field.NewPath("spec", "kubeletConfiguration")

// parsed is a section that is right.
func parsed(raw string) kubelet.Section {
	GinkgoHelper()
	section, errs := kubelet.Parse([]byte(whole(raw)), at)
	Expect(errs).To(BeEmpty())
	return section
}

// whole is an object in JSON with the apiVersion and kind of a section. One that has any of the two stays as it is.
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

// refused is what Parse, or else Check, says of a section.
func refused(raw string) []string {
	section, errs := kubelet.Parse([]byte(whole(raw)), at)
	if len(errs) == 0 {
		errs = section.Check(at)
	}
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

// nested is a list in a list, so many times.
func nested(times int) string { return strings.Repeat("[", times) + strings.Repeat("]", times) }

var _ = Describe("A kubelet section", func() {
	DescribeTable("may be all that a pool's kubelets have in common",
		func(raw string) { Expect(refused(raw)).To(BeEmpty()) },
		Entry("nothing but its kind", `{}`),
		Entry("with its kind", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":500}`),
		Entry("what OpenShift's documentation sets", `{"maxPods":500,"podsPerCore":10,"kubeAPIBurst":200,"kubeAPIQPS":100,"nodeStatusUpdateFrequency":"10s",
			"systemReserved":{"cpu":"2000m","memory":"1Gi"},"kubeReserved":{"pid":"100","ephemeral-storage":"1Gi"},"podPidsLimit":4096,
			"evictionSoft":{"memory.available":"500Mi","nodefs.available":"10%"},"evictionSoftGracePeriod":{"memory.available":"1m30s"},
			"evictionHard":{"imagefs.inodesFree":"5.5%"},"evictionPressureTransitionPeriod":"0s","imageMinimumGCAge":"5m",
			"imageGCHighThresholdPercent":80,"imageGCLowThresholdPercent":75,"allowedUnsafeSysctls":["net.core.somaxconn"]}`),
		Entry("for latency", `{"cpuManagerPolicy":"static","cpuManagerReconcilePeriod":"5s","reservedSystemCPUs":"0,2-3","topologyManagerPolicy":"single-numa-node",
			"topologyManagerScope":"pod","memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":0,"limits":{"memory":"1100Mi"}}]}`),
		Entry("what OpenShift's templates set", `{"clusterDNS":["10.96.0.10","fd00::a"],"clusterDomain":"cluster.local","containerRuntimeEndpoint":"unix:///run/crio/crio.sock",
			"failSwapOn":false,"memorySwap":{"swapBehavior":"LimitedSwap"},"featureGates":{"KubeletCrashLoopBackOffMax":true},"serverTLSBootstrap":true,
			"tlsMinVersion":"VersionTLS12","tlsCipherSuites":["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]}`),
		Entry("several pulls at once", `{"serializeImagePulls":false,"maxParallelImagePulls":5}`),
		Entry("how it logs", `{"logging":{"format":"json","verbosity":4,"flushFrequency":"5s"},"tracing":{"endpoint":"localhost:4317","samplingRatePerMillion":100}}`),
		Entry("logging that a feature gate allows", `{"featureGates":{"LoggingAlphaOptions":true},"logging":{"options":{"text":{"splitStream":true}}}}`),
		Entry("an end of static pods", `{"staticPodPath":""}`),
		Entry("zeros, which are the kubelet's defaults", `{"maxPods":0,"port":0,"nodeLeaseDurationSeconds":0}`),
	)

	DescribeTable("is refused with each field that is not right, and what would be",
		func(raw string, all ...string) { Expect(refused(raw)).To(Equal(all)) },
		Entry("a field that there is not", `{"maxPod":5}`, "spec.kubeletConfiguration.maxPod: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("a field in another case", `{"maxpods":5}`, "spec.kubeletConfiguration.maxpods: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("a field within one", `{"logging":{"options":{"jsn":{}}}}`, "spec.kubeletConfiguration.logging.options.jsn: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("a field of an element", `{"reservedMemory":[{"numaNode":0,"limits":{}},{"numa":1}]}`,
			"spec.kubeletConfiguration.reservedMemory[1].numa: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("a word for a number", `{"maxPods":"many"}`, `spec.kubeletConfiguration.maxPods: Invalid value: "many": must be of type int32`),
		Entry("a number that does not fit", `{"maxPods":3000000000}`, `spec.kubeletConfiguration.maxPods: Invalid value: 3000000000: must be of type int32`),
		Entry("a duration that is none", `{"syncFrequency":"often"}`, `spec.kubeletConfiguration.syncFrequency: Invalid value: "often": time: invalid duration "often"`),
		Entry("an element of the wrong type", `{"clusterDNS":["10.0.0.1",5]}`, "spec.kubeletConfiguration.clusterDNS[1]: Invalid value: 5: must be of type string"),
		Entry("a value of the wrong type in a map", `{"featureGates":{"A":"yes"}}`, `spec.kubeletConfiguration.featureGates.A: Invalid value: "yes": must be of type bool`),
		Entry("several at once", `{"maxPods":"a","podsPerCore":"b"}`,
			`spec.kubeletConfiguration.maxPods: Invalid value: "a": must be of type int32`, `spec.kubeletConfiguration.podsPerCore: Invalid value: "b": must be of type int32`),
		Entry("a field that is there twice", `{"maxPods":5,"maxPods":6}`, "spec.kubeletConfiguration.maxPods: Invalid value: is there twice: remove one"),
		Entry("a field within one that is there twice", `{"evictionHard":{"a":"1","a":"2"}}`, "spec.kubeletConfiguration.evictionHard.a: Invalid value: is there twice: remove one"),
		Entry("null", `{"maxPods":null}`, "spec.kubeletConfiguration.maxPods: Required value: null says nothing: give a value, or leave it out"),
		Entry("null within", `{"systemReserved":{"cpu":null}}`, "spec.kubeletConfiguration.systemReserved.cpu: Required value: null says nothing: give a value, or leave it out"),
		Entry("no object", `[]`, "spec.kubeletConfiguration: Invalid value: must be an object with fields of a KubeletConfiguration"),
		Entry("no JSON", `{`, "spec.kubeletConfiguration: Invalid value: must be an object with fields of a KubeletConfiguration"),
		Entry("null for all", `null`, "spec.kubeletConfiguration: Invalid value: must be an object with fields of a KubeletConfiguration"),
		Entry("no kind", `{"apiVersion":"kubelet.config.k8s.io/v1beta1"}`, "spec.kubeletConfiguration.kind: Required value: set it to KubeletConfiguration"),
		Entry("no version", `{"kind":"KubeletConfiguration"}`, "spec.kubeletConfiguration.apiVersion: Required value: set it to kubelet.config.k8s.io/v1beta1"),
		Entry("metadata", `{"metadata":{"name":"a"}}`, "spec.kubeletConfiguration.metadata.name: Invalid value: a KubeletConfiguration has no such field: correct its name, or remove it"),
		Entry("another kind", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeProxyConfiguration"}`, `spec.kubeletConfiguration.kind: Unsupported value: "KubeProxyConfiguration": supported values: "KubeletConfiguration"`),
		Entry("another version", `{"apiVersion":"kubelet.config.k8s.io/v1","kind":"KubeletConfiguration"}`, `spec.kubeletConfiguration.apiVersion: Unsupported value: "kubelet.config.k8s.io/v1": supported values: "kubelet.config.k8s.io/v1beta1"`),
		Entry("a deep nest", `{"featureGates":`+nested(5000)+`}`, "spec.kubeletConfiguration.featureGates[0][0][0][0][0][0][0][0][0][0][0][0]: Invalid value: nothing in a KubeletConfiguration is nested so deep: remove it"),
		Entry("a huge one", `{"clusterDomain":"`+strings.Repeat("a", 64<<10)+`"}`, "spec.kubeletConfiguration: Too long: may not be more than 65536 bytes"),
	)

	It("names no more than a screen can show", func() {
		var fields []string
		for i := range 2000 {
			fields = append(fields, fmt.Sprintf(`"field%d":1`, i))
		}
		Expect(refused("{" + strings.Join(fields, ",") + "}")).To(HaveLen(20))
	})

	DescribeTable("is refused when it has what is not a pool's to set",
		func(raw, want string) { Expect(refused(raw)).To(Equal([]string{"spec.kubeletConfiguration." + want})) },
		Entry("the host", `{"providerID":"metal3://a"}`, "providerID: Forbidden: it says which host a Node is: it is set when the host is known"),
		Entry("taints", `{"registerWithTaints":[]}`, "registerWithTaints: Forbidden: set spec.nodeTaints"),
		Entry("no Node", `{"registerNode":false}`, "registerNode: Forbidden: a kubelet that does not register has no Node to be in a pool: leave it out"),
		Entry("a Node's addresses", `{"podCIDR":"10.0.0.0/24"}`, "podCIDR: Forbidden: it is one host's own, and all hosts of a pool have the same: leave it out"),
		Entry("a host's address", `{"address":"10.0.0.1"}`, "address: Forbidden: it is one host's own, and all hosts of a pool have the same: leave it out"),
		Entry("who may reach it", `{"authentication":{"anonymous":{"enabled":true}}}`, "authentication: Forbidden: who may reach the kubelet is not a pool's to say, and the API server must: leave it out"),
		Entry("what they may", `{"authorization":{"mode":"AlwaysAllow"}}`, "authorization: Forbidden: who may reach the kubelet is not a pool's to say, and the API server must: leave it out"),
		Entry("nobody may reach it", `{"enableServer":false}`, "enableServer: Forbidden: who may reach the kubelet is not a pool's to say, and the API server must: leave it out"),
		Entry("anybody may read", `{"readOnlyPort":10255}`, "readOnlyPort: Forbidden: it answers everybody, without authentication: leave it out"),
		Entry("an end of its certificate", `{"rotateCertificates":false}`, "rotateCertificates: Forbidden: without it the kubelet's certificate ends and its Node with it: leave it out"),
		Entry("static pods", `{"staticPodPath":"/etc/pods"}`, `staticPodPath: Forbidden: pods come from the API server: run them as a DaemonSet; "" turns static pods off`),
		Entry("static pods from elsewhere", `{"staticPodURL":"https://a"}`, "staticPodURL: Forbidden: pods come from the API server: run them as a DaemonSet"),
		Entry("how to get them", `{"staticPodURLHeader":{"a":["b"]}}`, "staticPodURLHeader: Forbidden: pods come from the API server: run them as a DaemonSet"),
		Entry("one run", `{"runOnce":true}`, "runOnce: Forbidden: the kubelet would stop after its first pods: leave it out"),
		Entry("where kubeadm asks", `{"healthzPort":0}`, "healthzPort: Forbidden: kubeadm join asks the kubelet there whether it is well: leave it out"),
		Entry("who may ask", `{"healthzBindAddress":"0.0.0.0"}`, "healthzBindAddress: Forbidden: kubeadm join asks the kubelet there whether it is well: leave it out"),
		Entry("what is the runtime's", `{"cgroupDriver":"cgroupfs"}`, "cgroupDriver: Forbidden: it must be that of the host's container runtime, which tells the kubelet: leave it out"),
	)

	DescribeTable("lies on top of another as the kubelet merges drop-ins",
		func(base, over, want string) {
			merged, err := parsed(over).Over(parsed(base))
			Expect(err).NotTo(HaveOccurred())
			Expect(merged).To(Equal(parsed(want)))
		},
		Entry("fields beside each other", `{"maxPods":5}`, `{"podsPerCore":6}`, `{"maxPods":5,"podsPerCore":6}`),
		Entry("the later wins", `{"maxPods":5}`, `{"maxPods":6}`, `{"maxPods":6}`),
		Entry("objects key by key", `{"systemReserved":{"cpu":"1","memory":"1Gi"}}`, `{"systemReserved":{"cpu":"2"}}`, `{"systemReserved":{"cpu":"2","memory":"1Gi"}}`),
		Entry("lists as a whole", `{"clusterDNS":["10.0.0.1","10.0.0.2"]}`, `{"clusterDNS":["10.0.0.3"]}`, `{"clusterDNS":["10.0.0.3"]}`),
		Entry("nothing over something", `{"maxPods":5}`, `{}`, `{"maxPods":5}`),
	)

	It("is a drop-in with those fields that were given, and no others", func() {
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

	It("says nothing when it has only a kind", func() {
		Expect(parsed(`{}`).IsEmpty()).To(BeTrue())
		Expect(kubelet.Section{}.IsEmpty()).To(BeTrue())
		Expect(kubelet.Section{}.Check(at)).To(BeEmpty())
		Expect(parsed(`{"maxPods":0}`).IsEmpty()).To(BeFalse())
	})
})
