// Package controllertest has what the tests of several controllers share: a scheme, clients whose writes can fail, and
// the events of a recorder. What is specific to a test, such as its objects, is in the test.
package controllertest

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Scheme returns a scheme with all kinds that the controllers read and write.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		bmov1alpha1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Events returns the events that a recorder has received since the last call.
func Events(recorder *events.FakeRecorder) (received []string) {
	for {
		select {
		case event := <-recorder.Events:
			received = append(received, event)
		default:
			return received
		}
	}
}
