package scope

import (
	"regexp"
	"time"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// Env is what all phases of hosts work with: the clients of the manager, and its settings.
type Env struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads from the API server what must not be stale: a data Secret, whose token must never be generated
	// twice, and what a decision depends on that can't be undone.
	APIReader client.Reader
	// HostSecrets is a cache of the metadata of the Secrets that Metal3 has read for hosts, among them network data.
	HostSecrets cache.Cache
	// NetworkData reads the network data of hosts.
	NetworkData *host.NetworkData
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder creates events. If it is nil, SetupWithManager sets the manager's recorder.
	Recorder events.EventRecorder
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// ServerURL is the address of the config server as hosts reach it: https://host:port without a path.
	ServerURL string
	// ServerCA returns the PEM certificates with which hosts verify the config server, or nothing if hosts already
	// trust it.
	ServerCA func() ([]byte, error)
	// OverlayNamespace is the namespace of the overlay Secrets and assignment Secrets: that of the config server.
	OverlayNamespace string
	// Offer returns the agent that hosts get. If it is nil or returns no hashes, hosts get none.
	Offer func() (join.Offer, error)
	// TokenLifetime is how long a token is valid after its host was provisioned or, if that is later, after it was
	// rotated. Zero means that tokens do not expire.
	TokenLifetime time.Duration
	// SyncedLabels are the regular expressions of Cluster API's flag --additional-sync-machine-labels.
	SyncedLabels []*regexp.Regexp
	// WatchHardware starts the watch on HardwareData on its first call. SetupWithManager sets it.
	WatchHardware func() error
}
