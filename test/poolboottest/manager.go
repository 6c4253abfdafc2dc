package poolboottest

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/setup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers"
)

// ownManager is the manager that Poolboot's reconcilers see: it runs them with the suite's manager, and gives them a
// scheme, a cache, clients and a webhook server of their own.
type ownManager struct {
	cluster.Cluster // has precedence over the same methods of suite, which are embedded one level deeper
	suite

	webhooks webhook.Server
}

type suite struct{ ctrl.Manager }

// newOwnManager adds Poolboot's cache to the suite's manager.
func newOwnManager(mgr ctrl.Manager) (*ownManager, error) {
	scheme := runtime.NewScheme()
	if err := controllers.AddToScheme(scheme); err != nil {
		return nil, err
	}
	own, err := cluster.New(mgr.GetConfig(), func(options *cluster.Options) {
		options.Scheme = scheme
		options.Logger = mgr.GetLogger()
		options.Cache = setup.ManagerCacheOptions(scheme, informerName(), "", 10*time.Minute)
		options.Client = setup.ManagerClientOptions()
	})
	if err != nil {
		return nil, err
	}
	return &ownManager{Cluster: own, suite: suite{mgr}}, mgr.Add(own)
}

// Start starts the suite's manager.
func (m *ownManager) Start(ctx context.Context) error { return m.suite.Start(ctx) }

// GetWebhookServer returns Poolboot's webhook server.
func (m *ownManager) GetWebhookServer() webhook.Server { return m.webhooks }

// GetControllerOptions returns those of the suite's manager, and permits names that other controllers of the process
// have: Cluster API's cluster cache, for one, has the same name in each provider.
func (m *ownManager) GetControllerOptions() ctrlconfig.Controller {
	options := m.suite.GetControllerOptions()
	options.SkipNameValidation = ptr.To(true)
	return options
}

// newWebhookServer returns a server with the certificate that envtest issued.
func newWebhookServer(install *envtest.WebhookInstallOptions) (webhook.Server, error) {
	dir := install.LocalServingCertDir
	certificate, err := tls.LoadX509KeyPair(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, err
	}
	return webhook.NewServer(webhook.Options{
		Host: install.LocalServingHost, Port: install.LocalServingPort,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
		}},
	}), nil
}

// start starts a webhook server, which runs until ctx is done, and returns when it serves.
func start(ctx context.Context, server webhook.Server) error {
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	started := server.StartedChecker()
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		select {
		case err := <-ended:
			return false, fmt.Errorf("the webhook server ended: %w", err)
		default:
			return started(nil) == nil, nil
		}
	})
}

var managers atomic.Int32

// informerName returns a new name: client-go accepts each name of informers once in a process.
func informerName() string { return fmt.Sprintf("poolboot-%d", managers.Add(1)) }
