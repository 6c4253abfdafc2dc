package kubelet

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Reasons of more than one field.
const (
	perHost          = "it is specific to one host, and all hosts of a pool get the same value: remove it"
	protectsKubelet  = "a pool cannot change who has access to the kubelet, and the API server needs access: remove it"
	noStaticPods     = "static Pods are not supported: use a DaemonSet"
	checkedByKubeadm = "kubeadm join checks the health of the kubelet there: remove it"
)

// reservedFields are the fields that a pool cannot set, with the reason and what to do instead. They identify the Node
// of a kubelet, are necessary for it to join and stay, or protect it from other clients. OpenShift refuses fewer
// fields, because its own templates configure all its kubelets. A pool of Poolboot can set the fields that these
// templates need: clusterDNS, clusterDomain, featureGates, failSwapOn and memorySwap.
var reservedFields = map[string]string{
	"providerID":         "it identifies the host of a Node, and Poolboot sets it when the host is known: remove it",
	"registerWithTaints": "set spec.node.taints",
	"registerNode":       "a kubelet that does not register has no Node, and a pool contains Nodes: remove it",
	"podCIDR":            perHost,
	"address":            perHost,

	"authentication":     protectsKubelet,
	"authorization":      protectsKubelet,
	"enableServer":       protectsKubelet,
	"readOnlyPort":       "it serves all clients without authentication: remove it",
	"rotateCertificates": "without rotation, the certificate of the kubelet expires and its Node becomes NotReady: remove it",

	"staticPodURL":       noStaticPods,
	"staticPodURLHeader": noStaticPods,
	"runOnce":            "the kubelet would exit after it ran its first Pods: remove it",

	"healthzPort":        checkedByKubeadm,
	"healthzBindAddress": checkedByKubeadm,
	"cgroupDriver":       "the kubelet gets it from the container runtime of the host: remove it",
}

// checkReserved returns an error for each field of a section that a pool cannot set.
func checkReserved(fields map[string]any, at *field.Path) (errs field.ErrorList) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if why, ok := reservedFields[name]; ok {
			errs = append(errs, field.Forbidden(at.Child(name), why))
		}
	}
	if path, ok := fields["staticPodPath"]; ok && path != "" {
		errs = append(errs, field.Forbidden(at.Child("staticPodPath"), noStaticPods+`; "" disables static Pods`))
	}
	return errs
}
