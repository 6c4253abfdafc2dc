package host

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/cri-client/pkg/fake"
)

// serveContainerRuntime serves a container runtime that runs nothing where containerd's socket is: the kubelet's and
// kubeadm's default. A socket's address holds 108 bytes only, so its folder goes in as a file descriptor, which stays
// open until stop: closing the listener removes the socket by the same address.
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
