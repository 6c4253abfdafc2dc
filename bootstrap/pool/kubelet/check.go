package kubelet

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
)

// Check refuses values with which a kubelet would not start, or which it would ignore: numbers out of range, unknown
// values and conflicting fields. The rules are those of the kubelet's own validation, which is not available as a
// library. For an omitted field, Check uses the default of the kubelet. It does not check values that depend on the
// version of the kubelet, such as the names of feature gates.
func (s Section) Check(at *field.Path) field.ErrorList { return s.check(at, true) }

// CheckValues is Check for a section that is merged with others: it does not check fields together.
func (s Section) CheckValues(at *field.Path) field.ErrorList { return s.check(at, false) }

func (s Section) check(at *field.Path, together bool) field.ErrorList {
	raw, err := s.json()
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	c := check{at: at}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &c.KubeletConfiguration); err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	c.checkNumbers()
	c.checkStrings()
	c.checkDurations()
	c.checkQuantities()
	c.checkAddresses()
	if together {
		c.checkCombinations()
	}
	c.checkWithLibraries()
	return c.errs
}

// check checks one KubeletConfiguration.
type check struct {
	kubeletv1beta1.KubeletConfiguration
	at   *field.Path
	errs field.ErrorList
}

// fieldPath returns the path of a field, such as memorySwap.swapBehavior.
func (c *check) fieldPath(name string) *field.Path {
	names := strings.Split(name, ".")
	return c.at.Child(names[0], names[1:]...)
}

func (c *check) refuse(name string, value any, why string, args ...any) {
	c.errs = append(c.errs, field.Invalid(c.fieldPath(name), value, fmt.Sprintf(why, args...)))
}

// noLimit is the upper limit of a field that has none.
const noLimit = math.MaxInt64

func checkRange[T int64 | time.Duration](c *check, name string, value, low, high T) {
	shown := any(value)
	if d, ok := shown.(time.Duration); ok {
		shown = d.String()
	}
	switch {
	case value >= low && value <= high:
	case high == noLimit:
		c.refuse(name, shown, "must be %v or more", low)
	default:
		c.refuse(name, shown, "must be between %v and %v", low, high)
	}
}

