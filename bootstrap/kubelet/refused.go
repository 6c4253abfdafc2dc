package kubelet

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Reasons of more than one field.
const (
	oneHost       = "it is one host's own, and all hosts of a pool have the same: leave it out"
	whoMayReach   = "who may reach the kubelet is not a pool's to say, and the API server must: leave it out"
	otherPodsOnly = "pods come from the API server: run them as a DaemonSet"
	joinWaits     = "kubeadm join asks the kubelet there whether it is well: leave it out"
)

// notAPools are the fields that a pool cannot set, with the reason and what to do instead. They identify the Node of a
// kubelet, are necessary for it to join and stay, or protect it from other clients. OpenShift refuses fewer fields,
// because its own templates configure all its kubelets. A pool of Poolboot can set the fields that these templates
// need: clusterDNS, clusterDomain, featureGates, failSwapOn and memorySwap.
var notAPools = map[string]string{
	"providerID":         "it says which host a Node is: it is set when the host is known",
	"registerWithTaints": "set spec.nodeTaints",
	"registerNode":       "a kubelet that does not register has no Node to be in a pool: leave it out",
	"podCIDR":            oneHost,
	"address":            oneHost,

	"authentication":     whoMayReach,
	"authorization":      whoMayReach,
	"enableServer":       whoMayReach,
	"readOnlyPort":       "it answers everybody, without authentication: leave it out",
	"rotateCertificates": "without it the kubelet's certificate ends and its Node with it: leave it out",

	"staticPodURL":       otherPodsOnly,
	"staticPodURLHeader": otherPodsOnly,
	"runOnce":            "the kubelet would stop after its first pods: leave it out",

	"healthzPort":        joinWaits,
	"healthzBindAddress": joinWaits,
	"cgroupDriver":       "it must be that of the host's container runtime, which tells the kubelet: leave it out",
}

// refused returns an error for each field of a section that a pool cannot set.
func refused(fields map[string]any, at *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if why, ok := notAPools[name]; ok {
			errs = append(errs, field.Forbidden(at.Child(name), why))
		}
	}
	if path, has := fields["staticPodPath"]; has && path != "" {
		errs = append(errs, field.Forbidden(at.Child("staticPodPath"), otherPodsOnly+`; "" turns static pods off`))
	}
	return errs
}
