package convert

import (
	"crypto/sha256"
	"fmt"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert, of drop-ins of the kubelet's configuration in MachineConfigs", func() {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	converting := func(path, text string) clitest.Result {
		document := fmt.Sprintf(`apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-a, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.2.0}, storage: {files: [{path: %s, contents: {source: "data:,%s", verification: {hash: sha256-%x}}}]}}}`,
			path, url.PathEscape(text), sha256.Sum256([]byte(text)))
		return runPoolboot("convert", "-f", clitest.WriteFile("a.yaml", document, clitest.OpenShiftWorker), "--cluster", "c", "-n", "n")
	}
	const directory, file = "/etc/kubernetes/kubelet.conf.d/", "/etc/kubernetes/kubelet.conf.d/20-a.conf"
	const about = `MachineConfig "50-a": spec.config.storage.files[0]: ` + file + ": "

	It("removes the empty values that would erase others, and keeps those that are values", func() {
		r := converting(file, head+"containerRuntimeEndpoint: \"\"\nmaxPods: 5\nmemorySwap: {swapBehavior: \"\"}\nprotectKernelDefaults: false\n"+
			"shutdownGracePeriod: 0s\nstreamingConnectionIdleTimeout: 0s\nsyncFrequency: null\ntlsCipherSuites: []\n")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(Equal("note: " + about + "without containerRuntimeEndpoint, memorySwap.swapBehavior, streamingConnectionIdleTimeout, syncFrequency, " +
			"tlsCipherSuites: an empty value means the default, and would erase the value of another drop-in\n"))
		kept := ignition.DataURL([]byte(head + "maxPods: 5\nmemorySwap: {}\nprotectKernelDefaults: false\nshutdownGracePeriod: 0s\n"))
		Expect(r.Out).To(ContainSubstring("      - contents:\n          source: " + kept + "\n        path: " + file))
	})

	It("changes no drop-in without them", func() {
		r := converting(file, head+"# a comment\nmaxPods: 5\nimageGCLowThresholdPercent: 90\n") // valid with another drop-in
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(BeEmpty())
		Expect(r.Out).To(ContainSubstring("a%20comment"))
	})

	It("does not judge a file that the kubelet does not read", func() {
		r := converting(directory+"20-a.conf.bak", head+"maxPods: many\n")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(BeEmpty())
	})

	DescribeTable("refuses values with which the kubelet would not start",
		func(text, why string) { clitest.ExpectError(converting(file, head+text), 1, about+why) },
		Entry("of another type", "maxPods: many\n", `maxPods: must be a whole number, not the string "many"`),
		Entry("out of range", "maxPods: -1\n", "maxPods: Invalid value: -1: must be 0 or more"),
		Entry("that do not exist", "memorySwap: {swapBehavior: UnlimitedSwap}\n", `memorySwap.swapBehavior: Unsupported value: "UnlimitedSwap"`),
	)

	It("warns of a field that does not exist", func() {
		r := converting("/etc/openshift/kubelet.conf.d/20-a.conf", head+"maxPodz: 5\n")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		Expect(r.ErrOut).To(ContainSubstring("warning: " + about + "maxPodz has no effect: a KubeletConfiguration has no such field: correct its name to maxPods, or remove it"))
	})
})
