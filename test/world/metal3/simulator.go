// Package metal3 simulates Metal3 without hardware. One manager behaves like Cluster API's Metal3 provider
// (Metal3Cluster, Metal3Machine, Metal3Data, Metal3Remediation), the Bare Metal Operator (BareMetalHost, HardwareData)
// and the ip-address-manager (IPPool), as far as a bootstrap provider and Cluster API can observe. Hosts are real
// BareMetalHosts. Hardware implements their power operations.
package metal3

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/manager"
	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// defaultRetryInterval is the interval of the real provider, defaultBackoff the backoff of the real operator.
const defaultRetryInterval, defaultBackoff = 30 * time.Second, time.Minute

// Hardware is the hardware of BareMetalHosts. Calls are repeated after errors. The context is canceled when the
// simulator stops, it is not for the host. A call must return as fast as a power command.
type Hardware interface {
	// PowerOn boots a host that is off. After a deployment, userData is the content of its config drive, and its disk
	// has a new image. After a power cycle, userData is nil and the host boots from its current disk.
	PowerOn(ctx context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) error
	// PowerOff powers off a host immediately and keeps its disk. It is idempotent.
	PowerOff(ctx context.Context, host *bmov1alpha1.BareMetalHost) error
}

// Options are the options of the simulator.
type Options struct {
	// Hardware is the hosts' hardware. By default they only have a power state.
	Hardware Hardware
	// Provisioning is the duration of writing an image. Real hardware needs ten to thirty minutes.
	Provisioning time.Duration
	// Reporting is the time between the boot of a deployed host and the state provisioned. With Ironic it is ten
	// seconds or more, in which the host can join.
	Reporting time.Duration
	// Backoff is the operator's backoff after the first failure. It doubles with each failure. Default: one minute.
	Backoff time.Duration
	// Deprovisioning is the duration of cleaning.
	Deprovisioning time.Duration
	// Servicing is the duration of applying firmware to a host.
	Servicing time.Duration
	// RetryInterval is the interval of retries: for an available host, for the Node of a provisioned host, for a
	// missing BMC Secret, and of each host while Ironic is stopped, because nothing reports that Ironic runs again.
	// Default: 30 seconds, as in the real provider and operator (10 seconds for the BMC Secret).
	RetryInterval time.Duration
	// Log is the simulator's logger. Default: controller-runtime's global logger.
	Log logr.Logger
}

// Simulator is a running simulator.
type Simulator struct {
	running      *manager.Running
	hosts        *hostReconciler
	remediations *remediationReconciler
}

// Start starts the simulator for all namespaces and waits until it reconciles.
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
		bmov1alpha1.AddToScheme(scheme), infrav1.AddToScheme(scheme), ipamv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                  scheme,
		Logger:                  options.Log,
		Controller:              config.Controller{SkipNameValidation: ptr.To(true), CacheSyncTimeout: manager.CacheSyncTimeout},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		GracefulShutdownTimeout: ptr.To(manager.GracefulShutdownTimeout),
		Client:                  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}: {Label: labels.SelectorFromSet(labels.Set{environmentLabel: environment})},
		}},
	})
	if err != nil {
		return nil, err
	}
	c, live := mgr.GetClient(), mgr.GetAPIReader()
	hosts := &hostReconciler{Client: c, live: live, secrets: mgr.GetCache(), options: options}
	remediations := &remediationReconciler{Client: c, live: live, workloads: workloads{}}
	if err := errors.Join(
		(&clusterReconciler{Client: c}).setUp(mgr),
		(&machineReconciler{Client: c, live: live, retryInterval: options.RetryInterval, workloads: workloads{}}).setUp(mgr),
		(&dataReconciler{Client: c, live: live, retryInterval: options.RetryInterval}).setUp(mgr),
		(&poolReconciler{Client: c, live: live, retryInterval: options.RetryInterval}).setUp(mgr),
		hosts.setUp(mgr),
		(&settingsReconciler{Client: c, hosts: hosts, interval: options.RetryInterval}).setUp(mgr),
		(&componentsReconciler{Client: c}).setUp(mgr),
		(&labelSyncReconciler{Client: c, workloads: workloads{}}).setUp(mgr),
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

// StopIronic stops all operations on hosts until StartIronic. It is required before a Cluster is moved: clusterctl
// unpauses the hosts that it deletes.
func (s *Simulator) StopIronic() {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.hosts.stopped = true
}

// StartIronic resumes operations on hosts, each at its next retry.
func (s *Simulator) StartIronic() {
	s.hosts.mu.Lock()
	defer s.hosts.mu.Unlock()
	s.hosts.stopped = false
}

// DeleteNodes sets whether remediations delete Nodes, as on API servers before 1.28.
func (s *Simulator) DeleteNodes(deletes bool) { s.remediations.deletesNodes.Store(deletes) }

// Stop stops the simulator and waits for it. It does not change the hosts' power state.
func (s *Simulator) Stop() error { return s.running.Stop() }

// idle is hardware that does nothing.
type idle struct{}

func (idle) PowerOn(context.Context, *bmov1alpha1.BareMetalHost, []byte) error { return nil }
func (idle) PowerOff(context.Context, *bmov1alpha1.BareMetalHost) error        { return nil }
