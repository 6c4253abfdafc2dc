// Package site sets up a complete site on one machine: a management cluster with the real Cluster API core and
// Poolboot's two programs, a workload cluster, and hosts in Linux namespaces that boot with the real Ignition, systemd
// and kubelet. Simulated are the hardware and Cluster API's Metal3 provider. The demo and the end-to-end tests use it.
package site

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/faults"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/management"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

const (
	// Namespace is the namespace of the site's Cluster and its objects.
	Namespace = "default"
	// ClusterName is the name of the site's Cluster.
	ClusterName = "edge"
)

// Flags are additional flags of Poolboot's programs, and of the workload cluster's kube-controller-manager.
type Flags struct {
	Manager, ConfigServer, ControllerManager []string
}

// Options are the options of a site.
type Options struct {
	// Hardware is the hardware of BareMetalHosts. Default: hosts in Linux namespaces, for which a site needs root.
	Hardware metal3.Hardware
	// Address is the IP address of the servers that hosts of Hardware connect to. Default: 127.0.0.1.
	Address string
	// Installed is an optional management cluster in which Cluster API and Poolboot run as Pods, with the kinds of
	// Metal3. The site starts none of them, and stops only what it starts.
	Installed *management.Cluster
	// Neighbor is an optional site whose workload cluster and hosts this site also uses, with its own management
	// cluster.
	Neighbor *Site
	// WithoutMetal3 omits Metal3 and its CRDs until StartMetal3.
	WithoutMetal3 bool
	// Predecessor is an optional site that this site takes over from. With its own management cluster, this site uses
	// the predecessor's workload cluster, hosts, and config server address and certificate authority. The caller must
	// start the config server after the predecessor's has stopped.
	Predecessor *Site
	// Flags are additional flags of the site's programs.
	Flags Flags
	// GarbageCollector runs Kubernetes' garbage collector in the management cluster.
	GarbageCollector bool
	// Concurrency is the concurrency of Cluster API's core, see clusterapi.Options.
	Concurrency int
	// RetryInterval is the retry interval of the Metal3 provider, see metal3.Options. Default: one second.
	RetryInterval time.Duration
	// Replicas is the number of config servers. If there are several, they are behind a Service. Default: one.
	Replicas int
	// Ways makes the programs connect to both API servers through proxies that inject faults, see Site.Ways.
	Ways bool
	// Agents makes the hosts install the agent at their first boot.
	Agents bool
	// KubeadmControlPlane runs Cluster API's kubeadm providers, and no workload cluster. CreateKubeadmCluster creates
	// it on hosts.
	KubeadmControlPlane bool
	// Progress gets a line for each started part. Optional.
	Progress io.Writer
	// Consoles gets the console output of the hosts. Optional.
	Consoles io.Writer
}

// Site is a running site.
type Site struct {
	// Management and Workload are the control planes of the management cluster and of the workload cluster.
	Management, Workload *controlplane.ControlPlane
	// ManagementClient and WorkloadClient are their clients, with the rights of cluster-admin.
	ManagementClient, WorkloadClient client.WithWatch
	// Manager and ConfigServer are Poolboot's programs.
	Manager, ConfigServer *Program
	// Replicas are all config servers, ConfigServer first.
	Replicas []*Program
	// Ways are the proxies of Options.Ways.
	Ways Ways
	// WorkloadKubeconfig is the kubeconfig of Clusters. nil is the administrator's.
	WorkloadKubeconfig []byte
	// Hardware has the hosts in Linux namespaces. It is nil with Options.Hardware.
	Hardware *Hardware

	service   *faults.Service
	dir       string
	binDir    string
	options   Options
	guest     bool // the workload cluster and the hosts belong to another site
	endpoint  *endpoint
	core      *clusterapi.Core
	kubeadm   []*clusterapi.KubeadmProvider
	simulator *metal3.Simulator
	cancel    context.CancelFunc
}

