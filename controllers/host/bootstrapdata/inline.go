package bootstrapdata

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// inline returns the whole configuration of the machine, with its join credential. The ID of the credential is written
// to the status before the configuration is rendered. So after a crash, the next try uses the same credential, and a
// credential that a crash left unrecorded expires after join.Lifetime. From the annotations, the record can be read
// back from the Secret.
func (r *Phases) inline(ctx context.Context, s *state) ([]byte, map[string]string, error) {
	p, err := pool.OfRole(s.pools, s.Config.Status.PoolRole)
	if err != nil {
		return nil, nil, err
	}
	base, reference, err := r.rendered(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	configuration := p.Status.Configuration.Name
	registration, err := registration.Register(registration.Sources{
		NodeName:       s.Machine.Name,
		Cluster:        workload.Identity(ctx, r.ClusterCache, s.Cluster),
		Pool:           *p,
		Pools:          s.pools,
		Machine:        s.Machine,
		Config:         s.Config,
		RenderedConfig: configuration,
		SyncedLabels:   r.SyncedLabels,
	})
	if err != nil {
		return nil, nil, &reasonError{bootstrapv1.LabelConflictReason, err}
	}
	cluster, credential, err := r.joinFacts(ctx, s)
	if workload.IsUnreachable(err) {
		err = &reasonError{workload.UnreachableReason(err), err}
	}
	if err != nil {
		return nil, nil, err
	}
	machine, pointerID := join.Machine{Config: s.Config, Registration: registration, Cluster: cluster}, string(s.Machine.UID)
	if r.Offer != nil {
		offer, err := r.Offer()
		if err != nil {
			return nil, nil, err
		}
		if machine.Agent = offer.InlineAgent(s.Config, pointerID); machine.Agent != nil {
			in := join.Input{Config: s.Config.DeepCopy(), Pool: p, Pools: s.pools, Rendered: reference, Registration: registration, Cluster: cluster, Offer: offer}
			metav1.SetMetaDataAnnotation(&in.Config.ObjectMeta, bootstrapv1.PointerIDAnnotation, pointerID)
			if err := r.storeAssignment(ctx, in); err != nil {
				return nil, nil, err
			}
		}
	}
	overlay, err := machine.Overlay(credential)
	if err != nil {
		return nil, nil, err
	}
	value, err := ignition.Marshal(ignition.Merge(base, overlay))
	annotations := map[string]string{
		bootstrapv1.DataSecretPoolAnnotation:       p.Spec.PoolRole,
		bootstrapv1.OverlayConfigurationAnnotation: configuration,
		bootstrapv1.CredentialIDAnnotation:         credential.ID,
		bootstrapv1.OverlayExpiresAnnotation:       credential.Expires.UTC().Format(time.RFC3339),
	}
	if machine.Agent != nil {
		annotations[bootstrapv1.PointerIDAnnotation] = pointerID
	}
	return value, annotations, err
}

// storeAssignment stores what the data Secret says that the host runs: an upgrade, or another CA, can change what the
// manager would write before the host installs its agent, which then would find differences.
func (r *Phases) storeAssignment(ctx context.Context, in join.Input) error {
	document, err := join.Document(in)
	if err != nil {
		return err
	}
	_, err = assignments.Secrets{Client: r.Client, Namespace: r.OverlayNamespace}.Store(ctx, in.Config.UID, document, in.Cluster.CA)
	return err
}

// rendered returns the configuration that a pool hands out, and the reference to it.
func (r *Phases) rendered(ctx context.Context, p *poolv1.MachineConfigPool) (config ignition.Config, reference assignment.RenderedConfig, err error) {
	if !p.Status.Configuration.IsDefined() {
		return config, reference, &reasonError{bootstrapv1.PoolNotRenderedReason,
			fmt.Errorf("MachineConfigPool %s is not rendered: see its conditions", p.Name)}
	}
	rendered := &poolv1.MachineConfig{}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Status.Configuration.Name}, rendered); err != nil {
		return config, reference, err
	}
	served, err := pool.Served(rendered.Name, rendered.Spec)
	if err != nil {
		return config, reference, err
	}
	config, err = ignition.Parse(served)
	return config, assignment.RenderedConfig{Name: rendered.Name, SHA512: pool.ServedHash(served)}, err
}

// joinFacts returns how the host reaches its cluster, and its join credential. It records the ID of the credential.
func (r *Phases) joinFacts(ctx context.Context, s *state) (cluster join.Cluster, credential join.Credential, err error) {
	if cluster, err = workload.JoinCluster(ctx, r.ClusterCache, s.Cluster); err != nil {
		return cluster, credential, err
	}
	w, err := workload.Client(ctx, r.ClusterCache, client.ObjectKeyFromObject(s.Cluster))
	if err != nil {
		return cluster, credential, err
	}
	if err = r.approval.Check(ctx, w, s.Cluster.UID); err != nil {
		return cluster, credential, err
	}
	recorded := s.Config.Status.Boot.CredentialID
	credential, err = join.EnsureCredential(ctx, w, record.Key(s.Config).String(), recorded, join.Lifetime)
	if err != nil {
		return cluster, credential, err
	}
	recordCredential(s.Config, credential.ID, credential.Expires)
	err = s.Patch(ctx)
	switch {
	case recorded == credential.ID:
	case err == nil:
		err = join.DeleteCredential(ctx, w, recorded)
	default: // an unrecorded credential must not remain; the next try creates another
		err = errors.Join(err, join.DeleteCredential(ctx, w, credential.ID))
	}
	return cluster, credential, err
}

func recordCredential(config *bootstrapv1.PoolbootConfig, id string, expires time.Time) {
	config.Status.Boot.CredentialID = id
	config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expires}
}

// readInline returns the inline data Secret of a config, if it exists and is possibly not recorded. Then only the
// Secret shows for which pool it was created. It is read live, because a crash can have happened between the creation
// of the Secret and the record.
func (r *Phases) readInline(ctx context.Context, s *state) (*corev1.Secret, error) {
	if !s.Config.Spec.IsInline() || s.Config.Status.DataSecretName != "" && s.Config.Status.PoolRole != "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.Config), secret)
	if err != nil || !metav1.IsControlledBy(secret, s.Config) {
		return nil, client.IgnoreNotFound(err)
	}
	return secret, nil
}

// recordInline records what the annotations of an inline data Secret contain. It records the join credential only if
// the host has not joined and no credential is recorded yet.
func recordInline(config *bootstrapv1.PoolbootConfig, secret *corev1.Secret) {
	config.Status.Boot.ServedConfiguration.Name = secret.Annotations[bootstrapv1.OverlayConfigurationAnnotation]
	if record.HasJoined(config) || record.HasCredential(config) {
		return
	}
	if expires, err := time.Parse(time.RFC3339, secret.Annotations[bootstrapv1.OverlayExpiresAnnotation]); err == nil {
		recordCredential(config, secret.Annotations[bootstrapv1.CredentialIDAnnotation], expires)
	}
}
