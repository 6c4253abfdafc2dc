package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/crdmigrator"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers"
)

// options are the values of the manager's flags.
type options struct {
	leaderElect                                                                bool
	leaderElectLeaseDuration, leaderElectRenewDeadline, leaderElectRetryPeriod time.Duration

	syncPeriod time.Duration

	webhookHost, webhookCertDir, healthAddr string
	webhookPort                             int

	configServerCAFile string
	syncedLabels       []string

	kubeAPIQPS   float32
	kubeAPIBurst int

	reconcilers controllers.Options
	manager     flags.ManagerOptions
	logs        *logs.Options
}

// addFlags registers the flags. Flags that Cluster API's own managers also have, have the same names and meanings.
func (o *options) addFlags(fs *pflag.FlagSet) {
	o.reconcilers = controllers.DefaultOptions()
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

	fs.StringVar(&o.reconcilers.Namespace, "namespace", "",
		"Reconcile the objects of this namespace only; empty: of all namespaces.")
	fs.StringVar(&o.reconcilers.WatchFilterValue, "watch-filter", "",
		fmt.Sprintf("Reconcile only objects whose label %s has this value; empty: all objects.", clusterv1.WatchLabel))
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"How often every watched object is reconciled although nothing changed.")

	fs.StringSliceVar(&o.reconcilers.SkipCRDMigrationPhases, "skip-crd-migration-phases", nil,
		fmt.Sprintf("List of CRD migration phases to skip. Valid values are: %s, %s.", controllers.MigrationPhases[0], controllers.MigrationPhases[1]))

	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address the webhook server listens on; empty: every address.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port the webhook server listens on.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the webhook server's tls.crt and tls.key.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address that serves /healthz and /readyz.")

	fs.StringVar(&o.reconcilers.ServerURL, "config-server-url", "",
		"The config server's URL as hosts reach it, say https://poolboot.example.com:9444. Required.")
	fs.StringVar(&o.configServerCAFile, "config-server-ca-file", "",
		"File with the CA certificates (PEM, one or more) by which hosts trust the config server, or a directory of such files (*.crt); "+
			"read anew for every bootstrap Secret, so it may change. Empty: hosts use the certificates of their image.")
	fs.StringVar(&o.reconcilers.OverlayNamespace, "overlay-namespace", o.reconcilers.OverlayNamespace,
		"The config server's namespace: the machines' overlay Secrets are kept there.")
	fs.StringSliceVar(&o.syncedLabels, "additional-sync-machine-labels", nil,
		"Regular expressions of Machine labels that go on Nodes beside Cluster API's own prefixes. Set them as for Cluster API's core manager.")
	fs.IntVar(&o.reconcilers.RenderedHistory, "rendered-config-history", o.reconcilers.RenderedHistory,
		"How many rendered configs of each pool to keep although nothing uses them any more: the newest of those.")

	fs.DurationVar(&o.reconcilers.TokenLife, "token-life", o.reconcilers.TokenLife,
		"How long the token of a host that does not join lives once the host is provisioned or, if that is later, its token was rotated; 0: for ever.")

	fs.BoolVar(&o.reconcilers.ApproveCertificates, "approve-certificates", o.reconcilers.ApproveCertificates,
		"Approve the certificates that kubelets of Poolboot's hosts request. Set it to false only where another approver in each workload cluster does so; "+
			"docs/security.md lists what that must check.")

	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 300,
		"Queries a second to the management cluster's API server, for each kind of object; a boot takes some ten for its PoolbootConfig.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 600, "Queries to the management cluster's API server in one burst, for each kind of object.")
	fs.Float32Var(&o.reconcilers.ClusterCacheQPS, "clustercache-client-qps", o.reconcilers.ClusterCacheQPS,
		"Queries a second to one workload cluster's API server, for each kind of object; a boot takes three for its Node.")
	fs.IntVar(&o.reconcilers.ClusterCacheBurst, "clustercache-client-burst", o.reconcilers.ClusterCacheBurst, "Queries to one workload cluster's API server in one burst, for each kind of object.")

	for _, c := range []struct {
		value   *int
		name    string
		objects string
	}{
		{&o.reconcilers.Concurrency.ClusterCache, "clustercache-concurrency", "Clusters connected to"},
		{&o.reconcilers.Concurrency.PoolbootConfig, "poolbootconfig-concurrency", "PoolbootConfigs reconciled for each Cluster"},
		{&o.reconcilers.Concurrency.Boot, "boot-concurrency", "hosts prepared for each Cluster"},
		{&o.reconcilers.Concurrency.Node, "node-concurrency", "Nodes compared with their record for each Cluster"},
		{&o.reconcilers.Concurrency.Certificate, "certificate-concurrency", "certificate signing requests judged for each Cluster"},
		{&o.reconcilers.Concurrency.MachineConfigPool, "machineconfigpool-concurrency", "MachineConfigPools rendered"},
		{&o.reconcilers.Concurrency.Enrollment, "enrollment-concurrency", "enrollment tokens worked on"},
	} {
		fs.IntVar(c.value, c.name, *c.value, "Number of "+c.objects+" at the same time.")
	}
}

// complete validates the flags and sets the options that follow from them.
func (o *options) complete() (err error) {
	u, err := url.Parse(o.reconcilers.ServerURL)
	if err != nil || u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("--config-server-url=%q: set it to the https URL, without a path, at which hosts reach the config server", o.reconcilers.ServerURL)
	}
	o.reconcilers.ServerURL = strings.TrimRight(o.reconcilers.ServerURL, "/")
	if o.reconcilers.OverlayNamespace == "" {
		return fmt.Errorf("--overlay-namespace is empty: set it to the config server's namespace")
	}
	if o.reconcilers.RenderedHistory < 0 {
		return fmt.Errorf("--rendered-config-history=%d: set it to 0 or more", o.reconcilers.RenderedHistory)
	}
	if o.reconcilers.TokenLife < 0 {
		return fmt.Errorf("--token-life=%s: set it to 0 or more", o.reconcilers.TokenLife)
	}
	for _, phase := range o.reconcilers.SkipCRDMigrationPhases {
		if !slices.Contains(controllers.MigrationPhases, crdmigrator.Phase(phase)) {
			return fmt.Errorf("--skip-crd-migration-phases=%s: no such phase: name %s or %s", phase, controllers.MigrationPhases[0], controllers.MigrationPhases[1])
		}
	}
	o.reconcilers.ServerCA = caFile(o.configServerCAFile).read
	o.reconcilers.SyncedLabels, err = registration.CompileSyncedLabels(o.syncedLabels)
	return err
}
