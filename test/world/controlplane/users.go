package controlplane

import (
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// UserConfig returns a client configuration with a client certificate for a user, for example "system:node:n1" in group
// "system:nodes".
func (c *ControlPlane) UserConfig(name string, groups ...string) (*rest.Config, error) {
	kubeconfig, err := c.UserKubeconfig(name, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.RESTConfigFromKubeConfig(kubeconfig)
}

// UserKubeconfig returns a kubeconfig with an embedded client certificate for a user.
func (c *ControlPlane) UserKubeconfig(name string, groups ...string) ([]byte, error) {
	pair, err := c.authority.Client(name, groups...)
	if err != nil {
		return nil, err
	}
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			c.Name: {Server: "https://" + c.Endpoint, CertificateAuthorityData: c.CA},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			name: {ClientCertificateData: pair.Cert, ClientKeyData: pair.Key},
		},
		Contexts:       map[string]*clientcmdapi.Context{c.Name: {Cluster: c.Name, AuthInfo: name}},
		CurrentContext: c.Name,
	})
}

// writeUserKubeconfig writes the kubeconfig of a user to a file in the control plane's directory.
func (c *ControlPlane) writeUserKubeconfig(user, file string) error {
	kubeconfig, err := c.UserKubeconfig(user)
	if err != nil {
		return err
	}
	return os.WriteFile(c.path(file), kubeconfig, 0o600)
}

// ServingPair returns a certificate and key for a proxy of this API server.
func (c *ControlPlane) ServingPair() (loopback.Pair, error) { return c.authority.Server() }

// writeAdmin creates the credentials of ControlPlane.Config and Kubeconfig for the current endpoint.
func (c *ControlPlane) writeAdmin() error {
	kubeconfig, err := c.UserKubeconfig("admin", "system:masters")
	if err != nil {
		return err
	}
	return c.setAdmin(kubeconfig)
}
