// Package clusterctl runs the real clusterctl with a local repository of providers: Cluster API's core and kubeadm
// providers, Metal3's kinds without a program, and releases of Poolboot. Its cert-manager is the program in
// hack/tools/cert-manager. `make management-parts` builds clusterctl and an archive with the images of the providers
// and cert-manager.
package clusterctl

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// Clusterctl is clusterctl with its configuration.
type Clusterctl struct {
	// Images is the archive with the images of Cluster API and cert-manager, in the format of ctr images import.
	Images string

	program, dir string
}

// New writes a local repository and clusterctl's configuration file into a directory. releases is OUT of one or more
// runs of make release, of which clusterctl installs the latest by default. The variables are added to the
// configuration file.
func New(ctx context.Context, dir, releases string, variables map[string]string) (*Clusterctl, error) {
	binDir, err := process.BinDir()
	if err != nil {
		return nil, err
	}
	c := &Clusterctl{
		Images:  filepath.Join(binDir, "cluster-api", "images.tar"),
		program: filepath.Join(binDir, "clusterctl"), dir: dir,
	}
	r := repository{dir: dir, kubectl: filepath.Join(binDir, "kubectl")}
	providers, err := r.addProviders(ctx)
	if err != nil {
		return nil, err
	}
	certManager, err := r.addCertManager(ctx)
	if err != nil {
		return nil, err
	}
	settings := map[string]any{
		"providers": append(providers, provider{"poolboot", "BootstrapProvider",
			fileURL(releases, "bootstrap-poolboot", "latest", "bootstrap-components.yaml")}),
		"cert-manager": certManager,
		// It would ask the Go module proxy for the latest release.
		"CLUSTERCTL_DISABLE_VERSIONCHECK": "true",
	}
	for name, value := range variables {
		settings[name] = value
	}
	content, err := yaml.Marshal(settings)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "cluster-api"), 0o755); err != nil {
		return nil, err
	}
	return c, os.WriteFile(filepath.Join(dir, "cluster-api", "clusterctl.yaml"), content, 0o600)
}

// Environment returns the environment of programs with which clusterctl, which is on the path, finds its configuration,
// and kubectl a management cluster.
func (c *Clusterctl) Environment(kubeconfig string) []string {
	return append(os.Environ(), "KUBECONFIG="+kubeconfig, "XDG_CONFIG_HOME="+c.dir, "PATH="+filepath.Dir(c.program)+":"+os.Getenv("PATH"))
}

// Run runs clusterctl against the management cluster of a kubeconfig file, which can be empty for commands without
// one. It returns the output and the messages. An error has the messages too.
func (c *Clusterctl) Run(ctx context.Context, kubeconfig string, args ...string) (output, messages string, err error) {
	command := exec.CommandContext(ctx, c.program, args...)
	command.Dir, command.Env = c.dir, c.Environment(kubeconfig)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err = command.Run(); err != nil {
		err = fmt.Errorf("clusterctl %s: %w: %s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), stderr.String(), err
}
