package join

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/vincent-petithory/dataurl"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition/butane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// Cluster describes how hosts reach the workload cluster.
type Cluster struct {
	// Server is the URL of the API server: https://<host>:<port>.
	Server string

	// CA is the PEM bundle that verifies the certificate of the API server. The kubelet trusts clients whose
	// certificates it verifies.
	CA []byte

	// Name is the name of the Cluster. In the kubeconfig, it is only for information.
	Name string
}

// ExtraConfigError reports that spec.extraConfig of a PoolbootConfig cannot be used.
type ExtraConfigError struct {
	// Field is the field with the mistake.
	Field string

	// Err describes the mistake and its position in the field.
	Err error
}

func (e *ExtraConfigError) Error() string { return e.Field + ": " + e.Err.Error() }

// Reason returns the reason of the condition that reports the error.
func (e *ExtraConfigError) Reason() string { return bootstrapv1.ExtraConfigInvalidReason }

func (e *ExtraConfigError) Unwrap() error { return e.Err }

// Machine is everything that the configuration of one machine depends on, except its join credential.
type Machine struct {
	// Config is the PoolbootConfig, of which the join and the extraConfig count.
	Config *bootstrapv1.PoolbootConfig

	// Registration is what the Node is registered with.
	Registration registration.Registration

	// Cluster is the cluster that the host joins.
	Cluster Cluster

	// Agent is the agent that the host runs after it joined. It is nil for a host without an agent.
	Agent *Agent

	// Reports are what the host needs to report to the config server that it does not join, also without an agent. They
	// are empty for a host that boots without the config server.
	Reports assignment.Settings

	// Network are the files that configure the network of the host. They are not needed for the join, and not checked
	// before it.
	Network []networkdata.File
}

// Overlay returns the part of the configuration of a host that belongs to this machine: the configuration for its join,
// its agent, and the extraConfig of the PoolbootConfig. The extraConfig cannot change the join: in a conflict, the join
// wins. The error is an *ExtraConfigError if the extraConfig cannot be used.
func (m Machine) Overlay(cred Credential) (ignition.Config, error) {
	return m.withExtraConfig(func() (ignition.Config, error) {
		own, err := m.joinConfig()
		if err == nil {
			err = m.addCredential(&own, cred)
		}
		m.Agent.addUnits(&own)
		m.addReport(&own)
		m.Agent.addProgram(&own, m.Registration.Name, m.Cluster.Server)
		return own, err
	})
}

// Lasting returns the part of the overlay that a host keeps after it joined, which can change later: everything but the
// join credential, and the program of the agent, which replaces itself. The error is an *ExtraConfigError if the
// extraConfig cannot be used.
func (m Machine) Lasting() (ignition.Config, error) {
	return m.withExtraConfig(func() (ignition.Config, error) {
		own, err := m.joinConfig()
		m.Agent.addUnits(&own)
		return own, err
	})
}

// withExtraConfig merges Poolboot's own configuration over the extraConfig. The extraConfig is checked first.
func (m Machine) withExtraConfig(newOwn func() (ignition.Config, error)) (ignition.Config, error) {
	extra, err := extraConfig(m.Config)
	if err != nil {
		return ignition.Config{}, err
	}
	own, err := newOwn()
	if err != nil {
		return ignition.Config{}, fmt.Errorf("overlay of PoolbootConfig %s: %w", klog.KObj(m.Config), err)
	}
	if m.Config.Spec.ExtraConfig == nil {
		return own, nil
	}
	overlay := ignition.Merge(extra, own)
	if err := ignition.Validate(overlay); err != nil {
		return ignition.Config{}, &ExtraConfigError{Field: "spec.extraConfig", Err: err}
	}
	return overlay, nil
}

// CredentialIn returns the credential that Overlay wrote to a configuration. Expires is not set.
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
			return Credential{}, fmt.Errorf("%s: the kubeconfig has no bootstrap token", f.Path)
		}
		return newCredential(read.Token, time.Time{}), nil
	}
	return Credential{}, errors.New("there is no join credential")
}

// extraConfig parses spec.extraConfig of a PoolbootConfig, and refuses what a user cannot set.
func extraConfig(of *bootstrapv1.PoolbootConfig) (ignition.Config, error) {
	extra := of.Spec.ExtraConfig
	if extra == nil {
		return ignition.New(), nil
	}
	var config ignition.Config
	var err error
	field := "spec.extraConfig.config"
	if extra.Config != nil {
		config, err = ignition.Parse(extra.Config.Raw)
	} else {
		field = "spec.extraConfig.butane"
		config, err = butane.Parse(extra.Butane)
	}
	if err == nil {
		err = pool.ScopeOfRole(cmp.Or(of.Status.PoolRole, of.Spec.PoolRole)).Guard(config)
	}
	if err != nil {
		return ignition.Config{}, &ExtraConfigError{Field: field, Err: err}
	}
	return config, nil
}

// CheckExtraConfig returns an *ExtraConfigError if spec.extraConfig of a PoolbootConfig cannot be used.
func CheckExtraConfig(cfg *bootstrapv1.PoolbootConfig) error {
	_, err := extraConfig(cfg)
	return err
}

// FindExternalCloudProvider returns the entry of spec.extraConfig that starts the kubelet with
// --cloud-provider=external, or "" if there is none. The error is an *ExtraConfigError if the extraConfig cannot be
// used.
func FindExternalCloudProvider(cfg *bootstrapv1.PoolbootConfig) (string, error) {
	extra, err := extraConfig(cfg)
	if err != nil {
		return "", err
	}
	entry := ignition.FindExternalCloudProvider(extra)
	if entry == "" {
		return "", nil
	}
	return fmt.Sprintf("PoolbootConfig %s spec.extraConfig (%s)", klog.KObj(cfg), entry), nil
}

// joinConfig returns the configuration with which the host joins, without the credential, and with the checksums of
// everything in it.
func (m Machine) joinConfig() (config ignition.Config, err error) {
	join := &m.Config.Spec.Join
	switch {
	case record.IsAdopted(m.Config): // it has joined
		return ignition.New(), nil
	case m.Cluster.Server == "":
		return config, errors.New("the cluster has no control plane endpoint yet")
	case len(m.Cluster.CA) == 0:
		return config, errors.New("the cluster's certificate authority is missing")
	case join.Type == bootstrapv1.JoinTypeKubelet:
		config = kubeletJoin(&join.Kubelet, m.Registration, m.Cluster)
	case join.Type == bootstrapv1.JoinTypeKubeadm:
		config, err = kubeadmJoin(&join.Kubeadm, m.Registration, m.Cluster)
	default:
		err = fmt.Errorf("spec.join.type: %q is not supported: set %s or %s", join.Type, bootstrapv1.JoinTypeKubelet, bootstrapv1.JoinTypeKubeadm)
	}
	if err != nil {
		return config, err
	}
	err = addChecksums(&config)
	for _, f := range m.Network {
		config.Storage.Files = append(config.Storage.Files, newFile(f.Path, f.Mode, f.Contents))
	}
	return config, err
}

// addCredential adds the kubeconfig with the join credential.
func (m Machine) addCredential(config *ignition.Config, cred Credential) error {
	kubeconfig, err := joinKubeconfig(m.Cluster, cred)
	if err != nil {
		return err
	}
	name := ignition.BootstrapKubeconfigPath
	if m.Config.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm {
		name = discoveryPath
	}
	config.Storage.Files = append(config.Storage.Files, newFile(name, 0o600, kubeconfig))
	return nil
}
