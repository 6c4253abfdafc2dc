package kubelet

import (
	"cmp"
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

// checkQuantities checks quantities and maps of quantities.
func (c *check) checkQuantities() {
	c.checkEntries("systemReserved", c.SystemReserved, reservable, validateQuantity)
	c.checkEntries("kubeReserved", c.KubeReserved, reservable, validateQuantity)
	c.checkEntries("evictionHard", c.EvictionHard, signals, validateQuantityOrPercentage)
	c.checkEntries("evictionSoft", c.EvictionSoft, signals, validateQuantityOrPercentage)
	c.checkEntries("evictionMinimumReclaim", c.EvictionMinimumReclaim, signals, validateQuantityOrPercentage)
	c.checkEntries("evictionSoftGracePeriod", c.EvictionSoftGracePeriod, signals, func(value string) string {
		if d, err := time.ParseDuration(value); err != nil || d < 0 {
			return "must be a duration, as 1m30s"
		}
		return ""
	})
	c.checkReservedMemory()
	if why := validateQuantity(c.ContainerLogMaxSize); c.ContainerLogMaxSize != "" && why != "" {
		c.refuse("containerLogMaxSize", c.ContainerLogMaxSize, "%s", why)
	}
}

// checkEntries checks a map with supported keys and values of one format.
func (c *check) checkEntries(name string, entries map[string]string, supported []string, validate func(string) string) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		at := c.at.Child(name)
		if !slices.Contains(supported, key) {
			c.errs = append(c.errs, field.NotSupported(at, key, supported))
		} else if why := validate(entries[key]); why != "" {
			c.errs = append(c.errs, field.Invalid(at.Key(key), entries[key], why))
		}
	}
}

func validateQuantity(value string) string {
	if q, err := resource.ParseQuantity(value); err != nil || q.Sign() < 0 {
		return "must be a quantity, as 500m or 1Gi"
	}
	return ""
}

func validateQuantityOrPercentage(value string) string {
	if number, isPercentage := strings.CutSuffix(value, "%"); isPercentage {
		if percentage, err := strconv.ParseFloat(number, 32); err != nil || !(percentage >= 0 && percentage <= 100) {
			return "must be between 0% and 100%"
		}
		return ""
	}
	if validateQuantity(value) != "" {
		return "must be a quantity or a percentage, as 500Mi or 10%"
	}
	return ""
}

func (c *check) checkAddresses() {
	for i, address := range c.ClusterDNS {
		if _, err := netip.ParseAddr(address); err != nil {
			c.errs = append(c.errs, field.Invalid(c.at.Child("clusterDNS").Index(i), address, "must be an IP address"))
		}
	}
}

