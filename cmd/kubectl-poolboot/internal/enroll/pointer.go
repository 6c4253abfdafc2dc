package enroll

import (
	"context"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

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
		Args:                  cobra.ExactArgs(1),
		ValidArgsFunction:     input.CompleteFirst(input.CompleteFromCluster(to, input.Enrollments), cobra.ShellCompDirectiveNoFileComp),
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&o.host, "host", "", "the name of the host's Node")
	cli.Must(cmd.MarkFlagRequired("host"))
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
	if err := cluster.Get(ctx, key, enrollment); err != nil {
		return err
	}
	if err := cluster.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: enrollment.Spec.TokenSecretRef.Name}, secret); err != nil {
		return err
	}
	token, err := enroll.Token(secret)
	if err != nil {
		return fmt.Errorf("enrollment token, Secret %s/%s: %w", key.Namespace, secret.Name, err)
	}
	if why := enroll.Allows(enrollment.Spec.NamePattern, o.host); why != "" {
		return fmt.Errorf("--host %s: %s", o.host, why)
	}
	if enrollment.Status.URL == "" {
		return fmt.Errorf("Enrollment %s has no status.url yet: retry, or read its conditions", key)
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
