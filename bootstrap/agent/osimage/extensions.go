package osimage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
)

const (
	// extensionsContainer is the name of the container that the packages are copied from. It never runs.
	extensionsContainer = "poolboot-extensions"
	// extensionsPath is where an extensions image has its repository.
	extensionsPath = "/usr/share/rpm-ostree/extensions"
	// extensionsDirectory is where the host has a copy of it, in memory.
	extensionsDirectory = "/run/poolboot-extensions/packages"
	// repositoryPath makes rpm-ostree use the copy.
	repositoryPath = "/etc/yum.repos.d/poolboot-extensions.repo"
	// pullSecretPath has the credentials of registries. It can be missing.
	pullSecretPath = "/var/lib/kubelet/config.json"
)

// The digest in the name of the image is what protects the packages.
const repository = `[poolboot-extensions]
name=Extensions of the operating system
baseurl=file://` + extensionsDirectory + `
enabled=1
gpgcheck=0
metadata_expire=1m
skip_if_unavailable=0
`

// pull pulls an extensions image.
func (t rpmOSTree) pull(ctx context.Context, name string) error {
	arguments := []string{"pull", "--quiet"}
	switch _, err := os.Stat(t.path(pullSecretPath)); {
	case err == nil:
		arguments = append(arguments, "--authfile="+pullSecretPath)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return t.podman(ctx, append(arguments, name)...)
}

func (t rpmOSTree) podman(ctx context.Context, arguments ...string) error {
	if _, err := t.client.Runner.Run(ctx, "podman", arguments...); err != nil {
		return fmt.Errorf("%w: use an image with podman, or leave baseOSExtensionsContainerImage out if the host has repositories", err)
	}
	return nil
}

// addExtensions makes the packages of an extensions image available.
func (t rpmOSTree) addExtensions(ctx context.Context, name string) error {
	if err := t.pull(ctx, name); err != nil {
		return err
	}
	if err := os.MkdirAll(t.path(filepath.Dir(extensionsDirectory)), 0o755); err != nil {
		return err
	}
	for _, arguments := range [][]string{
		{"create", "--network=none", "--name=" + extensionsContainer, name, "/bin/true"},
		{"cp", extensionsContainer + ":" + extensionsPath, extensionsDirectory},
	} {
		if err := t.podman(ctx, arguments...); err != nil {
			return err
		}
	}
	return durable.Write(t.path(repositoryPath), []byte(repository), 0o644)
}

// removeExtensions removes what addExtensions added, also if it was interrupted: the file comes after the directory,
// and goes before it. After a reboot, the directory is gone.
func (t rpmOSTree) removeExtensions(ctx context.Context) error {
	if err := os.Remove(t.path(repositoryPath)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	directory := t.path(filepath.Dir(extensionsDirectory))
	if _, err := os.Stat(directory); err != nil {
		return nil //nolint:nilerr // nothing was added
	}
	if _, err := t.client.Runner.Run(ctx, "podman", "rm", "--force", "--ignore", extensionsContainer); err != nil {
		return err
	}
	return os.RemoveAll(directory)
}

func (t rpmOSTree) path(name string) string { return filepath.Join("/", t.root, name) }
