package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// autoApprovedRetry is how soon a cluster that approves certificates automatically is checked again. No watch reports
// the change.
const autoApprovedRetry = 30 * time.Second

// checkApproval returns an error if the cluster approves certificates automatically. With a join credential, a client
// could then get a certificate for any Node, so none is created.
func (r *Phases) checkApproval(ctx context.Context, s *state) error {
	err := r.approval.Check(ctx, s.workload, s.Cluster.UID)
	if is[*join.AutoApprovedError](err) {
		return &failure{reason: bootstrapv1.CertificatesAutoApprovedReason, waits: true, retry: autoApprovedRetry,
			err: fmt.Errorf("no join credential is created: %w", err)}
	}
	return err
}

// ensureCredential creates the join credential of the host, or keeps the one that is still valid. The credential is
// recorded only afterwards. So a credential that a crash left unrecorded is deleted, together with the one that is
// replaced: a host that sends another request uses neither.
func (r *Phases) ensureCredential(ctx context.Context, s *state) (err error) {
	recorded := s.Config.Status.Boot.CredentialID
	if s.wasOtherHost || record.IsRequestPending(s.Config) && record.IsCredentialUsed(s.Config) {
		recorded = "" // the other host can still have it, or it was already used to obtain a certificate
	}
	if s.credential, err = join.EnsureCredential(ctx, s.workload, s.Owner(), recorded, join.Lifetime); err != nil {
		return err
	}
	if s.credential.ID == recorded || !s.nodeExisted {
		return nil
	}
	return s.deleteOtherCredentials(ctx)
}

// deleteOtherCredentials deletes all credentials of this config except the scope's own.
func (s *state) deleteOtherCredentials(ctx context.Context) error {
	tokens := &corev1.SecretList{}
	if err := s.workload.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingFields{"type": string(bootstrapapi.SecretTypeBootstrapToken)}); err != nil {
		return err
	}
	var errs []error
	for i := range tokens.Items {
		id := string(tokens.Items[i].Data[bootstrapapi.BootstrapTokenIDKey])
		if id != s.credential.ID && join.IsCredentialOf(&tokens.Items[i], s.Owner()) {
			errs = append(errs, join.DeleteCredential(ctx, s.workload, id))
		}
	}
	return errors.Join(errs...)
}
