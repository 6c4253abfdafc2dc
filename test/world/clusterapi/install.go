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

	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/config"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

const clusterAPIModule = "sigs.k8s.io/cluster-api"

// Install installs the CustomResourceDefinitions of Cluster API (with the generic control plane and bootstrap provider
// of its own tests) and Poolboot, and waits until the API server serves them. It updates existing definitions.
func Install(ctx context.Context, cfg *rest.Config) error {
	clusterAPI, err := clusterAPIDir(ctx)
	if err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join(clusterAPI, "core", "config", "crd", "bases")},
		CRDs: append(config.CRDs(), builder.GenericControlPlaneCRD.DeepCopy(), builder.GenericBootstrapConfigCRD.DeepCopy(),
			builder.GenericBootstrapConfigTemplateCRD.DeepCopy()),
		ErrorIfPathMissing: true,
		MaxTime:            time.Minute,
	})
	return err
}

// InstallMetal3 installs the CustomResourceDefinitions of Metal3 in the same way.
func InstallMetal3(cfg *rest.Config) error {
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		Paths: []string{sourcetree.Path("test", "world", "metal3", "crds")}, ErrorIfPathMissing: true, MaxTime: time.Minute,
	})
	return err
}

// clusterAPIDir returns the directory of Cluster API's module.
func clusterAPIDir(ctx context.Context) (string, error) {
	command := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", clusterAPIModule)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s (run inside the repository, with Go on the PATH): %w", clusterAPIModule, err)
	}
	dir := strings.TrimSpace(string(out))
	if dir == "" {
		return "", fmt.Errorf("module %s is not downloaded: run \"go mod download\"", clusterAPIModule)
	}
	return dir, nil
}
