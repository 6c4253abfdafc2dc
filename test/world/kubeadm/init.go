// Package kubeadm gives a running control plane what kubeadm init would have left in it, by the phases of the real
// kubeadm, so that the real kubeadm join finds what it looks for. It knows of control planes only.
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

// phases are those of kubeadm init that write into the cluster for those who join: its own configuration, the
// kubelets', and for bootstrap tokens of kubeadm the rights, the cluster-info and a token.
var phases = [][]string{{"upload-config", "kubeadm"}, {"upload-config", "kubelet"}, {"bootstrap-token"}}

const configuration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
bootstrapTokens: [{token: %q}]
localAPIEndpoint: {advertiseAddress: 192.0.2.1} # nobody asks it; without, a default route is needed
nodeRegistration: {name: control-plane, criSocket: unix:///run/containerd/containerd.sock}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: %q
`

// Init makes a control plane look as if kubeadm init had made it, with a bootstrap token of kubeadm's own group. It may
// be called again.
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
