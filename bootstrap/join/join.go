// Package join makes what a host needs to join its cluster: the credential and the rights it has, in the workload
// cluster, and the part of the host's Ignition that is for this one machine. It knows the two joins, by kubelet and by
// kubeadm. Credentials and rights are written through the client it is given; Overlay is pure.
//
// Cluster API's sentinel file says that a host has joined: the pair poolboot-joined.path and poolboot-joined.service
// writes it as soon as the kubelet's client certificate stands, at every boot. With kubeadm too: what
// poolboot-join.service gets done by kubeadm join is that certificate, and until it stands kubeadm join is run again.
package join

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vincent-petithory/dataurl"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
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

// ExtraConfigError is a PoolbootConfig whose spec.extraConfig can't be used.
type ExtraConfigError struct {
	// Field is the field at fault.
	Field string

	// Err says what is wrong with it, with the place in it.
	Err error
}

func (e *ExtraConfigError) Error() string { return e.Field + ": " + e.Err.Error() }

func (e *ExtraConfigError) Unwrap() error { return e.Err }

// Overlay returns the part of a host's configuration that is for this machine alone: how it joins, as whom, and merged
// under that, so that it can't take the join away, the PoolbootConfig's extraConfig. The error is an *ExtraConfigError
// when that is at fault.
func Overlay(cfg *bootstrapv1.PoolbootConfig, reg registration.Registration, cl Cluster, cred Credential) (ignition.Config, error) {
	extra, err := extraConfig(cfg.Spec.ExtraConfig)
	if err != nil {
		return ignition.Config{}, err
	}
	own, err := ownConfig(cfg, reg, cl, cred)
	if err != nil {
		return ignition.Config{}, fmt.Errorf("overlay of PoolbootConfig %s: %w", klog.KObj(cfg), err)
	}
	overlay := ignition.Merge(extra, own)
	if err := ignition.Validate(overlay); err != nil {
		return ignition.Config{}, &ExtraConfigError{Field: "spec.extraConfig", Err: err}
	}
	return overlay, nil
}

// CredentialIn reads back, without its end, the credential that Overlay put into a configuration.
func CredentialIn(config ignition.Config) (Credential, error) {
	for _, f := range config.Storage.Files {
		if f.Path != ignition.BootstrapKubeconfigPath && f.Path != discoveryPath {
			continue
		}
		contents, err := dataurl.DecodeString(ptr.Deref(f.Contents.Source, ""))
		if err != nil {
			return Credential{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		read, err := kubeconfig.Read(contents.Data)
		if err != nil {
			return Credential{}, fmt.Errorf("%s: %w", f.Path, err)
		}
		if !bootstraputil.IsValidBootstrapToken(read.Token) {
			return Credential{}, fmt.Errorf("%s: it holds no bootstrap token", f.Path)
		}
		id, secret, _ := strings.Cut(read.Token, ".")
		return Credential{ID: id, Secret: secret}, nil
	}
	return Credential{}, errors.New("there is no join credential")
}

// extraConfig reads a PoolbootConfig's spec.extraConfig, within what a user may set.
func extraConfig(extra *bootstrapv1.ExtraConfig) (ignition.Config, error) {
	var (
		config = ignition.New()
		field  string
		err    error
	)
	switch {
	case extra == nil:
		return config, nil
	case extra.Config != nil:
		field = "spec.extraConfig.config"
		config, err = ignition.Parse(extra.Config.Raw)
	default:
		field = "spec.extraConfig.butane"
		config, err = ignition.ParseButane(extra.Butane)
	}
	if err == nil {
		err = ignition.Guard(config)
	}
	if err != nil {
		return ignition.Config{}, &ExtraConfigError{Field: field, Err: err}
	}
	return config, nil
}

// ownConfig is the overlay without the extraConfig.
func ownConfig(cfg *bootstrapv1.PoolbootConfig, reg registration.Registration, cl Cluster, cred Credential) (ignition.Config, error) {
	switch {
	case cl.Server == "":
		return ignition.Config{}, errors.New("the cluster has no control plane endpoint yet")
	case len(cl.CA) == 0:
		return ignition.Config{}, errors.New("the cluster's certificate authority is missing")
	case cfg.Spec.Join.Type == bootstrapv1.JoinTypeKubelet:
		return kubeletJoin(&cfg.Spec.Join.Kubelet, reg, cl, cred)
	case cfg.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm:
		return kubeadmJoin(&cfg.Spec.Join.Kubeadm, reg, cl, cred)
	default:
		return ignition.Config{}, fmt.Errorf("spec.join.type: %q is not supported: set %s or %s", cfg.Spec.Join.Type, bootstrapv1.JoinTypeKubelet, bootstrapv1.JoinTypeKubeadm)
	}
}
