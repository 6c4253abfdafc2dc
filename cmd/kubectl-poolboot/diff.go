package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	workloadkubeconfig "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
)

// diffName is the command's name; its exit codes are kubectl diff's.
const diffName = "diff"

// errDifferent says that diff found what it looks for. It is no message: the difference is on standard output.
var errDifferent = errors.New("the files would change a pool")

// diff shows what files would change of live pools.
type diff struct {
	reader
	files   []string
	cluster string
	connection
}

// connection leads to the management cluster.
type connection interface {
	// offer defines the flags by which the cluster and the namespace are chosen.
	offer(*pflag.FlagSet)
	// open returns a reader of live objects, the namespace of objects that name none, and whether --namespace chose it.
	open() (live client.WithWatch, namespace string, chosen bool, err error)
	// workload returns a reader of live objects of a Cluster's own, by its kubeconfig Secret.
	workload(ctx context.Context, live client.Reader, cluster client.ObjectKey) (client.Reader, error)
}

func newDiff(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	d := &diff{reader: reader{streams: streams}, connection: to}
	cmd := &cobra.Command{
		Use:   diffName + " -f FILE...",
		Short: "Show what files would change of live pools",
		Long: `Show what MachineConfigPools and MachineConfigs in files would change of live pools, before they are applied.

For each pool whose rendered config would be another one: the Machines and Nodes that are in it, whether a host must reboot to
take it up, and what changes of kernel arguments, extensions, files, units, drop-ins and users. Contents of files that not
everybody on the host may read, and passwords, are not shown.

For each pool whose nodeSelector, nodeLabels, nodeTaints, nodeLabelRules, hostTemplateRef or pause would change: what changes, which of
its existing Nodes get it, which keep what they have, and which Pods a taint with the effect NoExecute evicts. Nodes and Pods are
read from the workload cluster, by the Cluster's kubeconfig Secret. When that can't be read, the output says so.

Objects in files take the place of live ones of the same kind, namespace and name. Nothing is written.

Exit codes: 0 without a difference, 1 with one, 2 for an error.`,
		Example: `  # What would this MachineConfig change?
  kubectl poolboot diff -f machineconfigs/51-infra.yaml

  # For one cluster only
  kubectl poolboot diff -f machineconfigs -n edge --cluster infra-1

  # Apply only what changes nothing
  kubectl poolboot diff -f machineconfigs && kubectl apply -f machineconfigs`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return d.run(cmd.Context(), args) },
	}
	d.offerFiles(cmd, &d.files, "filename", "f", "where Poolboot's MachineConfigPools and MachineConfigs are")
	cmd.Flags().StringVar(&d.cluster, "cluster", "", "only the pools of this Cluster, as NAME or NAMESPACE/NAME")
	offerConnection(cmd, to)
	completeFlag(cmd, "cluster", fromCluster(to, liveClusters))
	return cmd
}

func (d *diff) run(ctx context.Context, args []string) error {
	found, err := d.read(append(d.files, args...)...)
	if err != nil {
		return err
	}
	live, namespace, chosen, err := d.open()
	if err != nil {
		return err
	}
	if err := found.settle(namespace, chosen); err != nil {
		return err
	}
	workload := func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
		return d.workload(ctx, live, cluster)
	}
	differences, notes, err := found.against(ctx, live, workload, d.cluster)
	for _, note := range notes {
		fmt.Fprintln(d.streams.ErrOut, "note:", note)
	}
	if err != nil {
		return err
	}
	for i, difference := range differences {
		if i > 0 {
			fmt.Fprintln(d.streams.Out)
		}
		if err := difference.print(d.streams.Out); err != nil {
			return err
		}
	}
	if len(differences) > 0 {
		return errDifferent
	}
	return nil
}

// settle gives every object its namespace, as kubectl does, and refuses what is not Poolboot's own.
func (o *objects) settle(namespace string, chosen bool) error {
	settle := func(kind, name, own string, theirs bool) (string, error) {
		switch {
		case theirs:
			return "", fmt.Errorf("%s %q is OpenShift's: convert it first, with kubectl poolboot convert", kind, name)
		case own == "":
			return namespace, nil
		case chosen && own != namespace:
			return "", fmt.Errorf("%s %q is of the namespace %s, and --namespace is %s: leave out the one that is wrong", kind, name, own, namespace)
		}
		return own, nil
	}
	var err error
	for i := range o.pools {
		p := &o.pools[i]
		if p.Namespace, err = settle("MachineConfigPool", p.Name, p.Namespace, isOpenShift(p.TypeMeta)); err != nil {
			return err
		}
	}
	for i := range o.configs {
		c := &o.configs[i]
		if c.Namespace, err = settle("MachineConfig", c.Name, c.Namespace, isOpenShift(c.TypeMeta)); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig is the connection by kubectl's own files and flags.
type kubeconfig struct {
	files     *clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
}

func byKubeconfig() connection {
	return &kubeconfig{files: clientcmd.NewDefaultClientConfigLoadingRules()}
}

func (k *kubeconfig) offer(flags *pflag.FlagSet) {
	flags.StringVar(&k.files.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path to the kubeconfig file of the management cluster")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.ClusterName.LongName = "" // --cluster is a Cluster of Cluster API here
	clientcmd.BindOverrideFlags(&k.overrides, flags, names)
}

func (k *kubeconfig) open() (client.WithWatch, string, bool, error) {
	chosen := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(k.files, &k.overrides)
	namespace, isChosen, err := chosen.Namespace()
	if err != nil {
		return nil, "", false, err
	}
	config, err := chosen.ClientConfig()
	if err != nil {
		return nil, "", false, err
	}
	live, err := client.NewWithWatch(config, client.Options{Scheme: liveScheme()})
	return live, namespace, isChosen, err
}

// patience is how long an answer of a workload cluster is waited for.
const patience = 10 * time.Second

func (k *kubeconfig) workload(ctx context.Context, live client.Reader, cluster client.ObjectKey) (client.Reader, error) {
	read, err := workloadkubeconfig.OfCluster(ctx, live, cluster)
	if err != nil {
		return nil, fmt.Errorf("connect to Cluster %s: %w", cluster, err)
	}
	config := read.REST()
	config.Timeout = patience
	httpClient, err := workloadkubeconfig.HTTPClient(config)
	if err != nil {
		return nil, fmt.Errorf("connect to Cluster %s: %w", cluster, err)
	}
	return client.New(config, client.Options{Scheme: liveScheme(), HTTPClient: httpClient})
}

// liveScheme knows the kinds that are read from a cluster.
func liveScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	must(poolv1.AddToScheme(scheme))
	must(bootstrapv1.AddToScheme(scheme))
	must(clusterv1.AddToScheme(scheme))
	must(bmov1alpha1.AddToScheme(scheme))
	must(appsv1.AddToScheme(scheme))
	must(admissionv1.AddToScheme(scheme))
	must(apiextensionsv1.AddToScheme(scheme)) // which version of Metal3Machines there is
	return scheme
}
