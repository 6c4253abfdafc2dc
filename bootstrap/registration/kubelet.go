package registration

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// KubeletArgs returns the kubelet flags of a registration, as --name=value, in a fixed order. They contain what decides
// the pool of a Node, as far as a kubelet can set it: a Node that is deleted and registers again has it immediately. No
// value contains a space, a quote, a backslash or a dollar sign. Joined with spaces, the flags are therefore safe in a
// systemd EnvironmentFile.
func (r Registration) KubeletArgs() []string {
	args := []string{"--hostname-override=" + r.Name}
	if labels := r.kubeletLabels(); len(labels) > 0 {
		args = append(args, "--node-labels="+strings.Join(labels, ","))
	}
	if r.ProviderID != "" {
		args = append(args, "--provider-id="+r.ProviderID)
	}
	var taints []string
	for _, taint := range r.KubeletTaints() {
		taints = append(taints, taint.Key+"="+taint.Value+":"+string(taint.Effect))
	}
	if len(taints) > 0 {
		args = append(args, "--register-with-taints="+strings.Join(taints, ","))
	}
	return args
}

// kubeletLabels returns the labels for the flag --node-labels, as key=value, sorted by key.
func (r Registration) kubeletLabels() []string {
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if InKubeletFlags(key) {
			labels = append(labels, key+"="+r.Labels[key])
		}
	}
	return labels
}

// InKubeletFlags reports whether a label of a Node is also in the flags of its kubelet: a label that a kubelet can set,
// except those that it detects, and the UID of the BareMetalHost. A flag would override the detected value. The UID
// changes in a move to another management cluster, and every kubelet of the cluster would restart for its new flag. The
// host controller adds it to a Node that registers again.
func InKubeletFlags(labelKey string) bool {
	return KubeletCanSet(labelKey) && !IsReported(labelKey) && labelKey != poolv1.NodeMetal3UUIDLabel
}

// KubeletCanSet reports whether a kubelet accepts a label key in --node-labels. It accepts every key outside
// kubernetes.io and k8s.io, and a short list of keys inside them. With any other key, a kubelet exits immediately. The
// kubelet's own validation of its flags has this rule.
func KubeletCanSet(labelKey string) bool {
	domain, _, found := strings.Cut(labelKey, "/")
	if !found {
		return true
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return kubeletapis.IsKubeletLabel(labelKey)
		}
	}
	return true
}

// reportedKeys are the labels that every kubelet detects and sets.
var reportedKeys = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, kubeletapis.LabelOS, kubeletapis.LabelArch}

// IsReported reports whether every kubelet detects and sets a label. When a kubelet registers, it overwrites another
// value. A label that differs from the pre-registered value is therefore correct.
func IsReported(key string) bool { return slices.Contains(reportedKeys, key) }

// osLinux is the operating system of all hosts, because Ignition runs only on Linux.
const osLinux = "linux"

// archOf maps the CPU architectures that the inspection of a host reports to values of the label kubernetes.io/arch.
var archOf = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// GoArch returns the name that Go and Kubernetes have for a CPU architecture that the inspection of a host reports, or
// "" if it is not known.
func GoArch(cpu string) string { return archOf[cpu] }

// reportedLabels returns the reported labels whose values are known before the kubelet runs. The Node has them from the
// start, because Pods can select Nodes by them.
func reportedLabels(in Sources) []DerivedLabel {
	labels := []DerivedLabel{
		{Key: corev1.LabelHostname, Value: in.NodeName, Source: "Node metadata.name"},
		{Key: corev1.LabelOSStable, Value: osLinux, Source: PoolbootSource},
	}
	if arch, known := archOf[in.CPUArch]; known {
		labels = append(labels, DerivedLabel{Key: corev1.LabelArchStable, Value: arch, Source: in.CPUArchSource})
	}
	return labels
}
