package site

import (
	"context"
	"errors"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/faults"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// newReplicas prepares the config servers: one at the address for hosts, or several behind it.
func (s *Site) newReplicas(certDir string) error {
	for range max(s.options.Replicas, 1) {
		ports := make([]string, 3)
		for i := range ports {
			port, err := loopback.FreePort()
			if err != nil {
				return err
			}
			ports[i] = loopback.Address(port)
		}
		hosts, health, metrics := s.endpoint.address, ports[1], ports[2]
		if s.options.Replicas > 1 {
			hosts = ports[0]
		}
		s.Replicas = append(s.Replicas, &Program{name: "config-server", dir: s.dir, path: filepath.Join(s.binDir, "config-server"), hosts: hosts, health: health, metrics: metrics, args: append([]string{
			"--overlay-namespace=" + namespace, "--agent-directory=" + s.agents(),
			"--bind-address=" + hosts, "--external-url=https://" + s.endpoint.address, "--tls-cert-dir=" + certDir, "--shutdown-delay=0",
			"--health-bind-address=" + health, "--metrics-bind-address=" + metrics,
		}, s.options.Flags.ConfigServer...)})
	}
	s.ConfigServer = s.Replicas[0]
	return nil
}

func (s *Site) startReplicas(ctx context.Context) (err error) {
	for _, replica := range s.Replicas {
		if err := replica.Start(ctx); err != nil {
			return err
		}
	}
	if len(s.Replicas) == 1 {
		return nil
	}
	if s.service, err = faults.Serve(s.endpoint.address); err != nil {
		return err
	}
	for _, replica := range s.Replicas {
		s.service.Add(replica.hosts, "http://"+replica.health+"/readyz")
	}
	return nil
}

func (s *Site) stopReplicas() error {
	var errs []error
	if s.service != nil {
		errs = append(errs, s.service.Stop())
	}
	for _, replica := range s.Replicas {
		errs = append(errs, replica.Stop())
	}
	return errors.Join(errs...)
}

// Ways are the proxies through which Poolboot's programs connect to the API servers. nil is a direct connection.
type Ways struct {
	// Manager and ConfigServer are proxies for the management cluster, Workload is the manager's proxy for the workload
	// cluster.
	Manager, ConfigServer, Workload *faults.Proxy
}

// openWays starts the proxies if the options request them.
func (s *Site) openWays() (err error) {
	if !s.options.Ways {
		return nil
	}
	open := func(to *controlplane.ControlPlane, asAdmin bool) (*faults.Proxy, error) {
		pair, err := to.ServingPair()
		if err != nil {
			return nil, err
		}
		config := to.Config
		if !asAdmin { // the programs send their tokens
			if config, err = to.UserConfig(""); err != nil {
				return nil, err
			}
			config.CertData, config.KeyData = nil, nil
		}
		return faults.Start(config, pair)
	}
	if s.Ways.Manager, err = open(s.Management, false); err != nil {
		return err
	}
	if s.Ways.ConfigServer, err = open(s.Management, false); err != nil {
		return err
	}
	if s.Ways.Workload, err = open(s.Workload, true); err != nil {
		return err
	}
	kubeconfig, err := clientcmd.LoadFromFile(s.Workload.Kubeconfig)
	if err != nil {
		return err
	}
	for _, cluster := range kubeconfig.Clusters {
		cluster.Server = s.Ways.Workload.Server
	}
	s.WorkloadKubeconfig, err = clientcmd.Write(*kubeconfig)
	return err
}

// server returns the URL of the management cluster's API server for a program.
func (w Ways) server(program string, management *controlplane.ControlPlane) string {
	switch {
	case w.Manager == nil:
		return management.Config.Host
	case program == "manager":
		return w.Manager.Server
	default:
		return w.ConfigServer.Server
	}
}

func (w Ways) stop() error {
	var errs []error
	for _, way := range []*faults.Proxy{w.Manager, w.ConfigServer, w.Workload} {
		if way != nil {
			errs = append(errs, way.Stop())
		}
	}
	return errors.Join(errs...)
}
