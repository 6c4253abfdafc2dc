package workload

import (
	"context"
	"fmt"
	"net"
	"strconv"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// Identity returns what a cluster is known by: what the Cluster says, and the address and the name in the certificate
// of the server of the manager's own connection, if there is one.
func Identity(ctx context.Context, clusters clustercache.ClusterCache, cluster *clusterv1.Cluster) identity.Cluster {
	var servers []string
	if connection, err := clusters.GetRESTConfig(ctx, client.ObjectKeyFromObject(cluster)); err == nil && connection != nil {
		servers = append(servers, connection.Host)
		if name := connection.ServerName; name != "" { // by which clients of this kubeconfig know the server, whatever its address is
			servers = append(servers, "https://"+name)
		}
	}
	return identity.Of(cluster, servers...)
}

// Facts returns what a host must know to reach its cluster: the address in the Cluster's spec.controlPlaneEndpoint,
// which is the one that hosts can reach, and the certificate authority in the kubeconfig of the manager's own
// connection; it reads no file. Its error satisfies IsUnreachable when there is no connection.
func Facts(ctx context.Context, clusters clustercache.ClusterCache, cluster *clusterv1.Cluster) (join.Cluster, error) {
	key := client.ObjectKeyFromObject(cluster)
	endpoint := cluster.Spec.ControlPlaneEndpoint
	if !endpoint.IsValid() {
		return join.Cluster{}, fmt.Errorf("cluster %s: spec.controlPlaneEndpoint is not set: the infrastructure provider sets it once the cluster's address is known", key)
	}
	connection, err := clusters.GetRESTConfig(ctx, key)
	if err != nil {
		return join.Cluster{}, fmt.Errorf("cluster %s: %w", key, err)
	}
	if len(connection.CAData) == 0 {
		return join.Cluster{}, fmt.Errorf("cluster %s: the Secret %s-kubeconfig has no certificate-authority-data: hosts can't verify the API server without it", key, key.Name)
	}
	return join.Cluster{
		Server: "https://" + net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
		CA:     connection.CAData,
		Name:   cluster.Name,
	}, nil
}
