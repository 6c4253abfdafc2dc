package kubelet

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	"k8s.io/utils/ptr"
)

// Defaults of the kubelet for fields that are checked together with others.
const (
	imageGCHigh       = 85
	imageGCLow        = 80
	imageMinimumGCAge = 2 * time.Minute
)

var (
	// reservable are the resources that systemReserved and kubeReserved accept.
	reservable = []string{"cpu", "memory", "ephemeral-storage", "pid"}
	// signals are the eviction signals of the kubelet.
	signals = []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
		"containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available"}
)

// amounts checks quantities and maps of quantities.
func (c *check) amounts() {
	c.entries("systemReserved", c.SystemReserved, reservable, quantity)
	c.entries("kubeReserved", c.KubeReserved, reservable, quantity)
	c.entries("evictionHard", c.EvictionHard, signals, quantityOrPercentage)
	c.entries("evictionSoft", c.EvictionSoft, signals, quantityOrPercentage)
	c.entries("evictionMinimumReclaim", c.EvictionMinimumReclaim, signals, quantityOrPercentage)
	c.entries("evictionSoftGracePeriod", c.EvictionSoftGracePeriod, signals, func(value string) string {
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			return "must be a duration, as 1m30s"
		}
		return ""
	})
	if why := quantity(c.ContainerLogMaxSize); c.ContainerLogMaxSize != "" && why != "" {
		c.refuse("containerLogMaxSize", c.ContainerLogMaxSize, "%s", why)
	}
}

// entries checks a map with known keys and values of one format.
func (c *check) entries(name string, entries map[string]string, known []string, wrong func(string) string) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		at := c.at.Child(name)
		if !slices.Contains(known, key) {
			c.errs = append(c.errs, field.NotSupported(at, key, known))
		} else if why := wrong(entries[key]); why != "" {
			c.errs = append(c.errs, field.Invalid(at.Key(key), entries[key], why))
		}
	}
}

func quantity(value string) string {
	if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
		return "must be a quantity, as 500m or 1Gi"
	}
	return ""
}

func quantityOrPercentage(value string) string {
	if number, isPercentage := strings.CutSuffix(value, "%"); isPercentage {
		if percentage, err := strconv.ParseFloat(number, 32); err != nil || !(percentage >= 0 && percentage <= 100) {
			return "must be between 0% and 100%"
		}
		return ""
	}
	if quantity(value) != "" {
		return "must be a quantity or a percentage, as 500Mi or 10%"
	}
	return ""
}

func (c *check) addresses() {
	for i, address := range c.ClusterDNS {
		if _, err := netip.ParseAddr(address); err != nil {
			c.errs = append(c.errs, field.Invalid(c.at.Child("clusterDNS").Index(i), address, "must be an IP address"))
		}
	}
}

