package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
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

// disabled is the bind address that turns a listener off, as in controller-runtime.
const disabled = "0"

// process is the config server with all its parts.
type process struct {
	options       *options
	objects       cache.Cache
	assigned      cache.Cache                  // the assignments
	synced        [5]toolscache.InformerSynced // report whether the sources have all objects that existed at the start
	certificate   *certwatcher.CertWatcher
	metrics       metricsserver.Server
	serverMetrics *server.Metrics
	handler       *server.Server
	serving       atomic.Bool
}

// run serves until ctx ends, and returns after the requests in progress are answered.
func run(ctx context.Context, o *options) error {
	p, err := newProcess(ctx, o)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

func newProcess(ctx context.Context, o *options) (*process, error) {
	p := &process{options: o}
	config, err := restConfig(o)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	sources := newSources()
	if p.objects, p.assigned, err = newCaches(config, scheme, o, sources); err != nil {
		return nil, err
	}
	writer, err := client.New(config, client.Options{Scheme: scheme, Mapper: newMapper(), FieldOwner: fieldOwner})
	if err != nil {
		return nil, err
	}
	live, err := newLive(config, scheme, o)
	if err != nil {
		return nil, err
	}
	if p.certificate, err = certwatcher.New(o.certificate()); err != nil {
		return nil, fmt.Errorf("--tls-cert-dir: %w", err)
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	if p.metrics, err = metricsserver.NewServer(metricsserver.Options{BindAddress: o.metricsBindAddress}, config, httpClient); err != nil {
		return nil, fmt.Errorf("--metrics-bind-address: %w", err)
	}
	var programs *server.Programs
	if o.agentDirectory != "" {
		if programs, err = readPrograms(o.agentDirectory); err != nil {
			return nil, fmt.Errorf("--agent-directory: %w", err)
		}
	}
	p.serverMetrics = server.NewMetrics(metrics.Registry)
	external, err := url.Parse(o.externalURL)
	if err != nil {
		return nil, fmt.Errorf("--external-url: %w", err)
	}
	p.handler = server.New(server.Options{
		ExternalURL: external,
		Sources: server.Sources{
			Records: sources.records, Enrollments: sources.enrollments, Overlays: sources.overlays, Assignments: sources.assignments,
		},
		Programs:   programs,
		Admissions: newAdmissionRecorder(writer),
		Rendered:   sources.rendered,
		Boots:      bootRecorder{writer},
		Live:       live,
		Metrics:    p.serverMetrics,
		Log:        klog.Background().WithName("access"),
		Ready:      p.ready,
	})
	p.synced, err = sources.follow(ctx, p.objects, p.assigned, p.handler, p.serverMetrics)
	return p, err
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

// ready returns why hosts are not served yet, or no longer. The caches must be in sync, and hosts must accept the
// certificate.
func (p *process) ready() error {
	if !p.serving.Load() {
		return errors.New("the caches are not in sync, or the server is shutting down")
	}
	certificate, err := p.certificate.GetCertificate(nil)
	if err != nil {
		return err
	}
	if now := time.Now(); now.Before(certificate.Leaf.NotBefore) || now.After(certificate.Leaf.NotAfter) {
		return fmt.Errorf("the certificate in --tls-cert-dir is valid from %s to %s, which does not include the current time: renew it, or correct the clock",
			certificate.Leaf.NotBefore.Format(time.RFC3339), certificate.Leaf.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// run starts all parts. It starts to serve hosts last and stops that first, because the answers need the caches and the
// certificate.
func (p *process) run(ctx context.Context) error {
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	parts, base := errgroup.WithContext(base)
	parts.Go(func() error { return p.objects.Start(base) })
	parts.Go(func() error { return p.assigned.Start(base) })
	parts.Go(func() error { return p.certificate.Start(base) })
	if p.metrics != nil {
		parts.Go(func() error { return p.metrics.Start(base) })
	}
	if p.options.profilerAddress != "" {
		parts.Go(func() error {
			return p.serve(base, "profiler", "--profiler-address", p.options.profilerAddress, newPprofHandler())
		})
	}
	if p.options.healthBindAddress != disabled {
		parts.Go(func() error { return p.serveHealth(base) })
	}
	parts.Go(func() error {
		defer stop()
		serving, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(base, cancel)() // if a part fails, all parts stop
		return p.serveHosts(serving)
	})
	if err := parts.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

func (p *process) serveHosts(ctx context.Context) error {
	if !p.objects.WaitForCacheSync(ctx) || !p.assigned.WaitForCacheSync(ctx) || !toolscache.WaitForCacheSync(ctx.Done(), p.synced[:]...) {
		return ctx.Err()
	}
	listener, err := net.Listen("tcp", p.options.bindAddress)
	if err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	p.serving.Store(true)
	hosts := &manager.Server{
		Name:            "hosts",
		Server:          server.NewHTTPServer(p.handler, klog.NewStandardLogger("INFO")),
		Listener:        tls.NewListener(server.NewListener(listener, server.DefaultLimits, p.serverMetrics), server.TLSConfig(p.certificate.GetCertificate)),
		ShutdownTimeout: ptr.To(shutdownTimeout),
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { p.drain(hosts.Server, cancel) })()
	err = hosts.Start(serving)
	p.handler.WaitForWrites()
	return err
}

// drain directs hosts to other replicas: the server is no longer ready, and closes each connection after its answer. It
// accepts new connections until all load balancers have noticed, and then calls stop.
func (p *process) drain(hosts *http.Server, stop func()) {
	p.serving.Store(false)
	hosts.SetKeepAlivesEnabled(false)
	time.AfterFunc(p.options.shutdownDelay, stop)
}

func (p *process) serveHealth(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("/healthz", healthz.CheckHandler{Checker: healthz.Ping})
	mux.Handle("/readyz", healthz.CheckHandler{Checker: func(*http.Request) error { return p.ready() }})
	return p.serve(ctx, "health", "--health-bind-address", p.options.healthBindAddress, mux)
}

// newPprofHandler returns a handler with the profiles of net/http/pprof.
func newPprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// serve serves plain HTTP to users and probes, at the address of a flag.
func (p *process) serve(ctx context.Context, name, flag, address string, handler http.Handler) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	plain := &manager.Server{
		Name:            name,
		Server:          server.NewHTTPServer(handler, klog.NewStandardLogger("INFO")),
		Listener:        listener,
		ShutdownTimeout: ptr.To(shutdownTimeout),
	}
	return plain.Start(ctx)
}
