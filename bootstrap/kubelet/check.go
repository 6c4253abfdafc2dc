package kubelet

import (
	"fmt"
	"math"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
)

// Check refuses values with which a kubelet would not start, or which it would ignore: numbers out of range, unknown
// values and conflicting fields. The rules are those of the kubelet's own validation, which is not available as a
// library. For an omitted field, Check uses the default of the kubelet. It does not check values that depend on the
// version of the kubelet, such as the names of feature gates.
func (s Section) Check(at *field.Path) field.ErrorList {
	raw, err := s.json()
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	c := check{at: at}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &c.KubeletConfiguration); err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	c.numbers()
	c.words()
	c.durations()
	c.amounts()
	c.addresses()
	c.together()
	c.libraries()
	return c.errs
}

// check checks one KubeletConfiguration.
type check struct {
	kubeletv1beta1.KubeletConfiguration
	at   *field.Path
	errs field.ErrorList
}

func (c *check) refuse(name string, value any, why string, args ...any) {
	c.errs = append(c.errs, field.Invalid(c.at.Child(name), value, fmt.Sprintf(why, args...)))
}

func (c *check) numbers() {
	const most = math.MaxInt32
	for _, number := range []struct {
		name             string
		value, low, high int64
	}{
		{"port", int64(c.Port), 0, 65535},
		{"maxPods", int64(c.MaxPods), 0, most},
		{"podsPerCore", int64(c.PodsPerCore), 0, most},
		{"maxOpenFiles", c.MaxOpenFiles, 0, math.MaxInt64},
		{"nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 0, most},
		{"registryPullQPS", int64(ptr.Deref(c.RegistryPullQPS, 0)), 0, most},
		{"registryBurst", int64(c.RegistryBurst), 0, most},
		{"eventRecordQPS", int64(ptr.Deref(c.EventRecordQPS, 0)), 0, most},
		{"eventBurst", int64(c.EventBurst), 0, most},
		{"kubeAPIQPS", int64(ptr.Deref(c.KubeAPIQPS, 0)), 0, most},
		{"kubeAPIBurst", int64(c.KubeAPIBurst), 0, most},
		{"maxParallelImagePulls", int64(ptr.Deref(c.MaxParallelImagePulls, 1)), 1, most},
		{"nodeStatusMaxImages", int64(ptr.Deref(c.NodeStatusMaxImages, 0)), -1, most},
		{"imageGCHighThresholdPercent", int64(ptr.Deref(c.ImageGCHighThresholdPercent, imageGCHigh)), 0, 100},
		{"imageGCLowThresholdPercent", int64(ptr.Deref(c.ImageGCLowThresholdPercent, imageGCLow)), 0, 100},
		{"oomScoreAdj", int64(ptr.Deref(c.OOMScoreAdj, 0)), -1000, 1000},
		{"iptablesMasqueradeBit", int64(ptr.Deref(c.IPTablesMasqueradeBit, 0)), 0, 31},
		{"iptablesDropBit", int64(ptr.Deref(c.IPTablesDropBit, 0)), 0, 31},
		{"containerLogMaxFiles", int64(ptr.Deref(c.ContainerLogMaxFiles, 2)), 2, most},
		{"containerLogMaxWorkers", int64(ptr.Deref(c.ContainerLogMaxWorkers, 1)), 1, most},
	} {
		switch {
		case number.value >= number.low && number.value <= number.high:
		case number.high >= most:
			c.refuse(number.name, number.value, "must be %d or more", number.low)
		default:
			c.refuse(number.name, number.value, "must be between %d and %d", number.low, number.high)
		}
	}
	if factor := ptr.Deref(c.MemoryThrottlingFactor, 1); factor <= 0 || factor > 1 {
		c.refuse("memoryThrottlingFactor", factor, "must be more than 0 and at most 1")
	}
}

func (c *check) words() {
	for _, word := range []struct {
		name, value string
		known       []string
	}{
		{"cpuManagerPolicy", c.CPUManagerPolicy, []string{"none", "static"}},
		{"memoryManagerPolicy", c.MemoryManagerPolicy, []string{"None", "Static"}},
		{"topologyManagerPolicy", c.TopologyManagerPolicy, []string{kubeletv1beta1.NoneTopologyManagerPolicy,
			kubeletv1beta1.BestEffortTopologyManagerPolicy, kubeletv1beta1.RestrictedTopologyManagerPolicy, kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy}},
		{"topologyManagerScope", c.TopologyManagerScope, []string{kubeletv1beta1.ContainerTopologyManagerScope, kubeletv1beta1.PodTopologyManagerScope}},
		{"hairpinMode", c.HairpinMode, []string{kubeletv1beta1.HairpinVeth, kubeletv1beta1.PromiscuousBridge, kubeletv1beta1.HairpinNone}},
		{"configMapAndSecretChangeDetectionStrategy", string(c.ConfigMapAndSecretChangeDetectionStrategy), []string{
			string(kubeletv1beta1.GetChangeDetectionStrategy), string(kubeletv1beta1.TTLCacheChangeDetectionStrategy), string(kubeletv1beta1.WatchChangeDetectionStrategy)}},
		{"imagePullCredentialsVerificationPolicy", string(c.ImagePullCredentialsVerificationPolicy), []string{
			string(kubeletv1beta1.NeverVerify), string(kubeletv1beta1.NeverVerifyPreloadedImages),
			string(kubeletv1beta1.NeverVerifyAllowlistedImages), string(kubeletv1beta1.AlwaysVerify)}},
		{"memoryReservationPolicy", string(c.MemoryReservationPolicy), []string{
			string(kubeletv1beta1.NoneMemoryReservationPolicy), string(kubeletv1beta1.TieredReservationMemoryReservationPolicy)}},
	} {
		if word.value != "" && !slices.Contains(word.known, word.value) {
			c.errs = append(c.errs, field.NotSupported(c.at.Child(word.name), word.value, word.known))
		}
	}
	swap := []string{"NoSwap", "LimitedSwap"}
	if c.MemorySwap.SwapBehavior != "" && !slices.Contains(swap, c.MemorySwap.SwapBehavior) {
		c.errs = append(c.errs, field.NotSupported(c.at.Child("memorySwap", "swapBehavior"), c.MemorySwap.SwapBehavior, swap))
	}
	enforced := []string{"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"}
	for i, what := range c.EnforceNodeAllocatable {
		switch at := c.at.Child("enforceNodeAllocatable").Index(i); {
		case !slices.Contains(enforced, what):
			c.errs = append(c.errs, field.NotSupported(at, what, enforced))
		case slices.Contains(c.EnforceNodeAllocatable[:i], what):
			c.errs = append(c.errs, field.Duplicate(at, what))
		}
	}
	for _, directory := range []struct{ name, value string }{{"podLogsDir", c.PodLogsDir}, {"volumePluginDir", c.VolumePluginDir}} {
		if directory.value != "" && (!path.IsAbs(directory.value) || path.Clean(directory.value) != directory.value) {
			c.refuse(directory.name, directory.value, "must be an absolute path without detours")
		}
	}
	if _, err := cpuset.Parse(c.ReservedSystemCPUs); err != nil {
		c.refuse("reservedSystemCPUs", c.ReservedSystemCPUs, "must be a list of CPUs, as 0,2-3: %v", err)
	}
}

func (c *check) durations() {
	of := func(d *metav1.Duration, otherwise time.Duration) time.Duration {
		return ptr.Deref(d, metav1.Duration{Duration: otherwise}).Duration
	}
	const longest = math.MaxInt64
	for _, d := range []struct {
		name             string
		value, low, high time.Duration
	}{
		{"imageMinimumGCAge", c.ImageMinimumGCAge.Duration, 0, longest},
		{"imageMaximumGCAge", c.ImageMaximumGCAge.Duration, 0, longest},
		{"shutdownGracePeriod", c.ShutdownGracePeriod.Duration, 0, longest},
		{"shutdownGracePeriodCriticalPods", c.ShutdownGracePeriodCriticalPods.Duration, 0, longest},
		{"cpuCFSQuotaPeriod", of(c.CPUCFSQuotaPeriod, time.Second), time.Millisecond, time.Second},
		{"containerLogMonitorInterval", of(c.ContainerLogMonitorInterval, time.Minute), 3 * time.Second, longest},
	} {
		switch {
		case d.value >= d.low && d.value <= d.high:
		case d.high == longest:
			c.refuse(d.name, d.value.String(), "must be %v or more", d.low)
		default:
			c.refuse(d.name, d.value.String(), "must be between %v and %v", d.low, d.high)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"shutdownGracePeriod", c.ShutdownGracePeriod.Duration}, {"shutdownGracePeriodCriticalPods", c.ShutdownGracePeriodCriticalPods.Duration}} {
		if d.value > 0 && d.value < time.Second {
			c.refuse(d.name, d.value.String(), "must be 0 or at least 1s")
		}
	}
	if restart := of(c.CrashLoopBackOff.MaxContainerRestartPeriod, time.Second); restart < time.Second || restart > 5*time.Minute {
		c.errs = append(c.errs, field.Invalid(c.at.Child("crashLoopBackOff", "maxContainerRestartPeriod"), restart.String(), "must be between 1s and 5m0s"))
	}
}
