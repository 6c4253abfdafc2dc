package controlplane

import (
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

// Files in a control plane's directory.
const (
	caCert              = "ca.crt"
	caKey               = "ca.key"
	servingCert         = "apiserver.crt"
	servingKey          = "apiserver.key"
	kubeletCert         = "apiserver-kubelet-client.crt"
	kubeletKey          = "apiserver-kubelet-client.key"
	serviceAccountKey   = "service-account.key"
	adminKubeconfig     = "admin.kubeconfig"
	managerKubeconfig   = "controller-manager.kubeconfig"
	schedulerKubeconfig = "scheduler.kubeconfig"
	auditPolicy         = "audit-policy.yaml"
	auditLog            = "audit.log"
)

// auditEverything logs the metadata of all requests, once per request, and each version of a Node that is written.
const auditEverything = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch]
  resources: [{resources: [nodes, nodes/status]}]
- level: Metadata
`

// prepare creates the files that do not depend on a port.
func (c *ControlPlane) prepare(options Options) error {
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return err
	}
	var err error
	if c.authority, err = loopback.NewCA(c.Name); err != nil {
		return err
	}
	c.CA = c.authority.PEM()
	ca, err := c.authority.Pair()
	if err != nil {
		return err
	}
	serving, err := c.authority.Server("kubernetes", "kubernetes.default", "kubernetes.default.svc", serviceAddress, c.host)
	if err != nil {
		return err
	}
	kubelets, err := c.authority.Client("kube-apiserver", "system:masters")
	if err != nil {
		return err
	}
	serviceAccounts, err := c.authority.Client("service-accounts")
	if err != nil {
		return err
	}
	files := map[string][]byte{
		caCert: ca.Cert, caKey: ca.Key,
		servingCert: serving.Cert, servingKey: serving.Key, kubeletCert: kubelets.Cert, kubeletKey: kubelets.Key,
		serviceAccountKey: serviceAccounts.Key,
	}
	if options.Audit {
		c.AuditLog = c.path(auditLog)
		files[auditPolicy] = []byte(auditEverything)
	}
	for name, content := range files {
		if err := os.WriteFile(c.path(name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Authority returns the certificate and key of the control plane's certificate authority.
func (c *ControlPlane) Authority() (loopback.Pair, error) { return c.authority.Pair() }

// ClientCA returns the authority itself, for certificates that only some tests need.
func (c *ControlPlane) ClientCA() *loopback.CA { return c.authority }

func (c *ControlPlane) path(name string) string { return filepath.Join(c.dir, name) }
