// Package join makes what a host needs to join its cluster: the credential and the rights it has, in the workload
// cluster, and the part of the host's Ignition that is for this one machine. It knows the two joins, by kubelet and by
// kubeadm. Credentials and rights are written through the client it is given; Overlay is pure.
package join

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/node"
)

// Cluster is how hosts reach the workload cluster.
type Cluster struct {
	// Server is the API server's URL: https://<host>:<port>.
	Server string

	// CA is the PEM bundle that the API server's certificate is verified with; the kubelet trusts clients signed by it.
	CA []byte

	// Name is the Cluster's name, for people who read the kubeconfig.
	Name string
}

// Credential is a bootstrap token of the workload cluster.
type Credential struct {
	// ID is the token's public half; the requests made with it come from system:bootstrap:<ID>.
	ID string

	// Secret is the token's secret half.
	Secret string `json:"-"`

	// Expires is when the token ends by itself.
	Expires time.Time
}

// EnsureCredential returns the credential whose ID is current as long as it is the owner's and lives for MinLife at
// least; else it makes a new one that lives for ttl. The old one then stays until it expires or is deleted: delete it once
// the new ID is recorded. owner names the PoolbootConfig, as <namespace>/<name>.
func EnsureCredential(ctx context.Context, w client.Client, owner, current string, ttl time.Duration) (Credential, error) {
	return Credential{}, errors.New("not yet")
}

// ExtendCredential lets a credential live for ttl from now and returns when it will end. The error is NotFound when the
// credential is gone.
func ExtendCredential(ctx context.Context, w client.Client, id string, ttl time.Duration) (time.Time, error) {
	return time.Time{}, errors.New("not yet")
}

// DeleteCredential deletes a credential. One that is gone, or an empty ID, is fine.
func DeleteCredential(ctx context.Context, w client.Client, id string) error {
	return errors.New("not yet")
}

// EnsureRBAC gives the credentials' group the rights to join, and kubeadm's own needs only when kubeadm is set. It may be
// called any number of times; once for every cluster and start of the manager is enough.
func EnsureRBAC(ctx context.Context, w client.Client, kubeadm bool) error { return errors.New("not yet") }

// Overlay returns the part of a host's configuration that is for this machine alone: how it joins, as whom, and merged
// under that, so that it can't take the join away, the PoolbootConfig's extraConfig. The error is an *ExtraConfigError
// when that is at fault.
func Overlay(cfg *bootstrapv1.PoolbootConfig, reg node.Registration, cl Cluster, cred Credential) (types.Config, error) {
	return types.Config{}, errors.New("not yet")
}

// ExtraConfigError is a PoolbootConfig whose spec.extraConfig can't be used.
type ExtraConfigError struct{ Err error }

func (e *ExtraConfigError) Error() string { return "spec.extraConfig: " + e.Err.Error() }

func (e *ExtraConfigError) Unwrap() error { return e.Err }
