package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// shutdownTimeout is the maximum time for the requests in progress when the server stops. It is longer than a request
// is held, and shorter than the default grace period of a Pod.
const shutdownTimeout = 20 * time.Second

// fieldOwner is the field manager of the config server, and the product in its user agent.
const fieldOwner = "poolboot-config-server"

// hosts is the server of hosts, as a part of a manager of controller-runtime. That starts it last and stops it first,
// because the answers need the caches.
type hosts struct {
	options     *options
	assigned    cache.Cache                  // the assignments
	synced      [5]toolscache.InformerSynced // report whether the sources have all objects that existed at the start
	certificate *certwatcher.CertWatcher
	external    *url.URL
	metrics     *server.Metrics
	handler     *server.Server
	serving     atomic.Bool
}

// run serves until ctx ends, and returns after the requests in progress are answered.
func run(ctx context.Context, o *options) error {
	config, err := restConfig(o)
	if err != nil {
		return fmt.Errorf("--kubeconfig: %w", err)
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	sources := newSources()
	objects, assignments, err := cacheOptions(scheme, o, sources)
	if err != nil {
		return err
	}
	h, err := newHosts(config, scheme, o, sources)
	if err != nil {
		return err
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme:                  scheme,
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return newMapper(), nil },
		Cache:                   objects,
		Metrics:                 metricsserver.Options{BindAddress: o.metricsBindAddress},
		HealthProbeBindAddress:  o.healthBindAddress,
		PprofBindAddress:        o.profilerAddress,
		GracefulShutdownTimeout: ptr.To(time.Duration(-1)), // serve has its own
	})
	if err != nil {
		return err
	}
	if h.assigned, err = cache.New(config, assignments); err != nil {
		return err
	}
	if h.synced, err = sources.follow(ctx, mgr.GetCache(), h.assigned, h.handler, h.metrics); err != nil {
		return err
	}
	if err := errors.Join(mgr.Add(ownCache{h.assigned}), mgr.Add(h.certificate), mgr.Add(manager.RunnableFunc(h.serve)),
		mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("hosts", h.probe)); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// ownCache has the manager start and stop a cache with its own one.
type ownCache struct{ cache.Cache }

// GetCache returns the cache.
func (c ownCache) GetCache() cache.Cache { return c.Cache }

func newHosts(config *rest.Config, scheme *runtime.Scheme, o *options, sources *sources) (*hosts, error) {
	writer, err := client.New(config, client.Options{Scheme: scheme, Mapper: newMapper(), FieldOwner: fieldOwner})
	if err != nil {
		return nil, err
	}
	live, err := newLive(config, scheme, o)
	if err != nil {
		return nil, err
	}
	h := &hosts{options: o, metrics: server.NewMetrics(metrics.Registry)}
	if h.certificate, err = certwatcher.New(o.certificate()); err != nil {
		return nil, fmt.Errorf("--tls-cert-dir: %w", err)
	}
	var programs *server.Programs
	if o.agentDirectory != "" {
		if programs, err = readPrograms(o.agentDirectory); err != nil {
			return nil, fmt.Errorf("--agent-directory: %w", err)
		}
	}
	if h.external, err = url.Parse(o.externalURL); err != nil {
		return nil, fmt.Errorf("--external-url: %w", err)
	}
	h.handler = server.New(server.Options{
		ExternalURL: h.external,
		Sources: server.Sources{
			Records: sources.records, Enrollments: sources.enrollments, Overlays: sources.overlays, Assignments: sources.assignments,
		},
		Programs:   programs,
		Admissions: newAdmissionRecorder(writer),
		Rendered:   sources.rendered,
		Boots:      bootRecorder{writer},
		Live:       live,
		Metrics:    h.metrics,
		Log:        klog.Background().WithName("access"),
		Ready:      h.ready,
	})
	return h, nil
}

func restConfig(o *options) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = o.kubeAPIQPS, o.kubeAPIBurst
	config.UserAgent = fieldOwner + "/" + version.Get().GitVersion
	return config, nil
}

// probe logs why hosts are not served: neither the answer to a probe nor controller-runtime's log has it.
func (h *hosts) probe(*http.Request) error {
	err := h.ready()
	if err != nil {
		klog.InfoS("Not ready", "reason", err)
	}
	return err
}

// ready returns why hosts are not served yet, or no longer. The caches must be in sync, and hosts must accept the
// certificate.
func (h *hosts) ready() error {
	if !h.serving.Load() {
		return errors.New("the caches are not in sync, or the server is shutting down")
	}
	certificate, err := h.certificate.GetCertificate(nil)
	if err != nil {
		return err
	}
	if now := time.Now(); now.Before(certificate.Leaf.NotBefore) || now.After(certificate.Leaf.NotAfter) {
		return fmt.Errorf("the certificate in --tls-cert-dir is valid from %s to %s, which does not include the current time: renew it, or correct the clock",
			certificate.Leaf.NotBefore.Format(time.RFC3339), certificate.Leaf.NotAfter.Format(time.RFC3339))
	}
	if err := certificate.Leaf.VerifyHostname(h.external.Hostname()); err != nil {
		return fmt.Errorf("hosts that send requests to %s reject the certificate in --tls-cert-dir: %w. "+
			"Add the host to the Certificate; with clusterctl, POOLBOOT_CONFIG_SERVER_IP is for an IP address", h.external, err)
	}
	return nil
}

// serve serves hosts until ctx ends. Then the server is no longer ready, and closes each connection after its answer,
// so that hosts go to other replicas. It accepts new connections until all load balancers have noticed.
func (h *hosts) serve(ctx context.Context) error {
	if !h.assigned.WaitForCacheSync(ctx) || !toolscache.WaitForCacheSync(ctx.Done(), h.synced[:]...) {
		return ctx.Err()
	}
	listener, err := net.Listen("tcp", h.options.bindAddress)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	h.serving.Store(true)
	hosts := &manager.Server{
		Name:            "hosts",
		Server:          server.NewHTTPServer(h.handler, klog.NewStandardLogger("INFO")),
		Listener:        tls.NewListener(server.NewListener(listener, server.DefaultLimits, h.metrics), server.TLSConfig(h.certificate.GetCertificate)),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		h.serving.Store(false)
		hosts.Server.SetKeepAlivesEnabled(false)
		time.AfterFunc(h.options.shutdownDelay, stop)
	})()
	err = hosts.Start(serving)
	h.handler.WaitForWrites()
	return err
}
