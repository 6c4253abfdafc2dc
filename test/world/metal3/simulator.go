// Package metal3 stands in for Metal3 where there is no hardware: one manager that behaves, as far as a bootstrap
// provider and Cluster API can tell, like Cluster API's Metal3 provider (Metal3Cluster, Metal3Machine,
// Metal3Remediation) and the baremetal-operator (BareMetalHost, HardwareData). Hosts are real BareMetalHosts; what they
// do when they are powered on is up to Hardware.
package metal3

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// defaultRetryInterval is the real provider's, defaultBackoff the real operator's.
const defaultRetryInterval, defaultBackoff = 30 * time.Second, time.Minute

// Hardware is what BareMetalHosts stand for. A call may be repeated after an error. The context is the command's, not
// the host's: it ends when the simulator does. A call may take as long as a power command does, no longer.
type Hardware interface {
	// PowerOn boots a host that is off. After a deployment userData is what the host finds on its config drive, and its
	// disk holds a fresh image: whatever the host was before is gone. On a mere power cycle userData is nil and the
	// host boots from the disk it had.
	PowerOn(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error
	// PowerOff ends a host at once, as pulling the plug does. Its disk stays. A host that is off already is no error.
	PowerOff(ctx context.Context, host *bmov1alpha1.BareMetalHost) error
}

// Options says how the simulated hosts behave.
type Options struct {
	// Hardware is what the hosts do. Left empty, they do nothing but have a power state.
	Hardware Hardware
	// Provisioning is how long writing an image takes. Real hardware needs ten to thirty minutes.
	Provisioning time.Duration
	// Reporting is how long a host that was deployed runs before its BareMetalHost is provisioned. With Ironic that is
	// ten seconds and more, in which the host may ask for its configuration and join.
	Reporting time.Duration
	// Backoff is how long the operator waits after a first failure; after each further one twice as long. Zero is a
	// minute.
	Backoff time.Duration
	// Deprovisioning is how long cleaning takes.
	Deprovisioning time.Duration
	// RetryInterval is the wait between two looks for a free host, or for the Node of a provisioned host. Zero is what
	// the real provider has: 30 seconds.
	RetryInterval time.Duration
	// Log is the simulator's logger. The zero value is controller-runtime's global one.
	Log logr.Logger
}

// Simulator is the running simulator.
type Simulator struct {
	running      *manager.Running
	hosts        *hostReconciler
	remediations *remediationReconciler
}

// Start starts the simulator for every namespace and returns when it reconciles.
func Start(ctx context.Context, cfg *rest.Config, options Options) (*Simulator, error) {
	if options.Hardware == nil {
		options.Hardware = idle{}
	}
	if options.RetryInterval == 0 {
		options.RetryInterval = defaultRetryInterval
	}
	if options.Backoff == 0 {
		options.Backoff = defaultBackoff
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), clusterv1.AddToScheme(scheme),
		bmov1alpha1.AddToScheme(scheme), infrav1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:     scheme,
		Logger:     options.Log,
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return nil, err
	}
	c, live := mgr.GetClient(), mgr.GetAPIReader()
	hosts := &hostReconciler{Client: c, hosts: live, options: options, again: make(chan event.GenericEvent)}
	remediations := &remediationReconciler{Client: c, live: live, workloads: workloads{}}
	if err := errors.Join(
		(&clusterReconciler{Client: c}).setUp(mgr),
		(&machineReconciler{Client: c, live: live, retryInterval: options.RetryInterval, workloads: workloads{}}).setUp(mgr),
		hosts.setUp(mgr),
		remediations.setUp(mgr, cfg),
	); err != nil {
		return nil, fmt.Errorf("set up the Metal3 simulator: %w", err)
	}
	running, err := manager.Start(ctx, mgr)
	if err != nil {
		return nil, fmt.Errorf("start the Metal3 simulator: %w", err)
	}
	return &Simulator{running: running, hosts: hosts, remediations: remediations}, nil
}

// StopIronic ends all work on hosts until StartIronic, as one does before a Cluster is moved away: clusterctl takes the
// pause off the hosts that it deletes.
func (s *Simulator) StopIronic() {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.hosts.stopped = true
}

// StartIronic ends what StopIronic began.
func (s *Simulator) StartIronic(ctx context.Context) error {
	s.hosts.mu.Lock()
	s.hosts.stopped = false
	s.hosts.mu.Unlock()
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := s.hosts.List(ctx, hosts); err != nil {
		return err
	}
	for i := range hosts.Items {
		select {
		case s.hosts.again <- event.GenericEvent{Object: &hosts.Items[i]}:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// DeleteNodes has remediations delete Nodes, as on API servers before 1.28, or keep them.
func (s *Simulator) DeleteNodes(deletes bool) { s.remediations.deletesNodes.Store(deletes) }

// Stop ends the simulator and returns when it has ended. It leaves the hosts' power as it is.
func (s *Simulator) Stop() error { return s.running.Stop() }

// idle is hardware that does nothing.
type idle struct{}

func (idle) PowerOn(context.Context, *bmov1alpha1.BareMetalHost, []byte) error { return nil }
func (idle) PowerOff(context.Context, *bmov1alpha1.BareMetalHost) error        { return nil }
