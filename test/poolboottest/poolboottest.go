// Package poolboottest runs Poolboot in the envtest suites of other Cluster API projects. It needs no files of
// Poolboot's repository: the CustomResourceDefinitions and webhooks are embedded. docs/dev/envtest.md shows a whole
// suite.
package poolboottest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/config"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/admission"
)

// DefaultServerURL is the default of Options.ServerURL.
const DefaultServerURL = "https://poolboot.example.com:9444"

// Options are the settings of Poolboot in a suite. The zero value is complete.
type Options struct {
	// ServerURL is the https URL, without a path, at which hosts reach the config server. It becomes part of the
	// pointer in each data Secret. The suite runs no config server, so nothing has to answer there. The default is
	// DefaultServerURL.
	ServerURL string

	// ServerCA is the CA certificate (PEM) by which hosts trust the config server. It becomes part of the pointer. The
	// default is none.
	ServerCA []byte

	// OverlayNamespace is where Poolboot stores the overlay Secrets of hosts. It is created if it does not exist. The
	// default is poolboot-system.
	OverlayNamespace string
}

// SetupWithManager installs Poolboot's CustomResourceDefinitions and webhooks into a running environment and registers
// Poolboot's reconcilers with a manager that has not started. The CustomResourceDefinitions of Cluster API must be
// installed; those of Metal3 can follow at any time.
//
// When SetupWithManager returns, the API server accepts Poolboot's kinds and calls the webhooks, which are served until
// ctx is done. The reconcilers start with the manager. They depend on none of its options: Poolboot has its own scheme,
// cache, client and webhook server, with the settings that it has in production. A later call, with the manager of
// another test, replaces the webhooks.
func SetupWithManager(ctx context.Context, env *envtest.Environment, mgr ctrl.Manager, options Options) error {
	if env.Config == nil {
		return errors.New("poolboottest: the environment has no config: call its Start first")
	}
	if _, err := mgr.GetRESTMapper().RESTMapping(clusterv1.GroupVersion.WithKind("Machine").GroupKind(), clusterv1.GroupVersion.Version); err != nil {
		return fmt.Errorf("poolboottest: Cluster API's CustomResourceDefinitions are not installed: "+
			"add their folder to the environment's CRDDirectoryPaths: %w", err)
	}
	if _, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		CRDs: config.CRDs(), MaxTime: cmp.Or(env.CRDInstallOptions.MaxTime, time.Minute), PollInterval: env.CRDInstallOptions.PollInterval,
	}); err != nil {
		return fmt.Errorf("poolboottest: CustomResourceDefinitions: %w", err)
	}
	own, err := newOwnManager(mgr)
	if err != nil {
		return fmt.Errorf("poolboottest: %w", err)
	}
	if err := serveWebhooks(ctx, env, own); err != nil {
		return fmt.Errorf("poolboottest: webhooks: %w", err)
	}
	if err := setupReconcilers(ctx, env, own, options); err != nil {
		return fmt.Errorf("poolboottest: %w", err)
	}
	return nil
}

// setupReconcilers creates the namespace of overlays and registers the reconcilers.
func setupReconcilers(ctx context.Context, env *envtest.Environment, mgr *ownManager, options Options) error {
	settings := controllers.DefaultOptions()
	settings.ServerURL = cmp.Or(options.ServerURL, DefaultServerURL)
	settings.ServerCA = func() ([]byte, error) { return options.ServerCA, nil }
	settings.OverlayNamespace = cmp.Or(options.OverlayNamespace, settings.OverlayNamespace)
	settings.StopsConnections = true
	settings.Metrics = prometheus.NewRegistry() // a process can have several managers
	for _, phase := range controllers.MigrationPhases {
		settings.SkipCRDMigrationPhases = append(settings.SkipCRDMigrationPhases, string(phase)) // nothing is stored yet
	}
	admin, err := client.New(env.Config, client.Options{})
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: settings.OverlayNamespace}}
	if err := admin.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("namespace for overlays: %w", err)
	}
	return controllers.SetupReconcilers(ctx, mgr, &settings)
}

// serveWebhooks serves the webhooks and has the API server call them.
func serveWebhooks(ctx context.Context, env *envtest.Environment, mgr *ownManager) (err error) {
	webhooks := config.Webhooks()
	webhooks.Name = "poolboot-" + webhooks.Name // as config/default names it: other projects use the name without prefix
	install := envtest.WebhookInstallOptions{
		ValidatingWebhooks:           []*admissionregistrationv1.ValidatingWebhookConfiguration{webhooks},
		LocalServingHost:             env.WebhookInstallOptions.LocalServingHost,
		LocalServingHostExternalName: env.WebhookInstallOptions.LocalServingHostExternalName,
		MaxTime:                      env.WebhookInstallOptions.MaxTime,
		PollInterval:                 env.WebhookInstallOptions.PollInterval,
	}
	if err := install.PrepWithoutInstalling(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, install.Cleanup()) }()
	if mgr.webhooks, err = newWebhookServer(&install); err != nil {
		return err
	}
	if err := admission.SetupWithManager(mgr); err != nil {
		return err
	}
	if err := start(ctx, mgr.webhooks); err != nil {
		return err
	}
	return install.Install(env.Config)
}
