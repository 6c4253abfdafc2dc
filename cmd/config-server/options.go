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
	agentDirectory     string
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
		"Path of a kubeconfig file for the management cluster. Defaults to $KUBECONFIG, or to the service account of the Pod.")
	fs.StringVar(&o.overlayNamespace, "overlay-namespace", os.Getenv("POD_NAMESPACE"),
		"Namespace of the config server, in which the manager keeps the overlay and assignment Secrets of machines. "+
			"Must have the same value as for the manager. Defaults to $POD_NAMESPACE.")
	fs.StringVar(&o.namespace, "namespace", "",
		"Namespace whose hosts are served. If empty, the hosts of all namespaces are served. Must have the same value as for the manager.")
	fs.StringVar(&o.watchFilter, "watch-filter", "", fmt.Sprintf(
		"Value of the label %s. Only PoolbootConfigs and Enrollments with this value are used. If empty, all are used. "+
			"Must have the same value as for the manager.", clusterv1.WatchLabel))
	fs.StringVar(&o.bindAddress, "bind-address", ":8443",
		"Address at which hosts are served over TLS.")
	fs.StringVar(&o.tlsCertDir, "tls-cert-dir", "/etc/poolboot/tls",
		"Directory with the files "+certificateFile+" and "+keyFile+". They are reloaded when they change.")
	fs.StringVar(&o.externalURL, "external-url", "",
		"URL at which hosts reach this server (https://host[:port][/prefix]). Must have the same value as for the manager. Required.")
	fs.StringVar(&o.agentDirectory, "agent-directory", "",
		"Directory with the files poolboot-agent-<architecture>, the agents that hosts download. They are read at the start. "+
			"Must have the same files as for the manager. If empty, there are none.")
	fs.StringVar(&o.healthBindAddress, "health-bind-address", ":9440",
		"Address at which /healthz and /readyz are served over HTTP. Set it to \"0\" to disable them.")
	fs.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8080",
		"Address at which /metrics is served over HTTP. Set it to \"0\" to disable it.")
	fs.StringVar(&o.profilerAddress, "profiler-address", "",
		"Loopback address at which /debug/pprof is served over HTTP, for example localhost:6060. If empty, it is disabled.")
	fs.DurationVar(&o.shutdownDelay, "shutdown-delay", 5*time.Second,
		"How long new connections are accepted after SIGTERM, while /readyz already fails. "+
			"Set it to the time that load balancers need to detect this.")
	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 100,
		"Maximum queries per second to the API server of the management cluster. The boot of a host needs two.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 200,
		"Maximum number of queries to the API server of the management cluster in one burst.")
	logsv1.AddFlags(o.logs, fs)
}

// validate returns an error that names the invalid flag and how to correct it.
func (o *options) validate() error {
	if o.overlayNamespace == "" {
		return fmt.Errorf("--overlay-namespace is empty: set it to the namespace of the overlay Secrets, or set POD_NAMESPACE")
	}
	if problems := validation.IsValidLabelValue(o.watchFilter); len(problems) > 0 {
		return fmt.Errorf("--watch-filter=%q is not a valid label value: %s", o.watchFilter, strings.Join(problems, "; "))
	}
	u, err := url.Parse(o.externalURL)
	if err != nil {
		return fmt.Errorf("--external-url: %w", err)
	}
	if u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("--external-url=%q: set it to https://host[:port][/prefix]", u.Redacted())
	}
	if host, _, err := net.SplitHostPort(o.profilerAddress); o.profilerAddress != "" && (err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback()) {
		return fmt.Errorf("--profiler-address=%q: set it to localhost:port, and use kubectl port-forward to reach it", o.profilerAddress)
	}
	return nil
}

func (o *options) certificate() (crt, key string) {
	return filepath.Join(o.tlsCertDir, certificateFile), filepath.Join(o.tlsCertDir, keyFile)
}
