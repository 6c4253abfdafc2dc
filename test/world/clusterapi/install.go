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

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// InstallGenericControlPlane installs only the generic control plane of Cluster API's tests, with the right for an
// installed Cluster API to manage it.
func InstallGenericControlPlane(ctx context.Context, cfg *rest.Config) error {
	c, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return err
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "generic-control-plane", Labels: map[string]string{clusterv1.GroupVersion.Group + "/aggregate-to-manager": "true"}},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{builder.ControlPlaneGroupVersion.Group}, Resources: []string{rbacv1.ResourceAll},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"},
		}},
	}
	if err := client.IgnoreAlreadyExists(c.Create(ctx, role)); err != nil {
		return err
	}
	_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{builder.GenericControlPlaneCRD.DeepCopy()}, MaxTime: time.Minute,
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
