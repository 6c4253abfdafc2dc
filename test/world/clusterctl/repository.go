package clusterctl

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// provider is a provider in clusterctl's configuration file.
type provider struct {
	Name string `json:"name"`
	Type string `json:"type"`
	URL  string `json:"url"`
}

// metal3Version is the version of Metal3's provider, of which the repository has the kinds.
const metal3Version = "v1.13.0"

const metal3Metadata = `apiVersion: clusterctl.cluster.x-k8s.io/v1alpha3
kind: Metadata
releaseSeries:
- {major: 1, minor: 13, contract: v1beta2}
`

const metal3Namespace = `apiVersion: v1
kind: Namespace
metadata:
  name: capm3-system
`

// certManager has the objects of cert-manager without its kinds.
//
//go:embed cert-manager.yaml
var certManager []byte

// The image in Cluster API's source, with the name of the image in its releases, and how it is pulled.
var (
	sourceImage  = regexp.MustCompile(`image: gcr\.io/k8s-staging-cluster-api/(.*):main`)
	pullsAlways  = []byte("imagePullPolicy: Always")
	pullsMissing = []byte("imagePullPolicy: IfNotPresent")
)

// repository is a directory with the layout that clusterctl asks of local repositories.
type repository struct{ dir, kubectl string }

// addProviders adds all providers except Poolboot.
func (r repository) addProviders(ctx context.Context) ([]provider, error) {
	clusterAPI, err := findModule(ctx, "cluster-api", "sigs.k8s.io/cluster-api")
	if err != nil {
		return nil, err
	}
	metadata, err := os.ReadFile(filepath.Join(clusterAPI.Dir, "metadata.yaml"))
	if err != nil {
		return nil, err
	}
	var providers []provider
	for _, p := range []struct{ label, name, kind, folder string }{
		{"cluster-api", "cluster-api", "CoreProvider", "core"},
		{"bootstrap-kubeadm", "kubeadm", "BootstrapProvider", "bootstrap/kubeadm"},
		{"control-plane-kubeadm", "kubeadm", "ControlPlaneProvider", "controlplane/kubeadm"},
	} {
		components, err := exec.CommandContext(ctx, r.kubectl, "kustomize", filepath.Join(clusterAPI.Dir, p.folder, "config", "default")).Output()
		if err != nil {
			return nil, fmt.Errorf("kustomize the manifests of %s: %w", p.label, err)
		}
		components = sourceImage.ReplaceAll(components, []byte("image: registry.k8s.io/cluster-api/$1:"+clusterAPI.Version))
		components = bytes.ReplaceAll(components, pullsAlways, pullsMissing)
		url, err := r.add(p.label, clusterAPI.Version, "components.yaml", components, metadata)
		if err != nil {
			return nil, err
		}
		providers = append(providers, provider{p.name, p.kind, url})
	}
	metal3, err := join([]byte(metal3Namespace), sourcetree.Path("test", "world", "metal3", "crds"))
	if err != nil {
		return nil, err
	}
	url, err := r.add("infrastructure-metal3", metal3Version, "components.yaml", metal3, []byte(metal3Metadata))
	if err != nil {
		return nil, err
	}
	return append(providers, provider{"metal3", "InfrastructureProvider", url}), nil
}

// addCertManager returns clusterctl's settings of cert-manager.
func (r repository) addCertManager(ctx context.Context) (map[string]string, error) {
	module, err := findModule(ctx, "cert-manager", "github.com/cert-manager/cert-manager")
	if err != nil {
		return nil, err
	}
	objects, err := join(bytes.ReplaceAll(certManager, []byte("VERSION"), []byte(module.Version)), filepath.Join(module.Dir, "deploy", "crds"))
	if err != nil {
		return nil, err
	}
	url, err := r.add("cert-manager", module.Version, "cert-manager.yaml", objects, nil)
	return map[string]string{"url": url, "version": module.Version}, err
}

// add adds a version of a provider and returns the URL of its components.
func (r repository) add(label, version, name string, components, metadata []byte) (string, error) {
	dir := filepath.Join(r.dir, label, version)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for file, content := range map[string][]byte{name: components, "metadata.yaml": metadata} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			return "", err
		}
	}
	return fileURL(dir, name), nil
}

func fileURL(elements ...string) string { return "file://" + filepath.Join(elements...) }

// join returns a manifest with additional ones, the YAML files of a directory.
func join(manifest []byte, dir string) ([]byte, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("%s has no YAML files: %w", dir, err)
	}
	parts := [][]byte{manifest}
	for _, path := range slices.Sorted(slices.Values(paths)) {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		parts = append(parts, content)
	}
	return bytes.Join(parts, []byte("\n---\n")), nil
}

// module is a module in the module cache.
type module struct{ Dir, Version string }

// findModule finds, and downloads if necessary, the module from which a folder of hack/tools builds its programs.
func findModule(ctx context.Context, tool, path string) (found module, err error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	command.Dir = sourcetree.Path("hack", "tools", tool)
	output, err := command.Output()
	if err != nil {
		return found, fmt.Errorf("find module %s: %w: %s", path, err, output)
	}
	return found, json.Unmarshal(output, &found)
}