// checkCombinations checks for fields that conflict, or need each other.
func (c *check) checkCombinations() {
	if low, high := ptr.Deref(c.ImageGCLowThresholdPercent, imageGCLow), ptr.Deref(c.ImageGCHighThresholdPercent, imageGCHigh); low >= high {
		c.refuse("imageGCLowThresholdPercent", low, "must be less than imageGCHighThresholdPercent, which is %d", high)
	}
	minAge := cmp.Or(c.ImageMinimumGCAge.Duration, imageMinimumGCAge)
	if maxAge := c.ImageMaximumGCAge.Duration; maxAge > 0 && maxAge <= minAge {
		c.refuse("imageMaximumGCAge", maxAge.String(), "must be more than imageMinimumGCAge, which is %v", minAge)
	}
	if pulls := ptr.Deref(c.MaxParallelImagePulls, 1); pulls > 1 && ptr.Deref(c.SerializeImagePulls, true) {
		c.refuse("maxParallelImagePulls", pulls, "more than 1 requires serializeImagePulls: false")
	}
	if critical, all := c.ShutdownGracePeriodCriticalPods.Duration, c.ShutdownGracePeriod.Duration; critical > all {
		c.refuse("shutdownGracePeriodCriticalPods", critical.String(), "must not be more than shutdownGracePeriod, which is %v", all)
	}
	if len(c.ShutdownGracePeriodByPodPriority) > 0 && (c.ShutdownGracePeriod.Duration > 0 || c.ShutdownGracePeriodCriticalPods.Duration > 0) {
		c.refuse("shutdownGracePeriodByPodPriority", field.OmitValueType{}, "cannot be combined with shutdownGracePeriod: remove one of them")
	}
	if c.ReservedSystemCPUs != "" && c.SystemReservedCgroup+c.KubeReservedCgroup != "" {
		c.refuse("reservedSystemCPUs", c.ReservedSystemCPUs, "cannot be combined with systemReservedCgroup or kubeReservedCgroup: remove one of them")
	}
	if c.SystemCgroups != "" && c.CgroupRoot == "" {
		c.refuse("systemCgroups", c.SystemCgroups, "requires cgroupRoot")
	}
	isEnforced := func(group string) bool { return slices.Contains(c.EnforceNodeAllocatable, group) }
	for _, reserved := range []struct{ group, requires, cgroup string }{
		{"system-reserved", "systemReservedCgroup", c.SystemReservedCgroup}, {"kube-reserved", "kubeReservedCgroup", c.KubeReservedCgroup}} {
		compressible := reserved.group + "-compressible"
		if isEnforced(reserved.group) && isEnforced(compressible) {
			c.refuse("enforceNodeAllocatable", c.EnforceNodeAllocatable, "%s and %s are mutually exclusive: remove one", reserved.group, compressible)
		}
		if (isEnforced(reserved.group) || isEnforced(compressible)) && reserved.cgroup == "" {
			c.refuse("enforceNodeAllocatable", c.EnforceNodeAllocatable, "%s requires %s", reserved.group, reserved.requires)
		}
	}
	if isEnforced("none") && len(c.EnforceNodeAllocatable) > 1 {
		c.refuse("enforceNodeAllocatable", c.EnforceNodeAllocatable, "none cannot be combined with other values")
	}
}

// checkWithLibraries checks the fields for which Kubernetes has a validation library.
func (c *check) checkWithLibraries() {
	if _, err := cliflag.TLSCipherSuites(c.TLSCipherSuites); err != nil {
		c.refuse("tlsCipherSuites", c.TLSCipherSuites, "%v; supported values: %s", err, strings.Join(cliflag.TLSCipherPossibleValues(), ", "))
	}
	if _, err := cliflag.TLSVersion(c.TLSMinVersion); err != nil {
		c.refuse("tlsMinVersion", c.TLSMinVersion, "must be one of %s", strings.Join(cliflag.TLSPossibleVersions(), ", "))
	}
	c.errs = append(c.errs, tracingapi.ValidateTracingConfiguration(c.Tracing, nil, c.at.Child("tracing"))...)
	c.checkLogging()
}

// checkLogging checks the field logging as if the format were text. For other formats, the library reads the flags of
// the program that runs it.
func (c *check) checkLogging() {
	at := c.at.Child("logging")
	formats := []string{logsapi.DefaultLogFormat, logsapi.JSONLogFormat}
	logging := *c.Logging.DeepCopy()
	if logging.Format != "" && !slices.Contains(formats, logging.Format) {
		c.errs = append(c.errs, field.NotSupported(at.Child("format"), logging.Format, formats))
	}
	if logging.Format == logsapi.JSONLogFormat && len(logging.VModule) > 0 {
		c.errs = append(c.errs, field.Forbidden(at.Child("vmodule"), "is supported only with the format text"))
	}
	logging.Format = logsapi.DefaultLogFormat
	logsapi.SetRecommendedLoggingConfiguration(&logging)
	gates := featuregate.NewFeatureGate()
	if err := logsapi.AddFeatureGates(gates); err != nil {
		c.errs = append(c.errs, field.InternalError(at, err))
		return
	}
	loggingGates := maps.Clone(c.FeatureGates)
	maps.DeleteFunc(loggingGates, func(name string, _ bool) bool { _, ok := gates.GetAll()[featuregate.Feature(name)]; return !ok })
	if err := gates.SetFromMap(loggingGates); err != nil {
		c.errs = append(c.errs, field.Invalid(c.at.Child("featureGates"), loggingGates, err.Error()))
		return
	}
	c.errs = append(c.errs, logsapi.Validate(&logging, gates, at)...)
}
