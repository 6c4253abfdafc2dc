package registration

import (
	"maps"
	"slices"
	"strings"

	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// KubeletArgs returns the kubelet's flags for this registration, as --name=value, in a fixed order: what a kubelet may
// set itself, so that it comes back when the Node is deleted and registers anew. No value holds a blank, a quote, a
// backslash or a dollar sign: joined by blanks they are safe in a systemd EnvironmentFile.
func (r Registration) KubeletArgs() []string {
	args := []string{"--hostname-override=" + r.Name}
	if labels := r.kubeletLabels(); len(labels) > 0 {
		args = append(args, "--node-labels="+strings.Join(labels, ","))
	}
	if r.ProviderID != "" {
		args = append(args, "--provider-id="+r.ProviderID)
	}
	taints := make([]string, 0, len(r.Taints))
	for _, taint := range r.Taints {
		taints = append(taints, taint.Key+"="+taint.Value+":"+string(taint.Effect))
	}
	if len(taints) > 0 {
		args = append(args, "--register-with-taints="+strings.Join(taints, ","))
	}
	return args
}

// kubeletLabels returns the labels for the kubelet's flags, as key=value, sorted.
func (r Registration) kubeletLabels() []string {
	var labels []string
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		if InKubeletFlags(key) {
			labels = append(labels, key+"="+r.Labels[key])
		}
	}
	return labels
}

// InKubeletFlags says whether a Node's label is in its kubelet's flags too: those that a kubelet may set, but not those
// that it sets to what it finds out by itself, which a flag would replace.
func InKubeletFlags(labelKey string) bool { return KubeletMaySet(labelKey) && !IsReported(labelKey) }

// KubeletMaySet tells whether a kubelet accepts a label key in --node-labels. Outside kubernetes.io and k8s.io it
// accepts all, inside a short list. A kubelet exits at once on any other; the rule is that of its own validation of
// flags.
func KubeletMaySet(labelKey string) bool {
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
