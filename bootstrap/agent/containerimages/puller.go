// Package containerimages has the container runtime of a host pull images before Pods need them. It uses crictl, which
// asks the runtime by the CRI as the kubelet does, or else ctr for containerd.
//
// The credentials for registries are those that the runtime is configured with, such as auth.json of CRI-O or the host
// configuration of containerd, and for ctr those of its hosts directory. Pull secrets of Pods and credential providers
// of the kubelet are not used: they belong to the kubelet.
package containerimages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
)

// runtimes are the container runtimes of hosts: where they listen, and where they have images.
var runtimes = []struct{ socket, directory string }{
	{"/run/containerd/containerd.sock", "/var/lib/containerd"},
	{"/run/crio/crio.sock", "/var/lib/containers"},
}

// registryHosts is where the CRI plugin of containerd is usually told how to reach registries.
const registryHosts = "/etc/containerd/certs.d"

// namePattern excludes options of programs.
var namePattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$`)

// Puller pulls images.
type Puller struct {
	// Runner runs the programs of the host. It needs the time to download an image.
	Runner rpmostree.Runner
	// Root is the root directory of the host, / if it is empty.
	Root string
}

func (p Puller) exists(name string) bool {
	_, err := os.Stat(filepath.Join("/", p.Root, name))
	return err == nil
}

// Directory returns where the container runtime has images.
func (p Puller) Directory() string {
	for _, runtime := range runtimes {
		if p.exists(runtime.directory) {
			return runtime.directory
		}
	}
	return "/var/lib"
}

// Pull returns when the container runtime has an image. The runtime verifies a digest in its name.
func (p Puller) Pull(ctx context.Context, image string) error {
	if !namePattern.MatchString(image) {
		return errors.New("it is not the name of an image")
	}
	for _, runtime := range runtimes {
		if !p.exists(runtime.socket) {
			continue
		}
		_, err := p.Runner.Run(ctx, "crictl", "--runtime-endpoint=unix://"+runtime.socket, "--image-endpoint=unix://"+runtime.socket, "pull", image)
		if !errors.Is(err, command.ErrNotFound) || runtime != runtimes[0] {
			return err
		}
		arguments := []string{"--namespace=k8s.io", "images", "pull"}
		if p.exists(registryHosts) {
			arguments = append(arguments, "--hosts-dir="+registryHosts)
		}
		_, err = p.Runner.Run(ctx, "ctr", append(arguments, image)...)
		return err
	}
	return fmt.Errorf("neither containerd nor CRI-O listens on the host: start it, or leave the image out")
}
