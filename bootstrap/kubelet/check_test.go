package kubelet_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The values of a kubelet section", func() {
	DescribeTable("are refused where the kubelet would not start, or pass over them",
		func(raw, want string) {
			Expect(refused(raw)).To(ContainElement(HavePrefix("spec.kubeletConfiguration." + want)))
		},
		Entry("fewer pods than none", `{"maxPods":-1}`, "maxPods: Invalid value: -1: must be 0 or more"),
		Entry("a port that there is not", `{"port":70000}`, "port: Invalid value: 70000: must be between 0 and 65535"),
		Entry("more than all of the disk", `{"imageGCHighThresholdPercent":101}`, "imageGCHighThresholdPercent: Invalid value: 101: must be between 0 and 100"),
		Entry("no pull at all", `{"maxParallelImagePulls":0}`, "maxParallelImagePulls: Invalid value: 0: must be 1 or more"),
		Entry("one log file", `{"containerLogMaxFiles":1}`, "containerLogMaxFiles: Invalid value: 1: must be 2 or more"),
		Entry("a score beyond the kernel's", `{"oomScoreAdj":-2000}`, "oomScoreAdj: Invalid value: -2000: must be between -1000 and 1000"),
		Entry("a factor of nothing", `{"memoryThrottlingFactor":0}`, "memoryThrottlingFactor: Invalid value: 0: must be more than 0 and at most 1"),
		Entry("a policy that there is not", `{"topologyManagerPolicy":"best"}`, `topologyManagerPolicy: Unsupported value: "best": supported values: "none", "best-effort"`),
		Entry("another", `{"cpuManagerPolicy":"Static"}`, `cpuManagerPolicy: Unsupported value: "Static": supported values: "none", "static"`),
		Entry("a swap behavior that there is not", `{"memorySwap":{"swapBehavior":"UnlimitedSwap"}}`, `memorySwap.swapBehavior: Unsupported value: "UnlimitedSwap"`),
		Entry("what can't be enforced", `{"enforceNodeAllocatable":["pods","users"]}`, `enforceNodeAllocatable[1]: Unsupported value: "users"`),
		Entry("what is enforced twice", `{"enforceNodeAllocatable":["pods","pods"]}`, `enforceNodeAllocatable[1]: Duplicate value: "pods"`),
		Entry("a directory that moves", `{"podLogsDir":"logs"}`, `podLogsDir: Invalid value: "logs": must be an absolute path without detours`),
		Entry("CPUs that are none", `{"reservedSystemCPUs":"0-"}`, `reservedSystemCPUs: Invalid value: "0-": must be a list of CPUs, as 0,2-3`),

		Entry("a period too long", `{"cpuCFSQuotaPeriod":"2s"}`, `cpuCFSQuotaPeriod: Invalid value: "2s": must be between 1ms and 1s`),
		Entry("a look too often", `{"containerLogMonitorInterval":"1s"}`, `containerLogMonitorInterval: Invalid value: "1s": must be 3s or more`),
		Entry("an age below zero", `{"imageMinimumGCAge":"-1m"}`, `imageMinimumGCAge: Invalid value: "-1m0s": must be 0s or more`),
		Entry("a shutdown in no time", `{"shutdownGracePeriod":"10ms"}`, `shutdownGracePeriod: Invalid value: "10ms": must be 0 or at least 1s`),
		Entry("a restart too late", `{"crashLoopBackOff":{"maxContainerRestartPeriod":"10m"}}`, `crashLoopBackOff.maxContainerRestartPeriod: Invalid value: "10m0s": must be between 1s and 5m0s`),

		Entry("a reserve that is no quantity", `{"systemReserved":{"memory":"much"}}`, `systemReserved[memory]: Invalid value: "much": must be a quantity`),
		Entry("a reserve below zero", `{"kubeReserved":{"cpu":"-1"}}`, `kubeReserved[cpu]: Invalid value: "-1": must be a quantity`),
		Entry("a reserve of what can't be reserved", `{"systemReserved":{"hugepages-2Mi":"1Gi"}}`, `systemReserved: Unsupported value: "hugepages-2Mi": supported values: "cpu"`),
		Entry("an eviction by no signal", `{"evictionHard":{"memory":"1Gi"}}`, `evictionHard: Unsupported value: "memory": supported values: "memory.available"`),
		Entry("an eviction beyond all", `{"evictionSoft":{"nodefs.available":"110%"}}`, `evictionSoft[nodefs.available]: Invalid value: "110%": must be between 0% and 100%`),
		Entry("an eviction at no number", `{"evictionHard":{"nodefs.available":"NaN%"}}`, `evictionHard[nodefs.available]: Invalid value: "NaN%": must be between 0% and 100%`),
		Entry("an eviction after no time", `{"evictionSoftGracePeriod":{"nodefs.available":"90"}}`, `evictionSoftGracePeriod[nodefs.available]: Invalid value: "90": must be a duration`),
		Entry("a size that is none", `{"containerLogMaxSize":"large"}`, `containerLogMaxSize: Invalid value: "large": must be a quantity`),
		Entry("a name for an address", `{"clusterDNS":["10.0.0.1","dns"]}`, `clusterDNS[1]: Invalid value: "dns": must be an IP address`),

		Entry("a low above the high", `{"imageGCHighThresholdPercent":70,"imageGCLowThresholdPercent":75}`, "imageGCLowThresholdPercent: Invalid value: 75: must be less than imageGCHighThresholdPercent, which is 70"),
		Entry("a low above the default", `{"imageGCLowThresholdPercent":90}`, "imageGCLowThresholdPercent: Invalid value: 90: must be less than imageGCHighThresholdPercent, which is 85"),
		Entry("an end before the beginning", `{"imageMaximumGCAge":"1m"}`, `imageMaximumGCAge: Invalid value: "1m0s": must be more than imageMinimumGCAge, which is 2m0s`),
		Entry("pulls at once, one after the other", `{"maxParallelImagePulls":5}`, "maxParallelImagePulls: Invalid value: 5: more than 1 needs serializeImagePulls: false"),
		Entry("more for some than for all", `{"shutdownGracePeriodCriticalPods":"10s"}`, `shutdownGracePeriodCriticalPods: Invalid value: "10s": must not be more than shutdownGracePeriod, which is 0s`),
		Entry("two ways to shut down", `{"shutdownGracePeriod":"10s","shutdownGracePeriodByPodPriority":[{"priority":1,"shutdownGracePeriodSeconds":5}]}`, "shutdownGracePeriodByPodPriority: Invalid value: does not go with shutdownGracePeriod"),
		Entry("CPUs and a control group", `{"reservedSystemCPUs":"0","systemReservedCgroup":"/system.slice"}`, `reservedSystemCPUs: Invalid value: "0": does not go with systemReservedCgroup`),
		Entry("a control group without its root", `{"systemCgroups":"/system.slice"}`, `systemCgroups: Invalid value: "/system.slice": needs cgroupRoot`),
		Entry("what is enforced nowhere", `{"enforceNodeAllocatable":["pods","kube-reserved"]}`, `enforceNodeAllocatable: Invalid value: ["pods","kube-reserved"]: kube-reserved needs kubeReservedCgroup`),
		Entry("what is enforced in two ways", `{"systemReservedCgroup":"/a","enforceNodeAllocatable":["system-reserved","system-reserved-compressible"]}`,
			`enforceNodeAllocatable: Invalid value: ["system-reserved","system-reserved-compressible"]: system-reserved and system-reserved-compressible are one too many`),
		Entry("nothing and something", `{"enforceNodeAllocatable":["none","pods"]}`, `enforceNodeAllocatable: Invalid value: ["none","pods"]: none goes with nothing else`),

		Entry("a cipher that there is not", `{"tlsCipherSuites":["ROT13"]}`, `tlsCipherSuites: Invalid value: ["ROT13"]: Cipher suite ROT13 not supported or doesn't exist; known are TLS_`),
		Entry("a version of TLS that there is not", `{"tlsMinVersion":"1.3"}`, `tlsMinVersion: Invalid value: "1.3": must be one of VersionTLS10`),
		Entry("traces of more than all", `{"tracing":{"samplingRatePerMillion":2000000}}`, "tracing.samplingRatePerMillion: Invalid value: 2000000"),
		Entry("a log in no format", `{"logging":{"format":"xml"}}`, `logging.format: Unsupported value: "xml": supported values: "text", "json"`),
		Entry("a log by a feature that is off", `{"logging":{"options":{"json":{"splitStream":true}}}}`, "logging.options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"),
		Entry("a log of files that json has not", `{"logging":{"format":"json","vmodule":[{"filePattern":"a","verbosity":5}]}}`, "logging.vmodule: Forbidden: only goes with the format text"),
	)
})
