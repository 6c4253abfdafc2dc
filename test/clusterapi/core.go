package clusterapi

import (
	"context"
	"regexp"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/controlplane"
)

// Scheme returns a scheme with every kind that the tests use: Kubernetes, Cluster API (v1beta1 and v1beta2), Metal3 and
// Poolboot.
func Scheme() *runtime.Scheme { return runtime.NewScheme() }

// Options says how Cluster API's core is set up.
type Options struct {
	// SyncedLabels are the regular expressions of further Machine labels that are synced to Nodes, as Cluster API's
	// --additional-sync-machine-labels takes them.
	SyncedLabels []*regexp.Regexp
	// Log is the core's logger. The zero value is silent.
	Log logr.Logger
}

// Core is Cluster API's core, running.
type Core struct{}

// Start installs Cluster API's webhooks, starts its core and returns when it reconciles and its webhooks answer.
func Start(ctx context.Context, cfg *rest.Config, options Options) (*Core, error) { return nil, nil }

// Stop ends the core and returns when it has ended. Stop it before its control plane.
func (c *Core) Stop() error { return nil }

// ClusterOptions describes a Cluster to make.
type ClusterOptions struct {
	Namespace string
	Name      string
	// Workload is the control plane that the Cluster's Nodes are in.
	Workload *controlplane.ControlPlane
}

// CreateCluster makes a Cluster with its Metal3Cluster, a control plane object that says it is initialised, and the Secret
// that holds the workload cluster's kubeconfig.
func CreateCluster(ctx context.Context, c client.Client, options ClusterOptions) error { return nil }
