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

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
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
	return installProviders(cfg, filepath.Join(clusterAPI, "core", "config", "crd", "bases"), append(config.CRDs(), builder.GenericControlPlaneCRD.DeepCopy(),
		builder.GenericBootstrapConfigCRD.DeepCopy(), builder.GenericBootstrapConfigTemplateCRD.DeepCopy())...)
}

// installProviders installs CustomResourceDefinitions with the label that clusterctl init gives to those of providers.
// The Bare Metal Operator is none.
func installProviders(cfg *rest.Config, folder string, others ...*apiextensionsv1.CustomResourceDefinition) error {
	options := envtest.CRDInstallOptions{Paths: []string{folder}, CRDs: others, ErrorIfPathMissing: true, MaxTime: time.Minute}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return err
	}
	options.Paths = nil
	for _, crd := range options.CRDs {
		if crd.Spec.Group != bmov1alpha1.GroupVersion.Group {
			metav1.SetMetaDataLabel(&crd.ObjectMeta, clusterctlv1.ClusterctlLabel, "")
		}
	}
	_, err := envtest.InstallCRDs(cfg, options)
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
	return installProviders(cfg, sourcetree.Path("test", "world", "metal3", "crds"))
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
