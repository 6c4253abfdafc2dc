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

// autoApprovedRetry is when a cluster is asked again that approves certificates by itself: nothing tells of the change.
const autoApprovedRetry = 30 * time.Second

// checkApproval finds a cluster that would give a certificate of any Node to whoever has the join credential: there
// none is made.
func (r *Reconciler) checkApproval(ctx context.Context, s *scope) error {
	err := r.approval.Check(ctx, s.workload, s.cluster.UID)
	if is[*join.AutoApprovedError](err) {
		return &failure{reason: bootstrapv1.CertificatesAutoApprovedReason, err: fmt.Errorf("no join credential is made: %w", err), waits: true, retry: autoApprovedRetry}
	}
	return err
}

// ensureCredential makes the host's join credential, or takes the one that lives. The record follows it, so one that a
// crash kept from being recorded has to go, and the one that is replaced with it: a host that asks anew uses neither.
func (r *Reconciler) ensureCredential(ctx context.Context, s *scope) (err error) {
	recorded := s.config.Status.Boot.CredentialID
	if s.otherHost || record.IsRequestPending(s.config) && record.IsCredentialUsed(s.config) { // which may still have it, or that can get nothing any more
		recorded = ""
	}
	if s.credential, err = join.EnsureCredential(ctx, s.workload, s.owner(), recorded, join.Life); err != nil {
		return err
	}
	if s.credential.ID == recorded || !s.triedBefore {
		return nil
	}
	return s.deleteOtherCredentials(ctx)
}

// deleteOtherCredentials deletes the credentials that were made for this config, all but the scope's own.
func (s *scope) deleteOtherCredentials(ctx context.Context) error {
	tokens := &corev1.SecretList{}
	if err := s.workload.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingFields{"type": string(bootstrapapi.SecretTypeBootstrapToken)}); err != nil {
		return err
	}
	var failed []error
	for i := range tokens.Items {
		id := string(tokens.Items[i].Data[bootstrapapi.BootstrapTokenIDKey])
		if id != s.credential.ID && join.IsCredentialOf(&tokens.Items[i], s.owner()) {
			failed = append(failed, join.DeleteCredential(ctx, s.workload, id))
		}
	}
	return errors.Join(failed...)
}
