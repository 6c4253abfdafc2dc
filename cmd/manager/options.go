package main

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/node"
)

// defaultNamespace is where config/ installs the manager and the config server.
const defaultNamespace = "poolboot-system"

// options are the manager's settings, one field a flag.
type options struct {
	leaderElect                                                                bool
	leaderElectLeaseDuration, leaderElectRenewDeadline, leaderElectRetryPeriod time.Duration

	namespace, watchFilter string
	syncPeriod             time.Duration

	webhookHost, webhookCertDir, healthAddr string
	webhookPort                             int

	configServerURL, configServerCAFile, overlayNamespace string
	syncedLabels                                          []string
	renderedConfigHistory                                 int
	tokenLife                                             time.Duration
	approveCertificates                                   bool

	kubeAPIQPS, clusterCacheClientQPS     float32
	kubeAPIBurst, clusterCacheClientBurst int

	clusterCacheConcurrency, poolbootConfigConcurrency, bootConcurrency   int
	nodeConcurrency, certificateConcurrency, machineConfigPoolConcurrency int
	enrollmentConcurrency                                                 int

	skipCRDMigrationPhases []string

	manager flags.ManagerOptions
	logs    *logs.Options
}

// addFlags registers the flags. Those that Cluster API's own managers have too have its names and its meaning.
func (o *options) addFlags(fs *pflag.FlagSet) {
	o.logs = logs.NewOptions()
	logsv1.AddFlags(o.logs, fs)
	flags.AddManagerOptions(fs, &o.manager)

	fs.BoolVar(&o.leaderElect, "leader-elect", false,
		"Let one manager of several work at a time. The lease is in --overlay-namespace.")
	fs.DurationVar(&o.leaderElectLeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"How long the others wait for a leader that does not renew its lease.")
	fs.DurationVar(&o.leaderElectRenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"How long the leader tries to renew its lease before it gives up and exits.")
	fs.DurationVar(&o.leaderElectRetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"How long to wait between two tries at the lease.")

	fs.StringVar(&o.namespace, "namespace", "",
		"Reconcile the objects of this namespace only; empty: of all namespaces.")
	fs.StringVar(&o.watchFilter, "watch-filter", "",
		fmt.Sprintf("Reconcile only objects whose label %s has this value; empty: all objects.", clusterv1.WatchLabel))
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"How often every watched object is reconciled although nothing changed.")

	fs.StringSliceVar(&o.skipCRDMigrationPhases, "skip-crd-migration-phases", nil,
		fmt.Sprintf("List of CRD migration phases to skip. Valid values are: %s, %s.", migrationPhases[0], migrationPhases[1]))

	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address the webhook server listens on; empty: every address.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port the webhook server listens on.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the webhook server's tls.crt and tls.key.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address that serves /healthz and /readyz.")

	fs.StringVar(&o.configServerURL, "config-server-url", "",
		"The config server's URL as hosts reach it, say https://poolboot.example.com:9444. Required.")
	fs.StringVar(&o.configServerCAFile, "config-server-ca-file", "",
		"File with the CA certificates (PEM, one or more) by which hosts trust the config server, or a directory of such files (*.crt); "+
			"read anew for every bootstrap Secret, so it may change. Empty: hosts use the certificates of their image.")
	fs.StringVar(&o.overlayNamespace, "overlay-namespace", defaultNamespace,
		"The config server's namespace: the machines' overlay Secrets are kept there.")
	fs.StringSliceVar(&o.syncedLabels, "additional-sync-machine-labels", nil,
		"Regular expressions of Machine labels that go on Nodes beside Cluster API's own prefixes. Set them as for Cluster API's core manager.")
	fs.IntVar(&o.renderedConfigHistory, "rendered-config-history", 5,
		"How many rendered configs of each pool to keep although nothing uses them any more: the newest of those.")

	fs.DurationVar(&o.tokenLife, "token-life", 24*time.Hour,
		"How long the token of a host that does not join lives once the host is provisioned or, if that is later, its token was rotated; 0: for ever.")

	fs.BoolVar(&o.approveCertificates, "approve-certificates", true,
		"Approve the certificates that kubelets of Poolboot's hosts request. Set it to false only where another approver in each workload cluster does so; "+
			"docs/security.md lists what that must check.")

	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 300,
		"Queries a second to the management cluster's API server, for each kind of object; a boot takes some ten for its PoolbootConfig.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 600, "Queries to the management cluster's API server in one burst, for each kind of object.")
	fs.Float32Var(&o.clusterCacheClientQPS, "clustercache-client-qps", 100,
		"Queries a second to one workload cluster's API server, for each kind of object; a boot takes three for its Node.")
	fs.IntVar(&o.clusterCacheClientBurst, "clustercache-client-burst", 200, "Queries to one workload cluster's API server in one burst, for each kind of object.")

	for _, c := range []struct {
		value   *int
		name    string
		objects string
	}{
		{&o.clusterCacheConcurrency, "clustercache-concurrency", "Clusters connected to"},
		{&o.poolbootConfigConcurrency, "poolbootconfig-concurrency", "PoolbootConfigs reconciled for each Cluster"},
		{&o.bootConcurrency, "boot-concurrency", "hosts prepared for each Cluster"},
		{&o.nodeConcurrency, "node-concurrency", "Nodes compared with their record for each Cluster"},
		{&o.certificateConcurrency, "certificate-concurrency", "certificate signing requests judged for each Cluster"},
		{&o.machineConfigPoolConcurrency, "machineconfigpool-concurrency", "MachineConfigPools rendered"},
		{&o.enrollmentConcurrency, "enrollment-concurrency", "enrollment tokens worked on"},
	} {
		fs.IntVar(c.value, c.name, 10, "Number of "+c.objects+" at the same time.")
	}
}

// validate checks what a flag's type can't and returns the compiled --additional-sync-machine-labels.
func (o *options) validate() ([]*regexp.Regexp, error) {
	u, err := url.Parse(o.configServerURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("--config-server-url=%q: set it to the https URL, without a path, at which hosts reach the config server", o.configServerURL)
	}
	o.configServerURL = strings.TrimRight(o.configServerURL, "/")
	if o.overlayNamespace == "" {
		return nil, fmt.Errorf("--overlay-namespace is empty: set it to the config server's namespace")
	}
	if o.renderedConfigHistory < 0 {
		return nil, fmt.Errorf("--rendered-config-history=%d: set it to 0 or more", o.renderedConfigHistory)
	}
	if o.tokenLife < 0 {
		return nil, fmt.Errorf("--token-life=%s: set it to 0 or more", o.tokenLife)
	}
	for _, phase := range o.skipCRDMigrationPhases {
		if !slices.Contains(migrationPhases, crdmigrator.Phase(phase)) {
			return nil, fmt.Errorf("--skip-crd-migration-phases=%s: no such phase: name %s or %s", phase, migrationPhases[0], migrationPhases[1])
		}
	}
	return node.CompileSyncedLabels(o.syncedLabels)
}
