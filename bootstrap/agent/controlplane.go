package agent

import (
	"cmp"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// apiServerManifest exists on every host on which kubeadm has installed a control plane.
const apiServerManifest = "etc/kubernetes/manifests/kube-apiserver.yaml"

// isControlPlane reports whether the host runs an API server.
func (a *Agent) isControlPlane() bool {
	_, err := a.Root.Lstat(apiServerManifest)
	return err == nil
}

// controlPlaneRefusal returns what an update would change that kubeadm or a static Pod has on a host of the control
// plane, "" if there is nothing. A pool for the control plane refuses the usual paths of kubeadm. A host can be in
// another pool by mistake, and can have others. What the configuration does not have any more returns to what it was.
func (a *Agent) controlPlaneRefusal(u *hostUpdate) string {
	if !a.isControlPlane() {
		return ""
	}
	volumes := a.Executors.StaticPods.Volumes()
	for _, operation := range u.plan.Operations {
		if operation.Kind != update.ChangePath {
			continue
		}
		if ignition.IsOfControlPlane(operation.Name) {
			return "it runs a control plane, and kubeadm and etcd have " + operation.Name + ": remove it from the configuration, or put the Node in a pool for the control plane"
		}
		if to := operation.After.Path; to != nil {
			volume := ignition.VolumeAt(operation.Name, volumes)
			if to.Type == hosttree.HardLink {
				volume = cmp.Or(volume, ignition.VolumeAt(to.Target, volumes))
			}
			if volume != "" {
				return "it runs a control plane, of which a static Pod mounts " + volume + ": remove " + operation.Name +
					" from the configuration, and use kubeadmConfigSpec of the KubeadmControlPlane"
			}
		}
	}
	return ""
}

// asks reports whether an update waits until the manager says that the host can be away: it drains the Node, or the
// host runs a control plane, of which another host can be away by now. A repair depends on no manager.
func (a *Agent) asks(u *hostUpdate) bool {
	return u.plan.Drains() || !u.isRepair() && a.isControlPlane()
}
