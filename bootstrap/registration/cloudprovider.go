package registration

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// cloudProviderTaint is the taint that a kubelet with --cloud-provider=external adds when it creates its Node, without
// a flag for it. The cloud controller manager removes it when it has initialized the Node. A kubelet does not add it to
// a Node that exists.
var cloudProviderTaint = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}

// initialTaints returns the taints that only a new Node gets, and adds their sources. A taint that the pool or the
// PoolbootConfig declares is not among them.
func initialTaints(in Sources, declared []corev1.Taint, sources map[string][]string) []corev1.Taint {
	if in.CloudProviderSource == "" || slices.ContainsFunc(declared, isCloudProviderTaint) {
		return nil
	}
	sources[cloudProviderTaint.ToString()] = []string{in.CloudProviderSource}
	return []corev1.Taint{cloudProviderTaint}
}

func isCloudProviderTaint(taint corev1.Taint) bool { return taint.MatchTaint(&cloudProviderTaint) }

// KubeletTaints returns the taints for the kubelet's flag --register-with-taints. The taint of cloud providers is not
// among them, also if it is declared: a kubelet with --cloud-provider=external adds it, and the API server refuses a
// Node that has a taint twice.
func (r Registration) KubeletTaints() []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(r.Taints), isCloudProviderTaint)
}
