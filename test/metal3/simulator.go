// Package metal3 stands in for Metal3 where there is no hardware: one manager that behaves, as far as a bootstrap provider
// and Cluster API can tell, like Cluster API's Metal3 provider (Metal3Cluster, Metal3Machine) and the baremetal-operator
// (BareMetalHost, HardwareData). Hosts are real BareMetalHosts; what they do when they are powered on is up to Hardware.
package metal3

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/client-go/rest"
)

// Hardware is what BareMetalHosts stand for. Its methods may be called again after an error, and for a host that is on
// (or off) already; they must not block longer than a power command does.
type Hardware interface {
	// PowerOn boots a host. After a deployment userData is what the host finds on its config drive, and its disk holds a
	// fresh image: whatever the host was before is gone. On a mere power cycle userData is nil and the host boots from the
	// disk it had.
	PowerOn(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error
	// PowerOff ends a host at once, as pulling the plug does. Its disk stays.
	PowerOff(ctx context.Context, host *bmov1alpha1.BareMetalHost) error
}

// Options says how the simulated hosts behave.
type Options struct {
	// Hardware is what the hosts do. Left empty, they do nothing but have a power state.
	Hardware Hardware
	// Provisioning is how long writing an image takes. Real hardware needs ten to thirty minutes.
	Provisioning time.Duration
	// Deprovisioning is how long cleaning takes.
	Deprovisioning time.Duration
	// RetryInterval is the wait between two looks for a free host, or for the Node of a provisioned host. Zero is what the
	// real provider has: 30 seconds.
	RetryInterval time.Duration
	// Log is the simulator's logger. The zero value is silent.
	Log logr.Logger
}

// Simulator is the running simulator.
type Simulator struct{}

// Start starts the simulator for every namespace and returns when it reconciles.
func Start(ctx context.Context, cfg *rest.Config, options Options) (*Simulator, error) { return nil, nil }

// Stop ends the simulator and returns when it has ended. It leaves the hosts' power as it is.
func (s *Simulator) Stop() error { return nil }
