package kubelet_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool/kubelet"
)

var _ = Describe("The values of a kubelet section", func() {
	DescribeTable("are refused if the kubelet would not start, or would ignore them",
		func(raw, want string) {
			Expect(refused(raw)).To(ContainElement(HavePrefix("spec.kubelet.configuration." + want)))
		},
		Entry("a negative number of pods", `{"maxPods":-1}`, "maxPods: Invalid value: -1: must be 0 or more"),
		Entry("a port out of range", `{"port":70000}`, "port: Invalid value: 70000: must be between 0 and 65535"),
		Entry("more than 100% of the disk", `{"imageGCHighThresholdPercent":101}`, "imageGCHighThresholdPercent: Invalid value: 101: must be between 0 and 100"),
		Entry("no image pulls", `{"maxParallelImagePulls":0}`, "maxParallelImagePulls: Invalid value: 0: must be 1 or more"),
		Entry("only one log file", `{"containerLogMaxFiles":1}`, "containerLogMaxFiles: Invalid value: 1: must be 2 or more"),
		Entry("an OOM score out of range", `{"oomScoreAdj":-2000}`, "oomScoreAdj: Invalid value: -2000: must be between -1000 and 1000"),
		Entry("a factor of zero", `{"memoryThrottlingFactor":0}`, "memoryThrottlingFactor: Invalid value: 0: must be more than 0 and at most 1"),
		Entry("an unknown topology manager policy", `{"topologyManagerPolicy":"best"}`, `topologyManagerPolicy: Unsupported value: "best": supported values: "none", "best-effort"`),
		Entry("an unknown CPU manager policy", `{"cpuManagerPolicy":"Static"}`, `cpuManagerPolicy: Unsupported value: "Static": supported values: "none", "static"`),
		Entry("an unknown swap behavior", `{"memorySwap":{"swapBehavior":"UnlimitedSwap"}}`, `memorySwap.swapBehavior: Unsupported value: "UnlimitedSwap"`),
		Entry("an unknown value in enforceNodeAllocatable", `{"enforceNodeAllocatable":["pods","users"]}`, `enforceNodeAllocatable[1]: Unsupported value: "users"`),
		Entry("a duplicate value in enforceNodeAllocatable", `{"enforceNodeAllocatable":["pods","pods"]}`, `enforceNodeAllocatable[1]: Duplicate value: "pods"`),
		Entry("a relative directory", `{"podLogsDir":"logs"}`, `podLogsDir: Invalid value: "logs": must be an absolute path in its shortest form`),
		Entry("an invalid list of CPUs", `{"reservedSystemCPUs":"0-"}`, `reservedSystemCPUs: Invalid value: "0-": must be a list of CPUs, as 0,2-3: "0-" is neither a CPU nor a range`),
		Entry("a range of CPUs in the wrong order", `{"reservedSystemCPUs":"3-2"}`, `reservedSystemCPUs: Invalid value: "3-2": must be a list of CPUs, as 0,2-3: the range "3-2" ends before it begins`),
		Entry("more CPUs than Linux can have, without a set of all of them", `{"reservedSystemCPUs":"0-4294967295"}`, `reservedSystemCPUs: Invalid value: "0-4294967295": must be a list of CPUs, as 0,2-3: "0-4294967295" has a CPU after 8191`),
		Entry("a resource that is no memory in reservedMemory", `{"reservedMemory":[{"numaNode":0,"limits":{"cpu":"1"}}]}`, `reservedMemory[0].limits[cpu]: Invalid value: only memory and hugepages-SIZE can be reserved`),
		Entry("no memory in reservedMemory", `{"reservedMemory":[{"numaNode":0,"limits":{"memory":"0"}}]}`, `reservedMemory[0].limits[memory]: Invalid value: "0": must be more than 0`),
		Entry("the memory of one NUMA node twice", `{"reservedMemory":[{"numaNode":0,"limits":{"memory":"1Gi"}},{"numaNode":0,"limits":{"memory":"2Gi"}}]}`, `reservedMemory[1].limits[memory]: Invalid value: "2Gi": an earlier item reserves it on the same NUMA node: remove one`),

		Entry("a period that is too long", `{"cpuCFSQuotaPeriod":"2s"}`, `cpuCFSQuotaPeriod: Invalid value: "2s": must be between 1ms and 1s`),
		Entry("an interval that is too short", `{"containerLogMonitorInterval":"1s"}`, `containerLogMonitorInterval: Invalid value: "1s": must be 3s or more`),
		Entry("a negative age", `{"imageMinimumGCAge":"-1m"}`, `imageMinimumGCAge: Invalid value: "-1m0s": must be 0s or more`),
		Entry("a shutdown period that is too short", `{"shutdownGracePeriod":"10ms"}`, `shutdownGracePeriod: Invalid value: "10ms": must be 0 or at least 1s`),
		Entry("a restart period that is too long", `{"crashLoopBackOff":{"maxContainerRestartPeriod":"10m"}}`, `crashLoopBackOff.maxContainerRestartPeriod: Invalid value: "10m0s": must be between 1s and 5m0s`),

		Entry("a reserved resource that is not a quantity", `{"systemReserved":{"memory":"much"}}`, `systemReserved[memory]: Invalid value: "much": must be a quantity`),
		Entry("a negative reserved resource", `{"kubeReserved":{"cpu":"-1"}}`, `kubeReserved[cpu]: Invalid value: "-1": must be a quantity`),
		Entry("a resource that cannot be reserved", `{"systemReserved":{"hugepages-2Mi":"1Gi"}}`, `systemReserved: Unsupported value: "hugepages-2Mi": supported values: "cpu"`),
		Entry("an unknown eviction signal", `{"evictionHard":{"memory":"1Gi"}}`, `evictionHard: Unsupported value: "memory": supported values: "memory.available"`),
		Entry("an eviction threshold above 100%", `{"evictionSoft":{"nodefs.available":"110%"}}`, `evictionSoft[nodefs.available]: Invalid value: "110%": must be between 0% and 100%`),
		Entry("an eviction threshold that is not a number", `{"evictionHard":{"nodefs.available":"NaN%"}}`, `evictionHard[nodefs.available]: Invalid value: "NaN%": must be between 0% and 100%`),
		Entry("an eviction grace period that is not a duration", `{"evictionSoftGracePeriod":{"nodefs.available":"90"}}`, `evictionSoftGracePeriod[nodefs.available]: Invalid value: "90": must be a duration`),
		Entry("an invalid size", `{"containerLogMaxSize":"large"}`, `containerLogMaxSize: Invalid value: "large": must be a quantity`),
		Entry("a name instead of an IP address", `{"clusterDNS":["10.0.0.1","dns"]}`, `clusterDNS[1]: Invalid value: "dns": must be an IP address`),

		Entry("a low threshold above the high threshold", `{"imageGCHighThresholdPercent":70,"imageGCLowThresholdPercent":75}`, "imageGCLowThresholdPercent: Invalid value: 75: must be less than imageGCHighThresholdPercent, which is 70"),
		Entry("a low threshold above the default of the high threshold", `{"imageGCLowThresholdPercent":90}`, "imageGCLowThresholdPercent: Invalid value: 90: must be less than imageGCHighThresholdPercent, which is 85"),
		Entry("a maximum age below the default of the minimum age", `{"imageMaximumGCAge":"1m"}`, `imageMaximumGCAge: Invalid value: "1m0s": must be more than imageMinimumGCAge, which is 2m0s`),
		Entry("parallel image pulls that are serialized", `{"maxParallelImagePulls":5}`, "maxParallelImagePulls: Invalid value: 5: more than 1 requires serializeImagePulls: false"),
		Entry("a longer period for critical Pods than for all Pods", `{"shutdownGracePeriodCriticalPods":"10s"}`, `shutdownGracePeriodCriticalPods: Invalid value: "10s": must not be more than shutdownGracePeriod, which is 0s`),
		Entry("two kinds of shutdown periods", `{"shutdownGracePeriod":"10s","shutdownGracePeriodByPodPriority":[{"priority":1,"shutdownGracePeriodSeconds":5}]}`, "shutdownGracePeriodByPodPriority: Invalid value: cannot be combined with shutdownGracePeriod"),
		Entry("reserved CPUs together with a reserved cgroup", `{"reservedSystemCPUs":"0","systemReservedCgroup":"/system.slice"}`, `reservedSystemCPUs: Invalid value: "0": cannot be combined with systemReservedCgroup`),
		Entry("a cgroup without its root", `{"systemCgroups":"/system.slice"}`, `systemCgroups: Invalid value: "/system.slice": requires cgroupRoot`),
		Entry("enforcement without a cgroup", `{"enforceNodeAllocatable":["pods","kube-reserved"]}`, `enforceNodeAllocatable: Invalid value: ["pods","kube-reserved"]: kube-reserved requires kubeReservedCgroup`),
		Entry("two kinds of enforcement for the same reservation", `{"systemReservedCgroup":"/a","enforceNodeAllocatable":["system-reserved","system-reserved-compressible"]}`,
			`enforceNodeAllocatable: Invalid value: ["system-reserved","system-reserved-compressible"]: system-reserved and system-reserved-compressible are mutually exclusive`),
		Entry("none together with another value", `{"enforceNodeAllocatable":["none","pods"]}`, `enforceNodeAllocatable: Invalid value: ["none","pods"]: none cannot be combined with other values`),

		Entry("an unknown cipher suite", `{"tlsCipherSuites":["ROT13"]}`, `tlsCipherSuites: Invalid value: ["ROT13"]: Cipher suite ROT13 not supported or doesn't exist; supported values: TLS_`),
		Entry("an unknown TLS version", `{"tlsMinVersion":"1.3"}`, `tlsMinVersion: Invalid value: "1.3": must be one of VersionTLS10`),
		Entry("a sampling rate above one million", `{"tracing":{"samplingRatePerMillion":2000000}}`, "tracing.samplingRatePerMillion: Invalid value: 2000000"),
		Entry("an unknown log format", `{"logging":{"format":"xml"}}`, `logging.format: Unsupported value: "xml": supported values: "text", "json"`),
		Entry("a log option whose feature gate is disabled", `{"logging":{"options":{"json":{"splitStream":true}}}}`, "logging.options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"),
		Entry("vmodule with the log format json", `{"logging":{"format":"json","vmodule":[{"filePattern":"a","verbosity":5}]}}`, "logging.vmodule: Forbidden: is supported only with the format text"),
	)
})

