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
	agentDirectory     string
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
		"Enable leader election, so that only one of several managers is active. The Lease is in --overlay-namespace.")
	fs.DurationVar(&o.leaderElectLeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		"How long the other managers wait before they replace a leader that does not renew the Lease.")
	fs.DurationVar(&o.leaderElectRenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		"How long the leader tries to renew the Lease before it exits.")
	fs.DurationVar(&o.leaderElectRetryPeriod, "leader-elect-retry-period", 2*time.Second,
		"How long a manager waits between attempts to acquire or renew the Lease.")

	fs.StringVar(&o.reconcilers.Namespace, "namespace", "",
		"Namespace whose objects are reconciled. If empty, the objects of all namespaces are reconciled.")
	fs.StringVar(&o.reconcilers.WatchFilterValue, "watch-filter", "", fmt.Sprintf(
		"Value of the label %s. Only objects with this value are reconciled. If empty, all objects are reconciled.", clusterv1.WatchLabel))
	fs.DurationVar(&o.syncPeriod, "sync-period", 10*time.Minute,
		"How often all watched objects are reconciled, even without a change.")

	fs.StringSliceVar(&o.reconcilers.SkipCRDMigrationPhases, "skip-crd-migration-phases", nil,
		fmt.Sprintf("List of CRD migration phases to skip. Valid values are: %s, %s.", controllers.MigrationPhases[0], controllers.MigrationPhases[1]))

	fs.StringVar(&o.webhookHost, "webhook-host", "", "Address at which the webhook server listens. If empty, it listens at all addresses.")
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "Port at which the webhook server listens.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "/tmp/k8s-webhook-server/serving-certs/",
		"Directory with the files tls.crt and tls.key of the webhook server.")
	fs.StringVar(&o.healthAddr, "health-addr", ":9440", "Address at which /healthz and /readyz are served.")

	fs.StringVar(&o.reconcilers.ServerURL, "config-server-url", "",
		"URL at which hosts reach the config server, for example https://poolboot.example.com:9444. Required.")
	fs.StringVar(&o.configServerCAFile, "config-server-ca-file", "",
		"File with the CA certificates (PEM) that hosts verify the config server with, or a directory of such files (*.crt). "+
			"It is read for every data Secret. If empty, hosts use the CA certificates of their image.")
	fs.StringVar(&o.reconcilers.OverlayNamespace, "overlay-namespace", o.reconcilers.OverlayNamespace,
		"Namespace of the config server, in which the overlay Secrets of machines are kept.")
	fs.StringVar(&o.agentDirectory, "agent-directory", "",
		"Directory with the files poolboot-agent-<architecture>, the agents that hosts get. They are read at the start. "+
			"Must have the same files as for the config server. If empty, hosts get no agent, and keep the configuration with which they boot.")
	fs.StringSliceVar(&o.syncedLabels, "additional-sync-machine-labels", nil,
		"List of regular expressions. Machine labels that match one are synced to the Node, in addition to those with a prefix of Cluster API. "+
			"Set the same values as for the core manager of Cluster API.")
	fs.IntVar(&o.reconcilers.RenderedHistory, "rendered-config-history", o.reconcilers.RenderedHistory,
		"Number of unused rendered configs to keep for each pool. The newest ones are kept.")

	fs.DurationVar(&o.reconcilers.TokenLife, "token-life", o.reconcilers.TokenLife,
		"How long the token of a host that does not join is valid after the host was provisioned or its token was rotated. "+
			"If 0, it does not expire.")

	fs.BoolVar(&o.reconcilers.ApproveCertificates, "approve-certificates", o.reconcilers.ApproveCertificates,
		"Approve the certificates that the kubelets of Poolboot's hosts request. Set it to false only if another approver does so in each "+
			"workload cluster; docs/dev/security.md lists what it must check.")

	fs.Float32Var(&o.kubeAPIQPS, "kube-api-qps", 300,
		"Maximum queries per second to the API server of the management cluster, for each kind of object. A boot needs about ten for its PoolbootConfig.")
	fs.IntVar(&o.kubeAPIBurst, "kube-api-burst", 600,
		"Maximum number of queries to the API server of the management cluster in one burst, for each kind of object.")
	fs.Float32Var(&o.reconcilers.ClusterCacheQPS, "clustercache-client-qps", o.reconcilers.ClusterCacheQPS,
		"Maximum queries per second to the API server of a workload cluster, for each kind of object. A boot needs three for its Node.")
	fs.IntVar(&o.reconcilers.ClusterCacheBurst, "clustercache-client-burst", o.reconcilers.ClusterCacheBurst,
		"Maximum number of queries to the API server of a workload cluster in one burst, for each kind of object.")

	for _, c := range []struct {
		value   *int
		name    string
		objects string
	}{
		{&o.reconcilers.Concurrency.ClusterCache, "clustercache-concurrency", "Clusters to connect to"},
		{&o.reconcilers.Concurrency.Host, "host-concurrency", "hosts of each Cluster to reconcile"},
		{&o.reconcilers.Concurrency.Certificate, "certificate-concurrency", "certificate signing requests of each Cluster to process"},
		{&o.reconcilers.Concurrency.MachineConfigPool, "machineconfigpool-concurrency", "MachineConfigPools of each Cluster to reconcile"},
		{&o.reconcilers.Concurrency.Enrollment, "enrollment-concurrency", "Enrollments of each Cluster to reconcile"},
	} {
		fs.IntVar(c.value, c.name, *c.value, "Number of "+c.objects+" at the same time.")
	}
}

// complete validates the flags and sets the options that follow from them.
func (o *options) complete() (err error) {
	u, err := url.Parse(o.reconcilers.ServerURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
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
			return fmt.Errorf("--skip-crd-migration-phases=%s: no such phase: use %s or %s", phase, controllers.MigrationPhases[0], controllers.MigrationPhases[1])
		}
	}
	if o.reconcilers.Agent, err = readAgents(o.agentDirectory); err != nil {
		return err
	}
	o.reconcilers.ServerCA = caFile(o.configServerCAFile).read
	o.reconcilers.SyncedLabels, err = registration.CompileSyncedLabels(o.syncedLabels)
	return err
}
