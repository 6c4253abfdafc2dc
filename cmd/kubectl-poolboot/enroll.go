package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// enrollment prints the Secret of a new enrollment token.
type enrollment struct {
	streams                         genericiooptions.IOStreams
	cluster, role, names, namespace string
	ranges                          []string
	uses                            int
	life                            time.Duration
}

func newEnroll(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	e := &enrollment{streams: streams}
	cmd := &cobra.Command{
		Use:   "enroll NAME --cluster CLUSTER --pool ROLE --names PATTERN",
		Short: "Print the Secret of a new enrollment token",
		Long: `Print the Secret of a new enrollment token, with 256 random bits, by which hosts without a Machine are admitted to a pool.

Nothing is written anywhere: apply what is printed, and keep it secret.`,
		Example: `  # Twenty hosts edge-… of the pool infra, within a day
  kubectl poolboot enroll edge --cluster site --pool infra --names 'edge-*' --uses 20 --expires 24h -n metal | kubectl apply -f -`,
		Args:                  cobra.ExactArgs(1),
		ValidArgsFunction:     cobra.NoFileCompletions, // the name is new
		DisableFlagsInUseLine: true,
		RunE:                  func(_ *cobra.Command, args []string) error { return e.run(args[0], time.Now()) },
	}
	offerPool(cmd, &e.role)
	cmd.Flags().StringVar(&e.cluster, "cluster", "", "the Cluster that the hosts join")
	cmd.Flags().StringVar(&e.names, "names", "", "pattern of the names that hosts may take, such as 'edge-*', in quotes, or the shell expands it")
	cmd.Flags().StringSliceVar(&e.ranges, "address-ranges", nil, "address ranges of the hosts (CIDRs), within which their serving certificates may hold the address they enrolled from")
	cmd.Flags().IntVar(&e.uses, "uses", 1, "how many names may be taken")
	cmd.Flags().DurationVar(&e.life, "expires", 24*time.Hour, "how long the token lives")
	cmd.Flags().StringVarP(&e.namespace, "namespace", "n", "", "namespace of the pool; without it, that of kubectl apply")
	must(cmd.MarkFlagRequired("cluster"))
	must(cmd.MarkFlagRequired("names"))
	completeFlag(cmd, "pool", fromCluster(to, liveRoles))
	completeFlag(cmd, "cluster", fromCluster(to, clusterNames))
	completeFlag(cmd, "namespace", fromCluster(to, namespaceNames))
	for _, flag := range []string{"names", "address-ranges", "uses", "expires"} {
		completeFlag(cmd, flag, cobra.NoFileCompletions)
	}
	return cmd
}

func (e *enrollment) run(name string, now time.Time) error {
	if e.life <= 0 {
		return fmt.Errorf("--expires %s: the token would have expired already: give it some time to live, such as 24h", e.life)
	}
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	said := map[string]string{
		poolv1.EnrollmentTokenKey:   base64.RawURLEncoding.EncodeToString(bits[:]),
		poolv1.EnrollmentRoleKey:    e.role,
		poolv1.EnrollmentNamesKey:   e.names,
		poolv1.EnrollmentUsesKey:    strconv.Itoa(e.uses),
		poolv1.EnrollmentExpiresKey: now.Add(e.life).UTC().Format(time.RFC3339),
	}
	if len(e.ranges) > 0 {
		said[poolv1.EnrollmentAddressRangesKey] = strings.Join(e.ranges, ",")
	}
	secret := &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: e.namespace,
			Labels: map[string]string{clusterv1.ClusterNameLabel: e.cluster, clusterctlv1.ClusterctlMoveLabel: ""},
		},
		Type: poolv1.EnrollmentTokenType,
		Data: map[string][]byte{},
	}
	for key, value := range said {
		secret.Data[key] = []byte(value)
	}
	if _, err := enroll.Read(secret); err != nil {
		return err
	}
	secret.Data, secret.StringData = nil, said
	printed, err := yaml.Marshal(secret)
	if err != nil {
		return err
	}
	_, err = e.streams.Out.Write(printed)
	return err
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
		Example: `  # The host edge-7, by the enrollment token edge
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
	secret, published := &corev1.Secret{}, &poolv1.Enrollment{}
	if err := errors.Join(live.Get(ctx, key, secret), live.Get(ctx, key, published)); err != nil {
		return err
	}
	spec, err := enroll.Read(secret)
	if err != nil {
		return fmt.Errorf("enrollment token, Secret %s: %w", key, err)
	}
	if why := enroll.Allows(spec.NamePattern, p.host); why != "" {
		return fmt.Errorf("--host %s: %s", p.host, why)
	}
	if published.Status.URL == "" {
		return fmt.Errorf("enrollment %s does not say yet where hosts ask: try again, or see its conditions", key)
	}
	printed, err := ignition.Pointer{
		URL:   published.Status.URL + "?" + url.Values{"name": {p.host}}.Encode(),
		Token: string(secret.Data[poolv1.EnrollmentTokenKey]),
		CA:    []byte(published.Status.CertificateAuthority),
	}.Marshal()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.streams.Out, "%s\n", printed)
	return err
}
