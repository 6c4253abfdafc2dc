// Package kubeadm creates the objects of kubeadm init in a running control plane, with phases of the real kubeadm. The
// real kubeadm join requires them.
package kubeadm

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// phases are the phases of kubeadm init that create objects for joining hosts: the configuration of kubeadm and of
// kubelets, and for bootstrap tokens of kubeadm the rights, the cluster-info and a token.
var phases = [][]string{{"upload-config", "kubeadm"}, {"upload-config", "kubelet"}, {"bootstrap-token"}}

const configuration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: %q}]
localAPIEndpoint: {advertiseAddress: 192.0.2.1} # not used; without it, kubeadm needs a default route
nodeRegistration: {name: control-plane, criSocket: unix:///run/containerd/containerd.sock}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: %q
`

// Init creates the objects of kubeadm init in a control plane, with a bootstrap token of kubeadm's group. It is
// idempotent.
func Init(ctx context.Context, cluster *controlplane.ControlPlane, token string) error {
	binDir, err := process.BinDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "kubeadm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "init.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, configuration, token, cluster.Endpoint), 0o600); err != nil {
		return err
	}
	for _, phase := range phases {
		arguments := append([]string{"init", "phase"}, phase...)
		kubeadm := exec.CommandContext(ctx, filepath.Join(binDir, "kubeadm"),
			append(arguments, "--config", config, "--kubeconfig", cluster.Kubeconfig)...)
		if output, err := kubeadm.CombinedOutput(); err != nil {
			return fmt.Errorf("kubeadm init phase %v: %w: %s", phase, err, output)
		}
	}
	return nil
}

const joinConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {token: %q, apiServerEndpoint: %q, unsafeSkipCAVerification: true}
nodeRegistration:
  # This check is about the kernel of the machine, which hosts share.
  ignorePreflightErrors: [SystemVerification]
  # The settings for a shared machine are in a drop-in.
  kubeletExtraArgs: [{name: config-dir, value: /etc/kubernetes/kubelet.conf.d}]
`

// JoinConfiguration returns the configuration of kubeadm join for a host of package baremetal, with a token of Init.
func JoinConfiguration(cluster *controlplane.ControlPlane, token string) []byte {
	return fmt.Appendf(nil, joinConfiguration, token, cluster.Endpoint)
}