// Start sets up a site. On error it stops everything that it has started.
func Start(ctx context.Context, options Options) (_ *Site, err error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &Site{options: options, cancel: cancel}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.binDir, err = process.BinDir(); err != nil {
		return nil, err
	}
	// A short path, because the path of a socket in it has at most 108 bytes.
	if s.dir, err = os.MkdirTemp("", "site-"); err != nil {
		return nil, err
	}
	progress := options.Progress
	if progress == nil {
		progress = io.Discard
	}
	start := time.Now()
	up := func(what string) { fmt.Fprintf(progress, "  %5.1f s  %s\n", time.Since(start).Seconds(), what) }

	if other := cmp.Or(options.Predecessor, options.Neighbor); other != nil {
		s.guest, s.Workload, s.Hardware = true, other.Workload, other.Hardware
	} else if options.Hardware == nil {
		if s.Hardware, err = newHardware(ctx, s.dir, options); err != nil {
			return nil, err
		}
		up("network of the hosts")
	}
	if options.Predecessor != nil {
		s.endpoint = options.Predecessor.endpoint
	} else if s.endpoint, err = newEndpoint(s.address()); err != nil {
		return nil, err
	}
	if err := s.startClusters(ctx, options.Flags, up); err != nil {
		return nil, err
	}
	if options.Installed != nil {
		return s, s.StartMetal3(ctx)
	}
	if err := s.startCore(ctx); err != nil {
		return nil, err
	}
	up("Cluster API's core: reconcilers and webhooks")
	if options.KubeadmControlPlane {
		if err := s.startKubeadm(ctx); err != nil {
			return nil, err
		}
		up("Cluster API's kubeadm providers: bootstrap and control plane")
	}
	if !options.WithoutMetal3 {
		if err := s.StartMetal3(ctx); err != nil {
			return nil, err
		}
		up("Metal3 simulator")
	}
	if err := s.startPoolboot(ctx); err != nil {
		return nil, fmt.Errorf("start Poolboot: %w", err)
	}
	if options.Predecessor != nil {
		up("Poolboot: manager with webhooks")
	} else {
		up("Poolboot: manager with webhooks, config server with TLS, each as its own ServiceAccount")
	}
	return s, nil
}

// address returns the IP address at which hosts reach the servers of the site.
func (s *Site) address() string {
	if s.Hardware != nil {
		return s.Hardware.rack.Address()
	}
	return cmp.Or(s.options.Address, loopback.Host)
}

func (s *Site) startCore(ctx context.Context) error {
	log, err := s.logFile("cluster-api.log")
	if err != nil {
		return err
	}
	if s.core, err = clusterapi.Start(ctx, s.Management.Config, clusterapi.Options{Concurrency: s.options.Concurrency, Log: log}); err != nil {
		return fmt.Errorf("start Cluster API: %w", err)
	}
	return nil
}

// StartMetal3 installs Metal3's CRDs, and starts its simulator.
func (s *Site) StartMetal3(ctx context.Context) error {
	if s.options.Installed == nil {
		if err := clusterapi.InstallMetal3(s.Management.Config); err != nil {
			return fmt.Errorf("install Metal3's CRDs: %w", err)
		}
	}
	hardware := s.options.Hardware
	if hardware == nil {
		hardware = s.Hardware
	}
	log, err := s.logFile("metal3.log")
	if err != nil {
		return err
	}
	s.simulator, err = metal3.Start(ctx, s.Management.Config, metal3.Options{
		Hardware: hardware, Provisioning: time.Second, Reporting: 2 * time.Second, Backoff: time.Second, Deprovisioning: time.Second, Servicing: 3 * time.Second,
		RetryInterval: cmp.Or(s.options.RetryInterval, time.Second), Log: log,
	})
	if err != nil {
		return fmt.Errorf("start the Metal3 simulator: %w", err)
	}
	return nil
}

// StopIronic stops the Metal3 simulator's Ironic.
func (s *Site) StopIronic() { s.simulator.StopIronic() }

// StartIronic starts the Metal3 simulator's Ironic.
func (s *Site) StartIronic() { s.simulator.StartIronic() }

