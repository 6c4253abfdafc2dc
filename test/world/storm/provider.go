package storm

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// Provider is a bootstrap provider.
type Provider struct {
	// configKind is the kind of the bootstrap configs, template returns their template.
	configKind string
	template   func() client.Object
	// start starts the provider if the site does not run it, and returns the boot function of hosts and a stop
	// function.
	start func(context.Context, *site.Site, *tenant.Tenant) (boot boot, stop func() error, err error)
	// followEnd reports each cleaned up boot to a milestone. Optional.
	followEnd func(context.Context, *site.Site, *tenant.Tenant, *milestone) error
}

// Poolboot returns the provider Poolboot, which the site runs.
func Poolboot() Provider {
	return Provider{
		configKind: "PoolbootConfig",
		template: func() client.Object {
			template := &bootstrapv1.PoolbootConfigTemplate{}
			template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
			template.Spec.Template.Spec.NodeNameSource = bootstrapv1.NodeNameSourceHost
			return template
		},
		start: func(context.Context, *site.Site, *tenant.Tenant) (boot, func() error, error) {
			return bootByPointer, func() error { return nil }, nil
		},
		followEnd: func(ctx context.Context, s *site.Site, t *tenant.Tenant, ended *milestone) error {
			return site.Follow(ctx, s.ManagementClient, &bootstrapv1.PoolbootConfigList{}, func(_ watch.EventType, c *bootstrapv1.PoolbootConfig) {
				ended.reach(c.Name, c.Namespace == t.Namespace && record.HasJoined(c) &&
					c.Status.Boot.CredentialID == "")
			})
		},
	}
}

// bootByPointer fetches the configuration from the config server, and creates the kubelet with its files.
func bootByPointer(ctx context.Context, _ *bmov1alpha1.BareMetalHost, userData []byte) (*kubelet, error) {
	pointer, err := ignition.ParsePointer(userData)
	if err != nil {
		return nil, err
	}
	config, err := fetch.Config(ctx, pointer, func(int) {})
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	kubeconfig, err := fetch.File(config, ignition.BootstrapKubeconfigPath)
	if err != nil {
		return nil, err
	}
	environment, err := fetch.File(config, ignition.KubeletEnvPath)
	if err != nil {
		return nil, err
	}
	_, flags, _ := strings.Cut(environment, ignition.KubeletArgsVariable+"=")
	flags, _, _ = strings.Cut(flags, "\n")
	k, err := kubeletWith(strings.Fields(flags))
	if err != nil {
		return nil, err
	}
	if raw, err := fetch.File(config, assignment.SettingsPath); err == nil {
		if k.settings, err = assignment.ReadSettings([]byte(raw)); err != nil {
			return nil, err
		}
	}
	k.bootstrap, err = clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	return k, err
}

// kubeletWith parses a kubelet's flags.
func kubeletWith(flags []string) (*kubelet, error) {
	k := &kubelet{labels: map[string]string{}}
	var taints []string
	fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
	fs.StringVar(&k.name, "hostname-override", "", "")
	fs.StringVar(&k.providerID, "provider-id", "", "")
	fs.StringSliceVar(&taints, "register-with-taints", nil, "")
	fs.Var(cliflag.NewMapStringString(&k.labels), "node-labels", "")
	if err := fs.Parse(flags); err != nil {
		return nil, fmt.Errorf("kubelet's flags: %w", err)
	}
	for _, text := range taints {
		k.taints = append(k.taints, taint(text))
	}
	return k, nil
}
