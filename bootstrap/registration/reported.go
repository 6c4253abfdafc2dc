package registration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

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
		{Key: corev1.LabelOSStable, Value: osLinux, Source: "Poolboot"},
	}
	if arch, known := archOf[in.CPUArch]; known {
		labels = append(labels, DerivedLabel{Key: corev1.LabelArchStable, Value: arch, Source: in.CPUArchSource})
	}
	return labels
}
