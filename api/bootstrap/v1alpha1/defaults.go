package v1alpha1

import "cmp"

// The CRDs have no defaults: an object is stored as it was written. The functions below return what an absent field
// means.
const (
	// DefaultKubeletPath is the path of the kubelet on a host unless join.kubelet.kubeletPath names another.
	DefaultKubeletPath = "/usr/bin/kubelet"
	// DefaultKubeadmPath is the path of kubeadm on a host unless join.kubeadm.kubeadmPath names another.
	DefaultKubeadmPath = "/usr/bin/kubeadm"
)

// IsInline reports whether the data Secret holds the whole configuration. The default is type Server, whose Secret
// holds only a pointer.
func (s *BootSpec) IsInline() bool { return s.ConfigSource.Type == ConfigSourceTypeInline }

// NodeNamedAfter returns the kind of object that the Node is named after, by default the Machine.
func (s *BootSpec) NodeNamedAfter() NodeNameSource {
	return cmp.Or(s.NodeNameSource, NodeNameSourceMachine)
}

// Path returns the path of the kubelet on the host.
func (j *KubeletJoin) Path() string { return cmp.Or(j.KubeletPath, DefaultKubeletPath) }

// Path returns the path of kubeadm on the host.
func (j *KubeadmJoin) Path() string { return cmp.Or(j.KubeadmPath, DefaultKubeadmPath) }
