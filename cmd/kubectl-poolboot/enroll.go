package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// enrollment prints a new Enrollment and the Secret with its token.
type enrollment struct {
	streams   genericiooptions.IOStreams
	namespace string
	spec      poolv1.EnrollmentSpec
	life      time.Duration
}

func newEnroll(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	e := &enrollment{streams: streams}
	cmd := &cobra.Command{
		Use:   "enroll NAME --cluster CLUSTER --pool ROLE --name-pattern PATTERN",
		Short: "Print a new Enrollment and its token",
		Long: `Print an Enrollment, by which hosts without a Machine are admitted to a pool, and the Secret with its token: 256 random bits.

Nothing is written anywhere: apply what is printed, and keep it secret.`,
		Example: `  # Twenty hosts edge-… of the pool infra, within a day
  kubectl poolboot enroll edge --cluster site --pool infra --name-pattern 'edge-*' --max-uses 20 --expires-in 24h -n metal | kubectl apply -f -`,
		Args:                  cobra.ExactArgs(1),
		ValidArgsFunction:     cobra.NoFileCompletions, // the name is new
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.run(args[0], time.Now()); err != nil {
				return err
			}
			e.warn(cmd.Context(), to)
			return nil
		},
	}
	offerPool(cmd, &e.spec.PoolRole)
	cmd.Flags().StringVar(&e.spec.ClusterName, "cluster", "", "the Cluster that the hosts join")
	cmd.Flags().StringVar(&e.spec.NamePattern, "name-pattern", "", "pattern of the names that hosts may take, such as 'edge-*', in quotes, or the shell expands it")
	cmd.Flags().StringSliceVar(&e.spec.AddressRanges, "address-ranges", nil, "address ranges of the hosts (CIDRs), within which their serving certificates may hold the address they enrolled from")
	cmd.Flags().Int32Var(&e.spec.MaxUses, "max-uses", 1, "how many names may be taken")
	cmd.Flags().DurationVar(&e.life, "expires-in", 24*time.Hour, "how long hosts are admitted")
	cmd.Flags().StringVarP(&e.namespace, "namespace", "n", "", "namespace of the pool; without it, that of kubectl apply")
	must(cmd.MarkFlagRequired("cluster"))
	must(cmd.MarkFlagRequired("name-pattern"))
	completeFlag(cmd, "pool", fromCluster(to, liveRoles))
	completeFlag(cmd, "cluster", fromCluster(to, clusterNames))
	completeFlag(cmd, "namespace", fromCluster(to, namespaceNames))
	for _, flag := range []string{"name-pattern", "address-ranges", "max-uses", "expires-in"} {
		completeFlag(cmd, flag, cobra.NoFileCompletions)
	}
	return cmd
}

func (e *enrollment) run(name string, now time.Time) error {
	if e.life <= 0 {
		return fmt.Errorf("--expires-in %s: the token would have expired already: give a time to live, such as 24h", e.life)
	}
	if err := enroll.Check(e.spec); err != nil {
		return err
	}
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	spec := e.spec
	spec.ExpirationTime = metav1.NewTime(now.Add(e.life).UTC().Truncate(time.Second))
	spec.TokenSecretRef.Name = name
	meta := metav1.ObjectMeta{Name: name, Namespace: e.namespace}
	secret := &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: meta,
		Type:       poolv1.EnrollmentTokenType,
		StringData: map[string]string{poolv1.EnrollmentTokenKey: base64.RawURLEncoding.EncodeToString(bits[:])},
	}
	secret.Labels = map[string]string{clusterctlv1.ClusterctlMoveLabel: ""}
	admits := &poolv1.Enrollment{
		TypeMeta:   metav1.TypeMeta{APIVersion: poolv1.GroupVersion.String(), Kind: "Enrollment"},
		ObjectMeta: meta,
		Spec:       spec,
	}
	for i, object := range []any{secret, admits} {
		printed, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		separator := ""
		if i > 0 {
			separator = "---\n"
		}
		if _, err := fmt.Fprintf(e.streams.Out, "%s%s", separator, printed); err != nil {
			return err
		}
	}
	return nil
}

// warn says on standard error what keeps hosts from being admitted, as far as the management cluster can be read: the
// condition Ready of the Enrollment says it too, but later.
func (e *enrollment) warn(ctx context.Context, to connection) {
	live, namespace, _, err := to.open()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var pools poolv1.MachineConfigPoolList
	if err := live.List(ctx, &pools, client.InNamespace(cmp.Or(e.namespace, namespace))); err != nil {
		return
	}
	ofCluster := slices.DeleteFunc(pools.Items, func(p poolv1.MachineConfigPool) bool { return p.Spec.ClusterName != e.spec.ClusterName })
	switch found, err := pool.OfRole(ofCluster, e.spec.PoolRole); {
	case err != nil:
		_, _ = fmt.Fprintf(e.streams.ErrOut, "warning: no host is admitted yet: Cluster %s: %s\n", printable(e.spec.ClusterName), printable(err.Error()))
	case found.Spec.HostTemplateRef.Name == "":
		_, _ = fmt.Fprintf(e.streams.ErrOut, "warning: no host is admitted yet: MachineConfigPool %s takes Machines only: name a PoolbootConfigTemplate in its spec.hostTemplateRef\n",
			printable(found.Name))
	}
}

// pointer prints what is put on a host that enrolls.
type pointer struct {
	connection
	streams genericiooptions.IOStreams
	host    string
}

func newPointer(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	p := &pointer{streams: streams, connection: to}
	cmd := &cobra.Command{
		Use:   "pointer NAME --host HOST",
		Short: "Print the Ignition of a host that enrolls",
		Long: `Print the Ignition to put into the ISO or the user data of one host that has no Machine: where it asks for its configuration,
with which enrollment token and under which name. It holds the token: keep it secret.`,
		Example: `  # The host edge-7, by the Enrollment edge
  kubectl poolboot pointer edge --host edge-7 -n metal > edge-7.ign`,
		Args:                  cobra.ExactArgs(1),
		ValidArgsFunction:     onlyFirst(fromCluster(to, enrollmentNames), cobra.ShellCompDirectiveNoFileComp),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return p.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&p.host, "host", "", "the name that the host's Node gets")
	must(cmd.MarkFlagRequired("host"))
	completeFlag(cmd, "host", cobra.NoFileCompletions)
	offerConnection(cmd, to)
	return cmd
}

func (p *pointer) run(ctx context.Context, name string) error {
	live, namespace, _, err := p.open()
	if err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	admits, secret := &poolv1.Enrollment{}, &corev1.Secret{}
	if err := live.Get(ctx, key, admits); err != nil {
		return err
	}
	if err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: admits.Spec.TokenSecretRef.Name}, secret); err != nil {
		return err
	}
	token, err := enroll.Token(secret)
	if err != nil {
		return fmt.Errorf("enrollment token, Secret %s/%s: %w", namespace, secret.Name, err)
	}
	if why := enroll.Allows(admits.Spec.NamePattern, p.host); why != "" {
		return fmt.Errorf("--host %s: %s", p.host, why)
	}
	if admits.Status.URL == "" {
		return fmt.Errorf("the status of Enrollment %s does not say yet where hosts ask: retry, or see its conditions", key)
	}
	printed, err := ignition.Pointer{
		URL:   admits.Status.URL + "?" + url.Values{"name": {p.host}}.Encode(),
		Token: token,
		CA:    []byte(admits.Status.CertificateAuthority),
	}.Marshal()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.streams.Out, "%s\n", printed)
	return err
}
