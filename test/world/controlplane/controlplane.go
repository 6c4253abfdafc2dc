// Package controlplane runs a real Kubernetes control plane on loopback: etcd, kube-apiserver and optionally
// kube-controller-manager and kube-scheduler, from the repository's bin directory. Tests and the demo use it as
// management cluster and workload cluster. It is independent of Cluster API and Poolboot.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// Options are the options of a control plane.
type Options struct {
	// Name is the cluster's name, in kubeconfigs and logs.
	Name string
	// Dir has certificates, etcd's data and logs. Default: a temporary directory, which Stop removes.
	Dir string
	// BinDir is the directory of the programs. Default: the environment variable POOLBOOT_BIN, or bin in the
	// repository's root.
	BinDir string
	// Host is the IP address of the API server. Hosts with a network of their own cannot reach the default, 127.0.0.1.
	Host string
	// ControllerManager also starts kube-controller-manager: it signs kubelets' certificates, creates service accounts,
	// monitors Nodes and deletes expired bootstrap tokens.
	ControllerManager bool
	// Controllers are the controllers of kube-controller-manager, which must include serviceaccount-controller.
	// Default: the default controllers and those for bootstrap tokens.
	Controllers []string
	// ControllerManagerFlags are additional flags of kube-controller-manager.
	ControllerManagerFlags []string
	// PodNetwork is the network of Pods, in CIDR notation. With it, and ControllerManager, each Node gets a part of it,
	// the Service kubernetes leads to the API server, which Host must make reachable for Pods, and the API server calls
	// webhooks at the addresses of their Pods, which this machine must have routes to. Optional.
	PodNetwork string
	// Audit logs all API requests, and what is written to Nodes, see ControlPlane.AuditLog and Requests.
	Audit bool
	// Log gets messages about starts and stops. The zero value discards them.
	Log logr.Logger
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Name is the cluster's name.
	Name string
	// Config is a client configuration for a member of system:masters.
	Config *rest.Config
	// Kubeconfig is the path of a kubeconfig file with the same user.
	Kubeconfig string
	// CA is the PEM certificate of the authority of the API server, kubelets and all users.
	CA []byte
	// Endpoint is the API server's host:port. It does not change on a restart.
	Endpoint string
	// AuditLog is the path of the audit log (JSON lines), empty without Options.Audit.
	AuditLog string

	host      string
	pods      string // their network
	dir       string
	temporary bool
	binDir    string
	log       logr.Logger
	authority *loopback.CA
	etcdURL   string

	etcd              *process.Process
	apiServer         *process.Process
	controllerManager *process.Process
	scheduler         *process.Process
}

// Start starts a control plane and waits until it is ready: the API server is ready, and the controller manager has
// created its first service account. It waits at most two minutes for each program. The error has the end of the failed
// program's log. On error it stops everything that it has started.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	binDir, err := binaries(options)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Name: options.Name, host: cmp.Or(options.Host, loopback.Host), pods: options.PodNetwork, binDir: binDir, log: options.Log, dir: options.Dir}
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "poolboot-"+options.Name+"-"); err != nil {
			return nil, err
		}
		c.temporary = true
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start control plane %q: %w", options.Name, err), c.Stop())
		}
	}()
	if c.dir, err = filepath.Abs(c.dir); err != nil {
		return nil, err
	}
	if err := c.prepare(options); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, err
	}
	if err := c.startFirstAPIServer(ctx); err != nil {
		return nil, err
	}
	if options.ControllerManager {
		if err := c.startControllerManager(ctx, options); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Stop stops all programs of the control plane and removes a temporary directory. It can be called twice.
func (c *ControlPlane) Stop() error {
	// An API server that gets SIGTERM waits for watches.
	errs := []error{c.scheduler.Stop(), c.controllerManager.Stop(), c.apiServer.Kill(), c.etcd.Stop()}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// StopAPIServer kills the API server only. Connections to Endpoint fail until StartAPIServer.
func (c *ControlPlane) StopAPIServer() error {
	return c.apiServer.Kill()
}

// StartAPIServer starts the API server again, with the same Endpoint and data, and waits until it is ready.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	if c.apiServer.Running() {
		return nil
	}
	_, text, err := net.SplitHostPort(c.Endpoint)
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	return c.startAPIServer(ctx, port)
}
