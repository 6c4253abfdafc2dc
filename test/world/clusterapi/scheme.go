package clusterapi

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1" //nolint:staticcheck // Cluster API's core still reads it.
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// Scheme returns a scheme with all kinds of the tests: Kubernetes, Cluster API (v1beta2, v1beta1, which its core reads,
// and its kubeadm providers), Metal3 and Poolboot.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme,
		apiextensionsv1.AddToScheme,
		clusterv1.AddToScheme,
		kubeadmv1.AddToScheme,
		controlplanev1.AddToScheme,
		clusterv1beta1.AddToScheme,
		bmov1alpha1.AddToScheme,
		infrav1.AddToScheme,
		ipamv1.AddToScheme,
		bootstrapv1.AddToScheme,
		poolv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
