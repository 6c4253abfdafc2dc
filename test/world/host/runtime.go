package host

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/cri-client/pkg/fake"
)

// serveContainerRuntime serves a container runtime without containers at containerd's socket, the default of the
// kubelet and kubeadm. A socket's address has at most 108 bytes, therefore its directory is a file descriptor. It stays
// open until stop, because closing the listener removes the socket by the same address.
func serveContainerRuntime(root string) (stop func(), err error) {
	folder := filepath.Join(root, "run/containerd")
	if err := os.RemoveAll(filepath.Join(folder, "containerd.sock")); err != nil {
		return nil, err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	runtime := fake.NewFakeRemoteRuntime()
	if err := runtime.Start(fmt.Sprintf("unix:///proc/self/fd/%d/containerd.sock", dir.Fd())); err != nil {
		_ = dir.Close()
		return nil, err
	}
	return func() {
		runtime.Stop()
		_ = dir.Close()
	}, nil
}
