// Package site sets up a whole site on one machine: a management cluster that runs the real Cluster API core and
// Poolboot's two programs, a workload cluster, and hosts that boot with the real Ignition and the real kubelet. The
// demo shows it to people; end-to-end tests hold it to its promises. Only hardware, Cluster API's Metal3 provider and
// the container runtime are stand-ins.
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

const (
	// Namespace is the namespace of the site's Cluster and of all that belongs to it.
	Namespace = "default"
	// ClusterName is the name of the site's Cluster.
	ClusterName = "edge"
)

// Flags are further flags of Poolboot's programs, and of the workload cluster's kube-controller-manager.
type Flags struct {
	Manager, ConfigServer, ControllerManager []string
}

// Options says what site to set up.
type Options struct {
	// Hardware is what BareMetalHosts stand for. Nil: hosts that boot for real.
	Hardware metal3.Hardware
	// Neighbour is a site whose workload cluster and hosts this one uses too, from a management cluster of its own.
	// Nil: none.
	Neighbour *Site
	// WithoutMetal3 leaves Metal3 and its kinds out until StartMetal3.
	WithoutMetal3 bool
	// Predecessor is the site that this one takes over from: to a management cluster of its own it gets that site's
	// workload cluster and hosts, and the address and the certificate by which hosts know its config server. The config
	// server is for the caller to start once the predecessor's has ended. Nil: nothing is taken over.
	Predecessor *Site
	// Flags are further flags of the site's programs.
	Flags Flags
	// GarbageCollector runs Kubernetes' garbage collector in the management cluster.
	GarbageCollector bool
	// Concurrency is that of Cluster API's core, see clusterapi.Options.
	Concurrency int
	// RetryInterval is that of the Metal3 provider, see metal3.Options. Zero is one second.
	RetryInterval time.Duration
	// Replicas is how many config servers there are. More than one stand behind a Service, at the address that hosts
	// know. Zero is one.
	Replicas int
	// Ways has the programs reach both API servers by ways that a test can make bad, see Site.Ways.
	Ways bool
	// Progress gets a line for each part that is up. Nil: nobody.
	Progress io.Writer
	// Consoles gets what the hosts print. Nil: nobody.
	Consoles io.Writer
}

// Site is a running site.
type Site struct {
	// Management is the control plane of the management cluster, Workload the one that hosts join.
	Management, Workload *controlplane.ControlPlane
	// ManagementClient and WorkloadClient reach them as cluster-admin.
	ManagementClient, WorkloadClient client.WithWatch
	// Manager and ConfigServer are Poolboot.
	Manager, ConfigServer *Program
	// Replicas are all config servers, ConfigServer first.
	Replicas []*Program
	// Ways are those of Options.Ways.
	Ways Ways
	// WorkloadKubeconfig is the one that Clusters have; nil: the administrator's.
	WorkloadKubeconfig []byte
	// Hardware is the hosts that boot for real.
	Hardware *Hardware

	service   *faults.Service
	dir       string
	binDir    string
	options   Options
	guest     bool // the workload cluster and the hosts are another site's
	door      *door
	core      *clusterapi.Core
	simulator *metal3.Simulator
	cancel    context.CancelFunc
}

// Start sets up a site. Whatever was started is stopped again on error; the error says what to do.
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
	// Short, because sockets live below it and a socket's path has 108 bytes at most.
	if s.dir, err = os.MkdirTemp("", "site-"); err != nil {
		return nil, err
	}
	progress := options.Progress
	if progress == nil {
		progress = io.Discard
	}
	began := time.Now()
	up := func(what string) { fmt.Fprintf(progress, "  %5.1f s  %s\n", time.Since(began).Seconds(), what) }

	if other := cmp.Or(options.Predecessor, options.Neighbour); other != nil {
		s.guest, s.Workload, s.Hardware = true, other.Workload, other.Hardware
	}
	if options.Predecessor != nil {
		s.door = options.Predecessor.door
	} else if s.door, err = newDoor(); err != nil {
		return nil, err
	}
	if err := s.startClusters(ctx, options.Flags, up); err != nil {
		return nil, err
	}
	log, err := s.logFile("cluster-api.log")
	if err != nil {
		return nil, err
	}
	if s.core, err = clusterapi.Start(ctx, s.Management.Config, clusterapi.Options{Concurrency: options.Concurrency, Log: log}); err != nil {
		return nil, fmt.Errorf("start Cluster API: %w", err)
	}
	up("Cluster API's core: reconcilers and webhooks")
	if s.Hardware == nil {
		s.Hardware = &Hardware{ctx: ctx, dir: s.dir, binDir: s.binDir, log: options.Consoles, hosts: map[string]*host.Host{}, scrapped: map[string]bool{}}
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

// StartMetal3 installs the kinds of Metal3 where Options left them out, and starts its simulator.
func (s *Site) StartMetal3(ctx context.Context) error {
	if err := clusterapi.InstallMetal3(ctx, s.Management.Config); err != nil {
		return fmt.Errorf("install Metal3's CRDs: %w", err)
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
		Hardware: hardware, Provisioning: time.Second, Reporting: 2 * time.Second, Backoff: time.Second, Deprovisioning: time.Second,
		RetryInterval: cmp.Or(s.options.RetryInterval, time.Second), Log: log,
	})
	if err != nil {
		return fmt.Errorf("start the Metal3 simulator: %w", err)
	}
	return nil
}

