package update

import (
	"context"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// asFoundTarget returns what an adopted host should run that is to be as it was found: nothing but the agent.
func (r *Updates) asFoundTarget(h *host, in poolContext) (target, error) {
	switch {
	case len(in.facts.CA) == 0:
		return target{}, in.err
	case len(in.offer.Agent.SHA512) == 0:
		return target{}, errNoAgent
	}
	document, err := join.AsFoundDocument(h.Config.Status.NodeRef.Name, in.pool, in.offer)
	if err != nil {
		return target{}, err
	}
	return target{
		document: document, revision: assignment.Revision(document), configuration: assignment.AsFound().Name, clientCA: in.facts.CA,
		force: h.Config.Annotations[bootstrapv1.ForceUpdateAnnotation],
	}, nil
}

// stagePreview stores what an adopted host would get that is as it was found, and names it on its Node: the agent
// reports what that would change.
func (r *Updates) stagePreview(ctx context.Context, h *host, in poolContext) error {
	following := *h
	rolled := *h.Host
	following.Host, rolled.Config = &rolled, h.Config.DeepCopy()
	rolled.Config.Spec.Host.Adoption = bootstrapv1.AdoptionFollow
	t, err := r.targetOf(ctx, &following, in)
	switch {
	case isTransient(err):
		return err
	case err != nil:
		h.notPreviewed = err.Error()
		return nil //nolint:nilerr // The condition has it.
	}
	if err := r.storeUnlessStored(ctx, h, t); err != nil {
		return err
	}
	return r.nameNext(ctx, h, t.revision)
}
