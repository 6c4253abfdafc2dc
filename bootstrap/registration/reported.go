package registration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// reported are the labels that every kubelet sets to what it finds out by itself.
var reported = []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable, kubeletapis.LabelOS, kubeletapis.LabelArch}

// IsReported says whether every kubelet sets a label to what it finds out by itself. When it registers it overwrites
// another value, so a label that differs from what was pre-registered is right.
func IsReported(key string) bool { return slices.Contains(reported, key) }

// linux is what Ignition, and so every host here, runs on.
const linux = "linux"

// archOf is the value of kubernetes.io/arch by the name of a CPU architecture that the inspection of a host finds.
var archOf = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// reportedLabels are those of the reported labels whose values are certain before the kubelet runs. The Node has them
// from the start, so that Pods that select by them are never scheduled past it or to it by mistake.
func reportedLabels(in Input) []DerivedLabel {
	labels := []DerivedLabel{
		{Key: corev1.LabelHostname, Value: in.NodeName, Source: "Node metadata.name"},
		{Key: corev1.LabelOSStable, Value: linux, Source: "Poolboot"},
	}
	if arch, known := archOf[in.CPUArch]; known {
		labels = append(labels, DerivedLabel{Key: corev1.LabelArchStable, Value: arch, Source: in.CPUArchSource})
	}
	return labels
}
