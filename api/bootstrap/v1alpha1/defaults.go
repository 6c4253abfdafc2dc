package v1alpha1

import "cmp"

// The CRDs have no defaults: an object is stored as it was written, and a reader asks here for what an absent field
// means.
const (
	// DefaultKubeletPath is the path of the kubelet on a host unless join.kubelet.kubeletPath names another.
	DefaultKubeletPath = "/usr/bin/kubelet"
	// DefaultKubeadmPath is the path of kubeadm on a host unless join.kubeadm.kubeadmPath names another.
	DefaultKubeadmPath = "/usr/bin/kubeadm"
)

// IsInline says whether the bootstrap Secret holds the whole configuration. By default it does not: configSource is of
// type Server.
func (s *BootSpec) IsInline() bool { return s.ConfigSource.Type == ConfigSourceInline }

// NodeNamedAfter returns whose name the Node gets: by default the Machine's.
func (s *BootSpec) NodeNamedAfter() NodeNameSource {
	return cmp.Or(s.NodeNameSource, NodeNameFromMachine)
}

// Path returns the path of the kubelet on the host.
func (j *KubeletJoin) Path() string { return cmp.Or(j.KubeletPath, DefaultKubeletPath) }

// Path returns the path of kubeadm on the host.
func (j *KubeadmJoin) Path() string { return cmp.Or(j.KubeadmPath, DefaultKubeadmPath) }
