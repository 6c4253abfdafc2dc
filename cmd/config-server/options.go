package main

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Names of the files in --tls-cert-dir, as in a Secret of type kubernetes.io/tls.
const (
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
)

// options are the settings of the config server. Each is a flag.
type options struct {
	kubeconfig         string
	overlayNamespace   string
	namespace          string
	watchFilter        string
	bindAddress        string
	tlsCertDir         string
	externalURL        string
	healthBindAddress  string
	metricsBindAddress string
	profilerAddress    string
	shutdownDelay      time.Duration
	kubeAPIQPS         float32
	kubeAPIBurst       int
	logs               *logs.Options
}

func newOptions() *options { return &options{logs: logs.NewOptions()} }

func (o *options) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Kubeconfig of the management cluster. Without it: the Pod's service account, or $KUBECONFIG.")
	fs.StringVar(&o.overlayNamespace, "overlay-namespace", os.Getenv("POD_NAMESPACE"),
		"The config server's own namespace, in which the manager keeps the machines' overlay Secrets; the same as the manager's. Defaults to $POD_NAMESPACE.")
	fs.StringVar(&o.namespace, "namespace", "",
		"Serve the hosts of this namespace only; empty: of all namespaces. The same as the manager's.")
	fs.StringVar(&o.watchFilter, "watch-filter", "",
		fmt.Sprintf("Serve only by PoolbootConfigs and Enrollments whose label %s has this value; empty: by all. The same as the manager's.", clusterv1.WatchLabel))
	fs.StringVar(&o.bindAddress, "bind-address", ":8443",
		"Address on which hosts are served, over TLS.")
	fs.StringVar(&o.tlsCertDir, "tls-cert-dir", "/etc/poolboot/tls",
		"Directory with "+certificateFile+" and "+keyFile+". Changes are taken up without a restart.")
	fs.StringVar(&o.externalURL, "external-url", "",
		"The URL by which hosts reach this server (https://host[:port][/prefix]); the same as the manager's. Required.")
	fs.StringVar(&o.healthBindAddress, "health-bind-address", ":9440",
		"Address of /healthz and /readyz, over plain HTTP. \"0\" turns it off.")
	fs.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8080",
		"Address of /metrics, over plain HTTP. \"0\" turns it off.")
	fs.StringVar(&o.profilerAddress, "profiler-address", "",
		"Address of /debug/pprof on this machine only, say localhost:6060, over plain HTTP. Without it: off.")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay", 5*time.Second,
		"How long hosts are still taken after SIGTERM, when /readyz says no already: as long as a load balancer takes to notice.")
	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100,
		"Requests per second to the management cluster's API server; one host's boot takes two.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200,
		"Requests to the management cluster's API server that may go out in one burst.")
	logsv1.AddFlags(o.logs, fs)
}

// validate returns an error that names the invalid flag and how to correct it.
func (o *options) validate() error {
	if o.overlayNamespace == "" {
		return fmt.Errorf("--overlay-namespace is empty: name the namespace of the overlay Secrets, or set POD_NAMESPACE")
	}
	if problems := validation.IsValidLabelValue(o.watchFilter); len(problems) > 0 {
		return fmt.Errorf("--watch-filter=%q: it must be a label's value: %s", o.watchFilter, strings.Join(problems, "; "))
	}
	u, err := url.Parse(o.externalURL)
	if err != nil {
		return fmt.Errorf("--external-url: %w", err)
	}
	if u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("--external-url %q: write https://host[:port][/prefix]", u.Redacted())
	}
	if host, _, err := net.SplitHostPort(o.profilerAddress); o.profilerAddress != "" && (err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback()) {
		return fmt.Errorf("--profiler-address %q: write localhost:port; use kubectl port-forward to reach it", o.profilerAddress)
	}
	return nil
}

func (o *options) certificate() (crt, key string) {
	return filepath.Join(o.tlsCertDir, certificateFile), filepath.Join(o.tlsCertDir, keyFile)
}
