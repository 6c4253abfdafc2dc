package storm

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/client-go/rest"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/utils/ptr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/pkg/types/upstreamv1beta4"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// joinConfigurationPath is the path of kubeadm's configuration in the kubeadm bootstrap provider's cloud-init.
const joinConfigurationPath = "/run/kubeadm/kubeadm-join-config.yaml"

// Kubeadm returns Cluster API's kubeadm bootstrap provider (CABPK) with cloud-init. Cluster API syncs the labels that
// decide the pool after the Node has registered, because a kubelet can't set them.
func Kubeadm() Provider {
	return Provider{
		configKind: "KubeadmConfig",
		template: func() client.Object {
			template := &kubeadmv1.KubeadmConfigTemplate{}
			// As in the Metal3 provider's templates: cloud-init replaces these with the host's metadata.
			template.Spec.Template.Spec.JoinConfiguration.NodeRegistration = kubeadmv1.NodeRegistrationOptions{
				Name:             "{{ ds.meta_data.name }}",
				KubeletExtraArgs: []kubeadmv1.Arg{{Name: "node-labels", Value: ptr.To("metal3.io/uuid={{ ds.meta_data.uuid }}")}},
			}
			return template
		},
		start: func(ctx context.Context, s *site.Site, t *tenant.Tenant) (boot, func() error, error) {
			token, err := bootstraputil.GenerateBootstrapToken()
			if err != nil {
				return nil, nil, err
			}
			if err := kubeadm.Init(ctx, s.Workload, token); err != nil {
				return nil, nil, err
			}
			if err := clusterapi.CreateClusterCA(ctx, s.ManagementClient, t.Cluster, s.Workload); err != nil {
				return nil, nil, err
			}
			provider, err := clusterapi.StartKubeadmBootstrap(context.WithoutCancel(ctx), s.Management.Config, clusterapi.Options{Log: logr.Discard()})
			if err != nil {
				return nil, nil, err
			}
			return func(_ context.Context, host *bmov1alpha1.BareMetalHost, userData []byte) (*kubelet, error) {
				return bootByCloudInit(host, userData, s.Workload.CA)
			}, provider.Stop, nil
		},
	}
}

// bootByCloudInit creates a kubelet from the files of cloud-init, as kubeadm join does. It uses the given certificate
// authority of the API server, which kubeadm reads from the cluster and verifies by its hash.
func bootByCloudInit(host *bmov1alpha1.BareMetalHost, userData, ca []byte) (*kubelet, error) {
	filled := strings.NewReplacer("{{ ds.meta_data.name }}", host.Name, "{{ ds.meta_data.uuid }}", string(host.UID)).Replace(string(userData))
	var cloudConfig struct {
		WriteFiles []struct {
			Path    string `json:"path"`
			Content string `json:"content"`
		} `json:"write_files"`
	}
	if err := yaml.Unmarshal([]byte(filled), &cloudConfig); err != nil {
		return nil, fmt.Errorf("user data: %w", err)
	}
	for _, file := range cloudConfig.WriteFiles {
		if file.Path != joinConfigurationPath {
			continue
		}
		var join upstreamv1beta4.JoinConfiguration
		if err := yaml.Unmarshal([]byte(file.Content), &join); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Path, err)
		}
		return bootByJoin(join, ca)
	}
	return nil, fmt.Errorf("user data has no file %s", joinConfigurationPath)
}

func bootByJoin(join upstreamv1beta4.JoinConfiguration, ca []byte) (*kubelet, error) {
	var flags []string
	for _, argument := range join.NodeRegistration.KubeletExtraArgs {
		flags = append(flags, "--"+argument.Name+"="+argument.Value)
	}
	k, err := kubeletWith(flags)
	if err != nil {
		return nil, err
	}
	k.name = join.NodeRegistration.Name
	k.taints = join.NodeRegistration.Taints
	k.bootstrap = &rest.Config{
		Host: "https://" + join.Discovery.BootstrapToken.APIServerEndpoint, BearerToken: join.Discovery.BootstrapToken.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}
	return k, nil
}
