package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/faults"
)

// apiServerPort is the port of the API servers on hosts, and of the load balancer in front of them.
const apiServerPort = "6443"

// startKubeadm starts Cluster API's kubeadm providers, and the load balancer of the hosts.
func (s *Site) startKubeadm(ctx context.Context) (err error) {
	log, err := s.logFile("kubeadm.log")
	if err != nil {
		return err
	}
	for _, start := range []func(context.Context) (*clusterapi.KubeadmProvider, error){
		func(ctx context.Context) (*clusterapi.KubeadmProvider, error) {
			return clusterapi.StartKubeadmBootstrap(ctx, s.Management.Config, clusterapi.Options{Log: log})
		},
		func(ctx context.Context) (*clusterapi.KubeadmProvider, error) {
			return clusterapi.StartKubeadmControlPlane(ctx, s.Management.Config, clusterapi.Options{Log: log})
		},
	} {
		provider, err := start(ctx)
		if err != nil {
			return err
		}
		s.kubeadm = append(s.kubeadm, provider)
	}
	s.Hardware.balancer, err = faults.Serve(s.balancerAddress())
	return err
}

func (s *Site) stopKubeadm() error {
	var errs []error
	for _, provider := range s.kubeadm {
		errs = append(errs, provider.Stop())
	}
	if s.kubeadm != nil && s.Hardware.balancer != nil {
		errs = append(errs, s.Hardware.balancer.Stop())
	}
	return errors.Join(errs...)
}

// balancerAddress is the host:port at which clients reach the API servers of hosts.
func (s *Site) balancerAddress() string { return net.JoinHostPort(s.address(), apiServerPort) }

// APIServers returns the number of hosts whose API server is ready, as the load balancer in front of them sees it.
func (s *Site) APIServers() int { return s.Hardware.balancer.Ready() }

// CreateKubeadmCluster creates the Cluster of a namespace, with the same name, whose control plane runs on hosts. It
// waits until the first of them has an API server, and makes it the site's workload cluster.
func (s *Site) CreateKubeadmCluster(ctx context.Context, namespace string, replicas int32) (*clusterv1.Cluster, error) {
	cluster, err := clusterapi.CreateKubeadmCluster(ctx, s.ManagementClient, clusterapi.KubeadmClusterOptions{
		Namespace: namespace, Name: namespace, Endpoint: s.balancerAddress(), Replicas: replicas, Image: ControlPlaneImageURL,
	})
	if err != nil {
		return nil, err
	}
	var content []byte
	if err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		content, err = kubeconfig.FromSecret(ctx, s.ManagementClient, client.ObjectKeyFromObject(cluster))
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && s.APIServers() > 0, err
	}); err != nil {
		return nil, fmt.Errorf("the first API server of Cluster %s: %w", namespace, err)
	}
	if s.Workload, err = controlplane.Elsewhere(namespace, filepath.Join(s.dir, "workload"), content); err != nil {
		return nil, err
	}
	s.WorkloadClient, err = client.NewWithWatch(s.Workload.Config, client.Options{Scheme: clusterapi.Scheme()})
	return cluster, err
}
