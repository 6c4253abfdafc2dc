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
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
)

const (
	containerd = "/run/containerd/containerd.sock"
	crio       = "/run/crio/crio.sock"
	// registryHosts is where the CRI plugin of containerd is usually told how to reach registries.
	registryHosts = "/etc/containerd/certs.d"
)

// ways are those to pull images, the best first: where the container runtime listens, where it has images, and a
// command that pulls. hosts is the option of the command that names registryHosts, if the host has it.
var ways = []struct {
	socket, directory string
	command           []string
	hosts             string
}{
	{containerd, "/var/lib/containerd", []string{"crictl", "--runtime-endpoint=unix://" + containerd, "--image-endpoint=unix://" + containerd, "pull"}, ""},
	{containerd, "/var/lib/containerd", []string{"ctr", "--namespace=k8s.io", "images", "pull"}, "--hosts-dir="},
	{crio, "/var/lib/containers", []string{"crictl", "--runtime-endpoint=unix://" + crio, "--image-endpoint=unix://" + crio, "pull"}, ""},
}

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
	for _, way := range ways {
		if p.exists(way.directory) {
			return way.directory
		}
	}
	return "/var/lib"
}

// Pull returns when the container runtime has an image. The runtime verifies a digest in its name.
func (p Puller) Pull(ctx context.Context, image string) error {
	if !namePattern.MatchString(image) {
		return errors.New("it is not the name of an image")
	}
	err := errors.New("neither containerd nor CRI-O listens on the host: start it, or leave the image out")
	for _, way := range ways {
		if !p.exists(way.socket) {
			continue
		}
		arguments := slices.Clone(way.command[1:])
		if way.hosts != "" && p.exists(registryHosts) {
			arguments = append(arguments, way.hosts+registryHosts)
		}
		if _, err = p.Runner.Run(ctx, way.command[0], append(arguments, image)...); !errors.Is(err, command.ErrNotFound) {
			return err
		}
	}
	return err
}
