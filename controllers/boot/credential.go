package boot

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// ensureCredential makes the host's join credential, or takes the one that lives. The record follows it, so one that a
// crash kept from being recorded has to go, and the one that is replaced with it: a host that asks anew uses neither.
func (r *Reconciler) ensureCredential(ctx context.Context, s *scope) (err error) {
	recorded := s.config.Status.Boot.CredentialID
	if s.otherHost || hasAsked(s.config) && join.IsUsed(s.config) { // which may still have it, or that can get nothing any more
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
