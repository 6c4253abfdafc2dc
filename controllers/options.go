package controllers

import (
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// Options are the settings of Poolboot's reconcilers. docs/install.md describes the manager's flags, which set them.
type Options struct {
	// Namespace is the only namespace whose objects are reconciled. Empty means all namespaces.
	Namespace string

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter on objects that are reconciled. Empty
	// means all objects.
	WatchFilterValue string

	// ServerURL is the https URL, without a path and without a trailing slash, at which hosts reach the config server.
	ServerURL string

	// ServerCA returns the CA certificates (PEM) by which hosts trust the config server, or nothing if the certificates
	// of a host's image suffice. It is called for each data Secret, so the certificates can change.
	ServerCA func() ([]byte, error)

	// OverlayNamespace is the config server's namespace, which has the overlay Secrets of machines.
	OverlayNamespace string

	// Agent is the agent that hosts get, with the hash of the program for each architecture. Without a hash, hosts get
	// no agent.
	Agent assignment.Agent

	// SyncedLabels match the Machine labels that Cluster API's core manager puts on Nodes besides those with its own
	// prefixes (its flag --additional-sync-machine-labels).
	SyncedLabels []*regexp.Regexp

	// RenderedHistory is the number of rendered configs that each pool keeps although they are no longer in use.
	RenderedHistory int

	// TokenLife is how long the token of a provisioned host that does not join is valid; 0 means forever.
	TokenLife time.Duration

	// ApproveCertificates enables the reconciler that approves the certificates that kubelets of Poolboot's hosts
	// request.
	ApproveCertificates bool

	// UserAgent is the user agent of the manager in requests to workload clusters.
	UserAgent string

	// ClusterCacheQPS and ClusterCacheBurst limit the queries to the API server of one workload cluster, for each kind
	// of object.
	ClusterCacheQPS   float32
	ClusterCacheBurst int

	// Concurrency is the number of workers.
	Concurrency Concurrency

	// SkipCRDMigrationPhases are the phases of Cluster API's CRD migrator that are skipped.
	SkipCRDMigrationPhases []string

	// StopsConnections stops the connections to workload clusters when the context of SetupReconcilers is done. It is
	// for tests: their process outlives the manager, and an API server does not stop while it is watched.
	StopsConnections bool

	// Metrics is the registry for the metrics that are computed at each scrape. Nil means controller-runtime's
	// registry. A registry accepts them only once.
	Metrics prometheus.Registerer
}

// offer returns the config server with its current CA certificates, and the agent that hosts get.
func (o *Options) offer() (join.Offer, error) {
	ca, err := o.ServerCA()
	return join.Offer{Agent: o.Agent, ServerURL: o.ServerURL, ServerCA: ca}, err
}

// DefaultOptions returns the defaults of the manager's flags. ServerURL has no default.
func DefaultOptions() Options {
	return Options{
		OverlayNamespace:    "poolboot-system",
		RenderedHistory:     5,
		TokenLife:           24 * time.Hour,
		ApproveCertificates: true,
		UserAgent:           "poolboot-manager",
		ClusterCacheQPS:     100,
		ClusterCacheBurst:   200,
		Concurrency: Concurrency{
			ClusterCache: 100, Host: 20, Certificate: 10, MachineConfigPool: 2, Enrollment: 10,
		},
	}
}

// Concurrency has the maximum number of objects that each reconciler works on at the same time. For a reconciler that
// calls workload clusters, it is the number for each Cluster.
type Concurrency struct {
	ClusterCache, Host, Certificate, MachineConfigPool, Enrollment int
}