func (c *check) checkNumbers() {
	checkRange(c, "port", int64(c.Port), 0, 65535)
	checkRange(c, "maxPods", int64(c.MaxPods), 0, noLimit)
	checkRange(c, "podsPerCore", int64(c.PodsPerCore), 0, noLimit)
	checkRange(c, "maxOpenFiles", c.MaxOpenFiles, 0, noLimit)
	checkRange(c, "nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 0, noLimit)
	checkRange(c, "registryPullQPS", int64(ptr.Deref(c.RegistryPullQPS, 0)), 0, noLimit)
	checkRange(c, "registryBurst", int64(c.RegistryBurst), 0, noLimit)
	checkRange(c, "eventRecordQPS", int64(ptr.Deref(c.EventRecordQPS, 0)), 0, noLimit)
	checkRange(c, "eventBurst", int64(c.EventBurst), 0, noLimit)
	checkRange(c, "kubeAPIQPS", int64(ptr.Deref(c.KubeAPIQPS, 0)), 0, noLimit)
	checkRange(c, "kubeAPIBurst", int64(c.KubeAPIBurst), 0, noLimit)
	checkRange(c, "maxParallelImagePulls", int64(ptr.Deref(c.MaxParallelImagePulls, 1)), 1, noLimit)
	checkRange(c, "nodeStatusMaxImages", int64(ptr.Deref(c.NodeStatusMaxImages, 0)), -1, noLimit)
	checkRange(c, "imageGCHighThresholdPercent", int64(ptr.Deref(c.ImageGCHighThresholdPercent, imageGCHigh)), 0, 100)
	checkRange(c, "imageGCLowThresholdPercent", int64(ptr.Deref(c.ImageGCLowThresholdPercent, imageGCLow)), 0, 100)
	checkRange(c, "oomScoreAdj", int64(ptr.Deref(c.OOMScoreAdj, 0)), -1000, 1000)
	checkRange(c, "iptablesMasqueradeBit", int64(ptr.Deref(c.IPTablesMasqueradeBit, 0)), 0, 31)
	checkRange(c, "iptablesDropBit", int64(ptr.Deref(c.IPTablesDropBit, 0)), 0, 31)
	checkRange(c, "containerLogMaxFiles", int64(ptr.Deref(c.ContainerLogMaxFiles, 2)), 2, noLimit)
	checkRange(c, "containerLogMaxWorkers", int64(ptr.Deref(c.ContainerLogMaxWorkers, 1)), 1, noLimit)
	if factor := ptr.Deref(c.MemoryThrottlingFactor, 1); factor <= 0 || factor > 1 {
		c.refuse("memoryThrottlingFactor", factor, "must be more than 0 and at most 1")
	}
}

// checkEnum checks a field that accepts some values only.
func checkEnum[T ~string](c *check, name string, value T, supported ...T) {
	if value != "" && !slices.Contains(supported, value) {
		c.errs = append(c.errs, field.NotSupported(c.fieldPath(name), value, supported))
	}
}

func (c *check) checkStrings() {
	checkEnum(c, "cpuManagerPolicy", c.CPUManagerPolicy, "none", "static")
	checkEnum(c, "memoryManagerPolicy", c.MemoryManagerPolicy, "None", "Static")
	checkEnum(c, "topologyManagerPolicy", c.TopologyManagerPolicy, kubeletv1beta1.NoneTopologyManagerPolicy,
		kubeletv1beta1.BestEffortTopologyManagerPolicy, kubeletv1beta1.RestrictedTopologyManagerPolicy, kubeletv1beta1.SingleNumaNodeTopologyManagerPolicy)
	checkEnum(c, "topologyManagerScope", c.TopologyManagerScope, kubeletv1beta1.ContainerTopologyManagerScope, kubeletv1beta1.PodTopologyManagerScope)
	checkEnum(c, "hairpinMode", c.HairpinMode, kubeletv1beta1.HairpinVeth, kubeletv1beta1.PromiscuousBridge, kubeletv1beta1.HairpinNone)
	checkEnum(c, "configMapAndSecretChangeDetectionStrategy", c.ConfigMapAndSecretChangeDetectionStrategy,
		kubeletv1beta1.GetChangeDetectionStrategy, kubeletv1beta1.TTLCacheChangeDetectionStrategy, kubeletv1beta1.WatchChangeDetectionStrategy)
	checkEnum(c, "imagePullCredentialsVerificationPolicy", c.ImagePullCredentialsVerificationPolicy, kubeletv1beta1.NeverVerify,
		kubeletv1beta1.NeverVerifyPreloadedImages, kubeletv1beta1.NeverVerifyAllowlistedImages, kubeletv1beta1.AlwaysVerify)
	checkEnum(c, "memoryReservationPolicy", c.MemoryReservationPolicy,
		kubeletv1beta1.NoneMemoryReservationPolicy, kubeletv1beta1.TieredReservationMemoryReservationPolicy)
	checkEnum(c, "memorySwap.swapBehavior", c.MemorySwap.SwapBehavior, "NoSwap", "LimitedSwap")
	enforced := []string{"none", "pods", "system-reserved", "system-reserved-compressible", "kube-reserved", "kube-reserved-compressible"}
	for i, group := range c.EnforceNodeAllocatable {
		switch at := c.at.Child("enforceNodeAllocatable").Index(i); {
		case !slices.Contains(enforced, group):
			c.errs = append(c.errs, field.NotSupported(at, group, enforced))
		case slices.Contains(c.EnforceNodeAllocatable[:i], group):
			c.errs = append(c.errs, field.Duplicate(at, group))
		}
	}
	for _, directory := range []struct{ name, value string }{{"podLogsDir", c.PodLogsDir}, {"volumePluginDir", c.VolumePluginDir}} {
		if directory.value != "" && (!path.IsAbs(directory.value) || path.Clean(directory.value) != directory.value) {
			c.refuse(directory.name, directory.value, "must be an absolute path in its shortest form")
		}
	}
	if why := validateCPUs(c.ReservedSystemCPUs); why != "" {
		c.refuse("reservedSystemCPUs", c.ReservedSystemCPUs, "must be a list of CPUs, as 0,2-3: %s", why)
	}
}

func (c *check) checkDurations() {
	of := func(d *metav1.Duration, otherwise time.Duration) time.Duration {
		return ptr.Deref(d, metav1.Duration{Duration: otherwise}).Duration
	}
	all, critical := c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration
	checkRange(c, "imageMinimumGCAge", c.ImageMinimumGCAge.Duration, 0, noLimit)
	checkRange(c, "imageMaximumGCAge", c.ImageMaximumGCAge.Duration, 0, noLimit)
	checkRange(c, "shutdownGracePeriod", all, 0, noLimit)
	checkRange(c, "shutdownGracePeriodCriticalPods", critical, 0, noLimit)
	checkRange(c, "cpuCFSQuotaPeriod", of(c.CPUCFSQuotaPeriod, time.Second), time.Millisecond, time.Second)
	checkRange(c, "containerLogMonitorInterval", of(c.ContainerLogMonitorInterval, time.Minute), 3*time.Second, noLimit)
	checkRange(c, "crashLoopBackOff.maxContainerRestartPeriod", of(c.CrashLoopBackOff.MaxContainerRestartPeriod, time.Second), time.Second, 5*time.Minute)
	if all > 0 && all < time.Second {
		c.refuse("shutdownGracePeriod", all.String(), "must be 0 or at least 1s")
	}
	if critical > 0 && critical < time.Second {
		c.refuse("shutdownGracePeriodCriticalPods", critical.String(), "must be 0 or at least 1s")
	}
}