// DeleteNodes sets whether Metal3's remediations delete Nodes, as on API servers before 1.28. They do not by default.
func (s *Site) DeleteNodes(deletes bool) { s.simulator.DeleteNodes(deletes) }

// logFile returns a logger that writes to a file in the site's directory.
func (s *Site) logFile(name string) (logr.Logger, error) {
	file, err := os.Create(filepath.Join(s.dir, name))
	if err != nil {
		return logr.Discard(), err
	}
	return zap.New(zap.WriteTo(file)), nil
}

func (s *Site) startClusters(ctx context.Context, flags Flags, up func(string)) error {
	both, bothCtx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		if installed := s.options.Installed; installed != nil {
			s.Management = installed.ControlPlane
			return nil
		}
		s.Management, err = controlplane.Start(bothCtx, controlplane.Options{
			Name: "management", Dir: filepath.Join(s.dir, "management"), BinDir: s.binDir, Audit: true, Log: logr.Discard(),
			ControllerManager: s.options.GarbageCollector, Controllers: []string{"garbage-collector-controller", "serviceaccount-controller"},
		})
		return err
	})
	both.Go(func() (err error) {
		if s.guest || s.options.KubeadmControlPlane {
			return nil
		}
		s.Workload, err = controlplane.Start(bothCtx, controlplane.Options{
			Name: ClusterName, Dir: filepath.Join(s.dir, "workload"), BinDir: s.binDir, Host: s.address(), ControllerManager: true, ControllerManagerFlags: flags.ControllerManager,
			Audit: true, Log: logr.Discard(),
		})
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	if s.Workload == nil || s.guest {
		up("a management cluster (etcd, kube-apiserver)")
	} else {
		up("two control planes: management (etcd, kube-apiserver), workload (etcd, kube-apiserver, kube-controller-manager)")
	}
	install := clusterapi.Install
	if s.options.Installed != nil {
		install = clusterapi.InstallGenericControlPlane
	}
	err := install(ctx, s.Management.Config)
	if err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	if s.ManagementClient, err = client.NewWithWatch(s.Management.Config, client.Options{Scheme: clusterapi.Scheme()}); err != nil {
		return err
	}
	if s.Workload == nil {
		return nil
	}
	s.WorkloadClient, err = client.NewWithWatch(s.Workload.Config, client.Options{Scheme: clusterapi.Scheme()})
	return err
}

// CreateCluster creates the site's Cluster, with the workload control plane.
func (s *Site) CreateCluster(ctx context.Context) error {
	_, err := clusterapi.CreateCluster(ctx, s.ManagementClient, clusterapi.ClusterOptions{Namespace: Namespace, Name: ClusterName, Workload: s.Workload})
	return err
}

// Kubectl runs the real kubectl on a cluster and returns its output.
func (s *Site) Kubectl(ctx context.Context, cluster *controlplane.ControlPlane, args ...string) (string, error) {
	kubectl := exec.CommandContext(ctx, filepath.Join(s.binDir, "kubectl"), append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	output, err := kubectl.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %v: %w: %s", args, err, output)
	}
	return string(output), nil
}

// Dir returns the site's directory with its logs and disks, which Stop removes.
func (s *Site) Dir() string { return s.dir }

// Stop powers off the hosts, stops all programs and removes the site's directory.
func (s *Site) Stop() error {
	var errs []error
	if s.Hardware != nil && !s.guest {
		errs = append(errs, s.Hardware.powerOffAll())
	}
	errs = append(errs, s.stopReplicas(), s.Manager.Stop(), s.Ways.stop())
	if s.simulator != nil {
		errs = append(errs, s.simulator.Stop())
	}
	errs = append(errs, s.stopKubeadm())
	if s.core != nil {
		errs = append(errs, s.core.Stop())
	}
	s.cancel()
	if s.Management != nil && s.options.Installed == nil {
		errs = append(errs, s.Management.Stop())
	}
	if s.Workload != nil && !s.guest {
		errs = append(errs, s.Workload.Stop())
	}
	if s.Hardware != nil && !s.guest && s.options.Installed == nil {
		errs = append(errs, s.Hardware.rack.Close())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
