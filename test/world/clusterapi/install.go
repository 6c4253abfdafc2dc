// Package clusterapi runs the real Cluster API core, reconcilers and webhooks, in the test's process with a control
// plane of package controlplane, and installs the CRDs that Poolboot uses.
package clusterapi

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	poolbootModule   = "github.com/poolboot/cluster-api-bootstrap-provider-poolboot"
	clusterAPIModule = "sigs.k8s.io/cluster-api"
)

// Install installs the CustomResourceDefinitions of Cluster API (with the generic control plane and bootstrap provider
// of its own tests) and Poolboot, and waits until the API server serves them. It updates existing definitions.
func Install(ctx context.Context, cfg *rest.Config) error {
	poolboot, err := moduleDir(ctx, poolbootModule)
	if err != nil {
		return err
	}
	clusterAPI, err := moduleDir(ctx, clusterAPIModule)
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		Paths: []string{
			filepath.Join(clusterAPI, "core", "config", "crd", "bases"),
			filepath.Join(poolboot, "config", "crd", "bases"),
		},
		CRDs: []*apiextensionsv1.CustomResourceDefinition{
			builder.GenericControlPlaneCRD.DeepCopy(),
			builder.GenericBootstrapConfigCRD.DeepCopy(),
			builder.GenericBootstrapConfigTemplateCRD.DeepCopy(),
		},
		ErrorIfPathMissing: true,
		MaxTime:            time.Minute,
	})
	return err
}

// InstallMetal3 installs the CustomResourceDefinitions of Metal3 in the same way.
func InstallMetal3(ctx context.Context, cfg *rest.Config) error {
	poolboot, err := moduleDir(ctx, poolbootModule)
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(poolboot, "test", "world", "metal3", "crds")}, ErrorIfPathMissing: true, MaxTime: time.Minute,
	})
	return err
}

// moduleDir returns the directory of this module or of a module that it requires.
func moduleDir(ctx context.Context, module string) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", module)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s (run inside the repository, with Go on the PATH): %w", module, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("module %s is not downloaded: run \"go mod download\"", module)
	}
	return dir, nil
}
