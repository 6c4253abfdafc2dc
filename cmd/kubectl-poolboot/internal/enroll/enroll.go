// Package enroll has the commands for hosts without a Machine: kubectl poolboot enroll prints an Enrollment with its
// token, and kubectl poolboot pointer the Ignition that such a host boots with.
package enroll

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command enroll.
type options struct {
	streams   genericiooptions.IOStreams
	namespace string
	output    cli.Output
	spec      poolv1.EnrollmentSpec
	life      time.Duration
}

// New returns the command enroll.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &options{streams: streams}
	cmd := &cobra.Command{
		Use:   "enroll NAME --cluster CLUSTER --pool ROLE --name-pattern PATTERN",
		Short: "Print a new Enrollment and its token",
		Long: `Print an Enrollment, which admits hosts without a Machine to a pool, and the Secret with its token of 256 random bits.

The command creates no object: apply what it prints, and keep it secret.`,
		Example: `  # Admit twenty hosts to the pool infra within a day
  kubectl poolboot enroll edge -n metal --cluster site --pool infra --name-pattern 'edge-*' --max-uses 20 \
    --expires-in 24h | kubectl apply -f -`,
		Args:                  cli.OneName("Enrollment", "kubectl poolboot enroll NAME"),
		ValidArgsFunction:     cobra.NoFileCompletions, // the name is new
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.run(args[0], time.Now()); err != nil {
				return err
			}
			o.warn(cmd.Context(), to)
			return nil
		},
	}
	cli.AddPoolFlag(cmd, &o.spec.PoolRole, input.CompleteFromCluster(to, input.PoolRoles))
	cmd.Flags().StringVar(&o.spec.ClusterName, "cluster", "", "Cluster that the hosts join")
	cmd.Flags().StringVar(&o.spec.NamePattern, "name-pattern", "", "pattern of the names that hosts can take, such as 'edge-*', in quotes so that the shell does not expand it")
	cmd.Flags().StringSliceVar(&o.spec.AddressRanges, "address-ranges", nil, "address ranges of the hosts (CIDRs): a serving certificate can contain the address that the host enrolled from only within them")
	cmd.Flags().Int32Var(&o.spec.MaxUses, "max-uses", 1, "how many names hosts can take")
	cmd.Flags().DurationVar(&o.life, "expires-in", 24*time.Hour, "how long the token is valid")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "", "namespace of the objects; without it, kubectl apply sets the namespace")
	o.output.AddFlag(cmd, "YAML", cli.FormatJSON, cli.FormatYAML)
	utilruntime.Must(cmd.MarkFlagRequired("cluster"))
	utilruntime.Must(cmd.MarkFlagRequired("name-pattern"))
	cli.AddCompletion(cmd, "cluster", input.CompleteFromCluster(to, input.Clusters))
	cli.AddCompletion(cmd, "namespace", input.CompleteFromCluster(to, input.Namespaces))
	for _, flag := range []string{"name-pattern", "address-ranges", "max-uses", "expires-in"} {
		cli.AddCompletion(cmd, flag, cobra.NoFileCompletions)
	}
	return cmd
}

// flagsOfFields adds to an error about a field of an Enrollment the flag that sets the field.
var flagsOfFields = strings.NewReplacer("spec.poolRole:", "--pool (spec.poolRole):", "spec.namePattern:", "--name-pattern (spec.namePattern):",
	"spec.maxUses:", "--max-uses (spec.maxUses):", "spec.addressRanges:", "--address-ranges (spec.addressRanges):")

func (o *options) run(name string, now time.Time) error {
	if o.life <= 0 {
		return fmt.Errorf("--expires-in %s: the token would be expired already: set a duration, such as 24h", o.life)
	}
	if err := access.CheckEnrollment(o.spec); err != nil {
		return errors.New(flagsOfFields.Replace(err.Error()))
	}
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never returns an error: crypto/rand crashes the program instead
	spec := o.spec
	spec.ExpirationTime = metav1.NewTime(now.Add(o.life).UTC().Truncate(time.Second))
	spec.TokenSecretRef.Name = name
	meta := metav1.ObjectMeta{Name: name, Namespace: o.namespace}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta,
		Type:       poolv1.EnrollmentTokenType,
		StringData: map[string]string{poolv1.EnrollmentTokenKey: base64.RawURLEncoding.EncodeToString(bits[:])},
	}
	metav1.SetMetaDataLabel(&secret.ObjectMeta, clusterctlv1.ClusterctlMoveLabel, "")
	enrollment := &poolv1.Enrollment{
		TypeMeta:   metav1.TypeMeta{APIVersion: poolv1.GroupVersion.String(), Kind: "Enrollment"},
		ObjectMeta: meta,
		Spec:       spec,
	}
	return o.output.PrintManifest(o.streams.Out, secret, enrollment)
}

