// Package controlplane runs a real Kubernetes control plane on loopback: etcd, kube-apiserver and, if asked for,
// kube-controller-manager, from the repository's bin folder. Tests and the demo use it as management cluster, as
// workload cluster or as both. Nothing in it knows of Cluster API or Poolboot.
package controlplane

import (
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
	// Dir keeps certificates, etcd's data and logs. Left empty, a temporary folder is made, and removed by Stop.
	Dir string
	// BinDir holds the programs. Left empty, it is the environment variable POOLBOOT_BIN, or bin in the repository's
	// root.
	BinDir string
	// ControllerManager starts kube-controller-manager too: it signs kubelets' certificates, makes service accounts,
	// watches over Nodes and cleans up bootstrap tokens.
	ControllerManager bool
	// Controllers are those that kube-controller-manager runs; serviceaccount-controller must be one. Nil: all, and
	// those for bootstrap tokens.
	Controllers []string
	// ControllerManagerFlags are further flags of kube-controller-manager.
	ControllerManagerFlags []string
	// Audit has every API request logged at metadata level, see ControlPlane.AuditLog and Requests.
	Audit bool
	// Log is told what starts and stops. The zero value is silent.
	Log logr.Logger
}

// ControlPlane is a running control plane.
type ControlPlane struct {
	// Name is the cluster's name.
	Name string
	// Config is a client configuration for a member of system:masters.
	Config *rest.Config
	// Kubeconfig is the path of a kubeconfig file that does the same.
	Kubeconfig string
	// CA is the PEM certificate of the authority of the API server, kubelets and all users.
	CA []byte
	// Endpoint is the API server's host:port. It stays over a restart.
	Endpoint string
	// AuditLog is the path of the audit log (JSON lines), empty without Options.Audit.
	AuditLog string

	dir       string
	temporary bool
	binDir    string
	log       logr.Logger
	authority *loopback.CA
	etcdURL   string

	etcd              *process.Process
	apiServer         *process.Process
	controllerManager *process.Process
}

// Start starts a control plane and returns when it is ready to serve: the API server is, and the controller manager, if
// asked for, has made its first service account. It waits two minutes at most for each program; the error shows the end
// of the log of the one that failed. Whatever was started is stopped again on error.
func Start(ctx context.Context, options Options) (_ *ControlPlane, err error) {
	binDir, err := binaries(options)
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{Name: options.Name, binDir: binDir, log: options.Log, dir: options.Dir}
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

// Stop ends every program of the control plane and removes its folder if that was a temporary one. It may be called
// twice.
func (c *ControlPlane) Stop() error {
	// An API server that gets SIGTERM waits for watches.
	errs := []error{c.controllerManager.Stop(), c.apiServer.Kill(), c.etcd.Stop()}
	if c.temporary {
		errs = append(errs, os.RemoveAll(c.dir))
	}
	return errors.Join(errs...)
}

// StopAPIServer kills the API server only. Connections to Endpoint fail until StartAPIServer.
func (c *ControlPlane) StopAPIServer() error {
	return c.apiServer.Kill()
}

// StartAPIServer starts the API server again, at the same Endpoint with the same data, and returns when it is ready.
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