// together checks for fields that conflict, or need each other.
func (c *check) together() {
	if low, high := ptr.Deref(c.ImageGCLowThresholdPercent, imageGCLow), ptr.Deref(c.ImageGCHighThresholdPercent, imageGCHigh); low >= high {
		c.refuse("imageGCLowThresholdPercent", low, "must be less than imageGCHighThresholdPercent, which is %d", high)
	}
	least := c.ImageMinimumGCAge.Duration
	if least == 0 {
		least = imageMinimumGCAge
	}
	if most := c.ImageMaximumGCAge.Duration; most > 0 && most <= least {
		c.refuse("imageMaximumGCAge", most.String(), "must be more than imageMinimumGCAge, which is %v", least)
	}
	if pulls := ptr.Deref(c.MaxParallelImagePulls, 1); pulls > 1 && ptr.Deref(c.SerializeImagePulls, true) {
		c.refuse("maxParallelImagePulls", pulls, "more than 1 needs serializeImagePulls: false")
	}
	if critical, all := c.ShutdownGracePeriodCriticalPods.Duration, c.ShutdownGracePeriod.Duration; critical > all {
		c.refuse("shutdownGracePeriodCriticalPods", critical.String(), "must not be more than shutdownGracePeriod, which is %v", all)
	}
	if len(c.ShutdownGracePeriodByPodPriority) > 0 && (c.ShutdownGracePeriod.Duration > 0 || c.ShutdownGracePeriodCriticalPods.Duration > 0) {
		c.refuse("shutdownGracePeriodByPodPriority", field.OmitValueType{}, "does not go with shutdownGracePeriod: leave out one of the two")
	}
	if c.ReservedSystemCPUs != "" && c.SystemReservedCgroup+c.KubeReservedCgroup != "" {
		c.refuse("reservedSystemCPUs", c.ReservedSystemCPUs, "does not go with systemReservedCgroup or kubeReservedCgroup: leave out one of the two")
	}
	if c.SystemCgroups != "" && c.CgroupRoot == "" {
		c.refuse("systemCgroups", c.SystemCgroups, "needs cgroupRoot")
	}
	has := func(what string) bool { return slices.Contains(c.EnforceNodeAllocatable, what) }
	for _, reserved := range []struct{ what, needs, cgroup string }{
		{"system-reserved", "systemReservedCgroup", c.SystemReservedCgroup}, {"kube-reserved", "kubeReservedCgroup", c.KubeReservedCgroup}} {
		compressible := reserved.what + "-compressible"
		if has(reserved.what) && has(compressible) {
			c.refuse("enforceNodeAllocatable", c.EnforceNodeAllocatable, "%s and %s are one too many: remove one", reserved.what, compressible)
		}
		if (has(reserved.what) || has(compressible)) && reserved.cgroup == "" {
			c.refuse("enforceNodeAllocatable", c.EnforceNodeAllocatable, "%s needs %s", reserved.what, reserved.needs)
		}
	}
	if has("none") && len(c.EnforceNodeAllocatable) > 1 {
		c.refuse("enforceNodeAllocatable", c.EnforceNodeAllocatable, "none goes with nothing else")
	}
}

// libraries checks the fields for which Kubernetes has a validation library.
func (c *check) libraries() {
	if _, err := cliflag.TLSCipherSuites(c.TLSCipherSuites); err != nil {
		c.refuse("tlsCipherSuites", c.TLSCipherSuites, "%v; known are %s", err, strings.Join(cliflag.TLSCipherPossibleValues(), ", "))
	}
	if _, err := cliflag.TLSVersion(c.TLSMinVersion); err != nil {
		c.refuse("tlsMinVersion", c.TLSMinVersion, "must be one of %s", strings.Join(cliflag.TLSPossibleVersions(), ", "))
	}
	c.errs = append(c.errs, tracingapi.ValidateTracingConfiguration(c.Tracing, nil, c.at.Child("tracing"))...)
	c.logging()
}

// logging checks the field logging as if the format were text. For other formats, the library reads the flags of the
// program that runs it.
func (c *check) logging() {
	at := c.at.Child("logging")
	formats := []string{logsapi.DefaultLogFormat, logsapi.JSONLogFormat}
	logging := *c.Logging.DeepCopy()
	if logging.Format != "" && !slices.Contains(formats, logging.Format) {
		c.errs = append(c.errs, field.NotSupported(at.Child("format"), logging.Format, formats))
	}
	if logging.Format == logsapi.JSONLogFormat && len(logging.VModule) > 0 {
		c.errs = append(c.errs, field.Forbidden(at.Child("vmodule"), "only goes with the format text"))
	}
	logging.Format = logsapi.DefaultLogFormat
	logsapi.SetRecommendedLoggingConfiguration(&logging)
	gates := featuregate.NewFeatureGate()
	if err := logsapi.AddFeatureGates(gates); err != nil {
		c.errs = append(c.errs, field.InternalError(at, err))
		return
	}
	known := gates.GetAll()
	asked := maps.Clone(c.FeatureGates)
	maps.DeleteFunc(asked, func(name string, _ bool) bool { _, ok := known[featuregate.Feature(name)]; return !ok })
	if err := gates.SetFromMap(asked); err != nil {
		c.errs = append(c.errs, field.Invalid(c.at.Child("featureGates"), asked, err.Error()))
		return
	}
	c.errs = append(c.errs, logsapi.Validate(&logging, gates, at)...)
}
