package workload

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"strconv"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// Identity returns the names and addresses of a cluster: those in the Cluster and, if the manager has a connection, the
// address of the API server and the server name that the kubeconfig expects in its certificate.
func Identity(ctx context.Context, clusters clustercache.ClusterCache, cluster *clusterv1.Cluster) access.Cluster {
	var servers []string
	if connection, err := clusters.GetRESTConfig(ctx, client.ObjectKeyFromObject(cluster)); err == nil && connection != nil {
		servers = append(servers, connection.Host)
		if name := connection.ServerName; name != "" {
			servers = append(servers, "https://"+name)
		}
	}
	return access.ClusterOf(cluster, servers...)
}

// checkBundle returns an error if a certificate of a PEM bundle can't be read. Connections skip such certificates, and
// exist only if there is another one.
func checkBundle(bundle []byte) error {
	for number := 1; ; number++ {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			return nil
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil && block.Type == "CERTIFICATE" {
			return fmt.Errorf("PEM block %d is malformed: %w", number, err)
		}
	}
}

// JoinCluster returns the information that a host needs to join its cluster: the address in the Cluster's
// spec.controlPlaneEndpoint, which hosts can reach, and the certificate authority from the manager's kubeconfig. A
// certificate authority in a file is not read. If there is no connection, the error satisfies IsUnreachable.
func JoinCluster(ctx context.Context, clusters clustercache.ClusterCache, cluster *clusterv1.Cluster) (join.Cluster, error) {
	key := client.ObjectKeyFromObject(cluster)
	endpoint := cluster.Spec.ControlPlaneEndpoint
	if !endpoint.IsValid() {
		return join.Cluster{}, fmt.Errorf("cluster %s: spec.controlPlaneEndpoint is not set: wait until the infrastructure provider sets it, or set it", key)
	}
	connection, err := clusters.GetRESTConfig(ctx, key)
	if err != nil {
		return join.Cluster{}, fmt.Errorf("cluster %s: %w", key, err)
	}
	if len(connection.CAData) == 0 {
		return join.Cluster{}, fmt.Errorf("cluster %s: the Secret %s-kubeconfig has no certificate-authority-data: hosts cannot verify the API server without it: add it to the kubeconfig", key, key.Name)
	}
	if err := checkBundle(connection.CAData); err != nil {
		return join.Cluster{}, fmt.Errorf("cluster %s: certificate-authority-data in the Secret %s-kubeconfig: %w: kubelets and the config server accept only a bundle that they can read completely: correct it", key, key.Name, err)
	}
	return join.Cluster{
		Server: "https://" + net.JoinHostPort(endpoint.Host, strconv.Itoa(int(endpoint.Port))),
		CA:     connection.CAData,
		Name:   cluster.Name,
	}, nil
}