// warn warns on standard error when no host would be admitted, if the management cluster can be read. The condition
// Ready of the Enrollment reports the same, but later.
func (o *options) warn(ctx context.Context, to input.Connection) {
	cluster, err := to.Open()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, input.Timeout)
	defer cancel()
	var pools poolv1.MachineConfigPoolList
	if err := cluster.List(ctx, &pools, client.InNamespace(cmp.Or(o.namespace, cluster.Namespace))); err != nil {
		return
	}
	ofCluster := slices.DeleteFunc(pools.Items, func(p poolv1.MachineConfigPool) bool { return p.Spec.ClusterName != o.spec.ClusterName })
	switch found, err := pool.OfRole(ofCluster, o.spec.PoolRole); {
	case err != nil:
		_, _ = fmt.Fprintf(o.streams.ErrOut, "warning: no host is admitted yet: --cluster %s: %s\n", cli.Printable(o.spec.ClusterName), cli.Printable(err.Error()))
	case found.Spec.Hosts.TemplateRef.Name == "":
		_, _ = fmt.Fprintf(o.streams.ErrOut, "warning: no host is admitted yet: MachineConfigPool %s admits only Machines: set its spec.hosts.templateRef to a PoolbootConfigTemplate\n",
			cli.Printable(found.Name))
	}
}

// pointerOptions are those of the command pointer.
type pointerOptions struct {
	streams    genericiooptions.IOStreams
	connection input.Connection
	host       string
}

// NewPointer returns the command pointer.
func NewPointer(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	o := &pointerOptions{streams: streams, connection: to}
	cmd := &cobra.Command{
		Use:   "pointer NAME --host HOST",
		Short: "Print the pointer Ignition of a host that enrolls",
		Long: `Print the pointer Ignition for the ISO or the user data of one host without a Machine: the URL of its configuration, the
enrollment token and the name of the host. It contains the token: keep it secret.`,
		Example: `  # The host edge-7, with the Enrollment edge
  kubectl poolboot pointer edge --host edge-7 -n metal > edge-7.ign`,
		Args:                  cli.OneName("Enrollment", "kubectl get enrollments lists them"),
		ValidArgsFunction:     input.CompleteFirst(input.CompleteFromCluster(to, input.Enrollments), cobra.ShellCompDirectiveNoFileComp),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&o.host, "host", "", "name of the Node of the host")
	utilruntime.Must(cmd.MarkFlagRequired("host"))
	cli.AddCompletion(cmd, "host", cobra.NoFileCompletions)
	input.AddConnectionFlags(cmd, to)
	return cmd
}

func (o *pointerOptions) run(ctx context.Context, name string) error {
	cluster, err := o.connection.Open()
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: cluster.Namespace, Name: name}
	enrollment, secret := &poolv1.Enrollment{}, &corev1.Secret{}
	if err := cluster.Source().GetNamed(ctx, name, enrollment); err != nil {
		return err
	}
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: enrollment.Spec.TokenSecretRef.Name}, secret); err != nil {
		return err
	}
	token, err := access.EnrollmentToken(secret)
	if err != nil {
		return fmt.Errorf("enrollment token, Secret %s/%s: %w", key.Namespace, secret.Name, err)
	}
	if why := access.CheckName(enrollment.Spec.NamePattern, o.host); why != "" {
		return fmt.Errorf("--host %s: %s", o.host, why)
	}
	if enrollment.Status.URL == "" {
		return fmt.Errorf("the Enrollment %s has no status.url yet: retry, or read its conditions", key)
	}
	printed, err := ignition.Pointer{
		URL:   enrollment.Status.URL + "?" + url.Values{"name": {o.host}}.Encode(),
		Token: token,
		CA:    []byte(enrollment.Status.CertificateAuthority),
	}.Marshal()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(o.streams.Out, "%s\n", printed)
	return err
}