var _ = Describe("A static policy of a kubelet section", func() {
	check := func(raw string, computesReserved bool) []string {
		section, errs := kubelet.Parse([]byte(whole(raw)), at)
		Expect(errs).To(BeEmpty())
		return messagesOf(append(section.Check(at), section.CheckReservations(at, computesReserved)...))
	}

	DescribeTable("is refused without what the kubelet must reserve for it",
		func(raw, want string) {
			Expect(check(raw, false)).To(ConsistOf(HavePrefix("spec.kubelet.configuration." + want)))
		},
		Entry("CPUs", `{"cpuManagerPolicy":"static"}`, `cpuManagerPolicy: Invalid value: "static": the kubelet does not start with it if no CPU is reserved: set reservedSystemCPUs, or cpu in systemReserved or kubeReserved`),
		Entry("more than zero CPUs", `{"cpuManagerPolicy":"static","reservedSystemCPUs":"","systemReserved":{"cpu":"0","memory":"1Gi"},"kubeReserved":{"cpu":"0m"}}`, `cpuManagerPolicy: Invalid value: "static"`),
		Entry("memory", `{"memoryManagerPolicy":"Static","systemReserved":{"memory":"1Gi"}}`, `memoryManagerPolicy: Invalid value: "Static": the kubelet does not start with it if no memory is reserved: set memory in the limits of reservedMemory`),
		Entry("memory that is no huge page", `{"memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":0,"limits":{"hugepages-1Gi":"2Gi"}}]}`, `memoryManagerPolicy: Invalid value: "Static"`),
	)

	DescribeTable("is accepted with it",
		func(raw string) { Expect(check(raw, false)).To(BeEmpty()) },
		Entry("CPUs by number", `{"cpuManagerPolicy":"static","reservedSystemCPUs":"0,2-3"}`),
		Entry("CPUs of the system", `{"cpuManagerPolicy":"static","systemReserved":{"cpu":"500m"}}`),
		Entry("CPUs of Kubernetes", `{"cpuManagerPolicy":"static","kubeReserved":{"cpu":"1"}}`),
		Entry("memory", `{"memoryManagerPolicy":"Static","reservedMemory":[{"numaNode":0,"limits":{"memory":"100Mi","hugepages-1Gi":"2Gi"}},{"numaNode":1,"limits":{"memory":"1Gi"}}]}`),
		Entry("no static policy", `{"cpuManagerPolicy":"none","memoryManagerPolicy":"None"}`),
	)

	It("is accepted if each host computes what it reserves", func() {
		Expect(check(`{"cpuManagerPolicy":"static"}`, true)).To(BeEmpty())
	})
})