// StopIronic stops that of the Metal3 simulator.
func (s *Site) StopIronic() { s.simulator.StopIronic() }

// StartIronic starts that of the Metal3 simulator.
func (s *Site) StartIronic(ctx context.Context) error { return s.simulator.StartIronic(ctx) }

// DeleteNodes has Metal3's remediations delete Nodes, as on API servers before 1.28, or keep them, as they do at first.
func (s *Site) DeleteNodes(deletes bool) { s.simulator.DeleteNodes(deletes) }

// logFile returns a logger that writes to a file of the site's folder.
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
		s.Management, err = controlplane.Start(bothCtx, controlplane.Options{
			Name: "management", Dir: filepath.Join(s.dir, "management"), BinDir: s.binDir, Audit: true, Log: logr.Discard(),
			ControllerManager: s.options.GarbageCollector, Controllers: []string{"garbage-collector-controller", "serviceaccount-controller"},
		})
		return err
	})
	both.Go(func() (err error) {
		if s.guest {
			return nil
		}
		s.Workload, err = controlplane.Start(bothCtx, controlplane.Options{
			Name: ClusterName, Dir: filepath.Join(s.dir, "workload"), BinDir: s.binDir, ControllerManager: true, ControllerManagerFlags: flags.ControllerManager,
			Audit: true, Log: logr.Discard(),
		})
		return err
	})
	if err := both.Wait(); err != nil {
		return err
	}
	if s.guest {
		up("a management cluster (etcd, kube-apiserver)")
	} else {
		up("two control planes: management (etcd, kube-apiserver), workload (etcd, kube-apiserver, kube-controller-manager)")
	}
	if err := clusterapi.Install(ctx, s.Management.Config); err != nil {
		return fmt.Errorf("install CRDs: %w", err)
	}
	var err error
	if s.ManagementClient, err = client.NewWithWatch(s.Management.Config, client.Options{Scheme: clusterapi.Scheme()}); err != nil {
		return err
	}
	s.WorkloadClient, err = client.NewWithWatch(s.Workload.Config, client.Options{Scheme: clusterapi.Scheme()})
	return err
}

// CreateCluster makes the site's Cluster, which hosts of the workload control plane join.
func (s *Site) CreateCluster(ctx context.Context) error {
	_, err := clusterapi.CreateCluster(ctx, s.ManagementClient, clusterapi.ClusterOptions{Namespace: Namespace, Name: ClusterName, Workload: s.Workload})
	return err
}

// Kubectl runs the real kubectl against a cluster and returns what it prints.
func (s *Site) Kubectl(ctx context.Context, cluster *controlplane.ControlPlane, args ...string) (string, error) {
	kubectl := exec.CommandContext(ctx, filepath.Join(s.binDir, "kubectl"), append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	output, err := kubectl.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %v: %w: %s", args, err, output)
	}
	return string(output), nil
}

// Dir is where the site keeps its logs and disks until Stop removes it.
func (s *Site) Dir() string { return s.dir }

// Stop switches the hosts off, ends every program and removes the site's folder.
func (s *Site) Stop() error {
	var errs []error
	if s.Hardware != nil && !s.guest {
		s.Hardware.powerOffAll()
	}
	errs = append(errs, s.stopReplicas(), s.Manager.Stop(), s.Ways.stop())
	if s.simulator != nil {
		errs = append(errs, s.simulator.Stop())
	}
	if s.core != nil {
		errs = append(errs, s.core.Stop())
	}
	s.cancel()
	for _, cluster := range []*controlplane.ControlPlane{s.Management, s.Workload} {
		if cluster != nil && (!s.guest || cluster != s.Workload) {
			errs = append(errs, cluster.Stop())
		}
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
