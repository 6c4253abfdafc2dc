package controlplane

import (
	"os"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
)

// Elsewhere returns the control plane of an administrator's kubeconfig, of which the programs run elsewhere. dir gets
// the kubeconfig. Only the name and the fields of clients are set.
func Elsewhere(name, dir string, kubeconfig []byte) (*ControlPlane, error) {
	c := &ControlPlane{Name: name, dir: dir}
	return c, c.setAdmin(kubeconfig)
}

// setAdmin sets the fields of clients.
func (c *ControlPlane) setAdmin(kubeconfig []byte) error {
	var err error
	if c.Config, err = clientcmd.RESTConfigFromKubeConfig(kubeconfig); err != nil {
		return err
	}
	// Tests must not wait for the client's rate limit.
	c.Config.QPS = -1
	c.CA, c.Endpoint = c.Config.CAData, strings.TrimPrefix(c.Config.Host, "https://")
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	c.Kubeconfig = c.path(adminKubeconfig)
	return os.WriteFile(c.Kubeconfig, kubeconfig, 0o600)
}
