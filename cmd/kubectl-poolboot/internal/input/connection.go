package input

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// Timeout is how long the plugin waits for a workload cluster, and for what it can do without.
const Timeout = 10 * time.Second

// Connection is a way to the management cluster.
type Connection interface {
	// AddFlags defines the flags that choose the cluster and the namespace.
	AddFlags(*pflag.FlagSet)
	// Open connects to the cluster that the flags choose.
	Open() (*Cluster, error)
}

// Cluster is the management cluster.
type Cluster struct {
	client.WithWatch
	// Namespace is that of objects without one. NamespaceChosen is true when --namespace set it.
	Namespace       string
	NamespaceChosen bool
	// Workload returns a reader of a workload cluster, by the Cluster's kubeconfig Secret.
	Workload func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error)
}

// NoneIn says that a namespace, or all for "", has no objects of a kind. A namespace that does not exist is an error.
func (c *Cluster) NoneIn(ctx context.Context, namespace, objects string) (string, error) {
	if namespace == "" {
		return "No " + objects + " found.", nil
	}
	if apierrors.IsNotFound(c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})) {
		return "", fmt.Errorf("namespace %s does not exist: correct --namespace", namespace)
	}
	return "No " + objects + " in namespace " + namespace + ".", nil
}

// kubectlConnection is a Connection by kubectl's files and flags.
type kubectlConnection struct {
	files     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

// NewConnection returns a Connection by the kubeconfig files and flags of kubectl.
func NewConnection() Connection {
	return &kubectlConnection{files: clientcmd.NewDefaultClientConfigLoadingRules()}
}

// AddFlags defines kubectl's flags. They are not those of cli-runtime's ConfigFlags, whose --cluster is an entry of the
// kubeconfig file: here it is a Cluster of Cluster API.
func (k *kubectlConnection) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&k.files.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path to the kubeconfig file of the management cluster")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.ClusterName.LongName = ""
	clientcmd.BindOverrideFlags(&k.overrides, flags, names)
}

// Open connects to the cluster of the kubeconfig files.
func (k *kubectlConnection) Open() (*Cluster, error) {
	if _, err := os.Stat(k.files.ExplicitPath); k.files.ExplicitPath != "" && err != nil {
		return nil, fmt.Errorf("--%s: %w", clientcmd.RecommendedConfigPathFlag, err)
	}
	chosen := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(k.files, &k.overrides)
	live, err := connect(chosen)
	if err != nil {
		return nil, fmt.Errorf("connect to the management cluster: %w: set --kubeconfig or --context", err)
	}
	if _, err := live.RESTMapper().RESTMapping(PoolKind.GroupKind(), PoolKind.Version); meta.IsNoMatchError(err) {
		if other, err := live.RESTMapper().RESTMapping(PoolKind.GroupKind()); err == nil {
			return nil, fmt.Errorf("the cluster has MachineConfigPools of %s, and this plugin reads %s: install the kubectl-poolboot of the manager's version",
				other.GroupVersionKind.GroupVersion(), PoolKind.GroupVersion())
		}
		return nil, errors.New("the cluster has no MachineConfigPools of poolboot.io/v1alpha1: install Poolboot, or set --kubeconfig or --context if this is " +
			"a workload cluster and not the management cluster")
	}
	namespace, isChosen, err := chosen.Namespace()
	if err != nil {
		return nil, err
	}
	return &Cluster{WithWatch: live, Namespace: namespace, NamespaceChosen: isChosen,
		Workload: func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
			return openWorkload(ctx, live, cluster)
		}}, nil
}

// errNoKubeconfig replaces client-go's error, which names a variable that is only for tests.
var errNoKubeconfig = errors.New("there is no kubeconfig file, or it is empty")

// connect connects to the cluster of a kubeconfig.
func connect(chosen clientcmd.ClientConfig) (client.WithWatch, error) {
	config, err := chosen.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errNoKubeconfig
	}
	if err != nil {
		return nil, err
	}
	return client.NewWithWatch(config, client.Options{Scheme: Scheme()})
}

// openWorkload connects to a workload cluster.
func openWorkload(ctx context.Context, management client.Reader, cluster client.ObjectKey) (client.Reader, error) {
	stored, err := kubeconfig.OfCluster(ctx, management, cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to Cluster %s: %w", cluster, err)
	}
	config := stored.REST()
	config.Timeout = Timeout
	httpClient, err := kubeconfig.HTTPClient(config)
	if err != nil {
		return nil, fmt.Errorf("connect to Cluster %s: %w", cluster, err)
	}
	return client.New(config, client.Options{Scheme: Scheme(), HTTPClient: httpClient})
}

// OpenFile connects to the management cluster of a kubeconfig file.
func OpenFile(path string) (client.Reader, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: Scheme()})
}

// Scheme returns the scheme of all kinds that are read.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(corev1.AddToScheme, appsv1.AddToScheme, admissionv1.AddToScheme,
		apiextensionsv1.AddToScheme, poolv1.AddToScheme, bootstrapv1.AddToScheme, clusterv1.AddToScheme, bmov1alpha1.AddToScheme)
	utilruntime.Must(builder.AddToScheme(scheme))
	return scheme
})
