package join

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// Group is the group of all join credentials. It can create certificate signing requests, but they are not approved
	// automatically: Poolboot approves each request only for the Node of the credential.
	Group = bootstrapapi.BootstrapDefaultGroup + ":poolboot"

	// Lifetime is the lifetime of a credential that is not extended. It is enough to download a configuration, restart
	// and register.
	Lifetime = 15 * time.Minute
	// MinLifetime is the minimum remaining lifetime of a credential that is given to a host.
	MinLifetime = 8 * time.Minute
)

// Credential is a bootstrap token of the workload cluster.
type Credential struct {
	// ID is the public part of the token. The user name of requests with the token is system:bootstrap:<ID>.
	ID string

	// Secret is the secret part of the token.
	Secret string `json:"-"`

	// Expires is the time when the token expires.
	Expires time.Time
}

// Token returns the full token, as a client sends it.
func (c Credential) Token() string { return bootstraputil.TokenFromIDAndSecret(c.ID, c.Secret) }

// String describes the credential without its secret.
func (c Credential) String() string {
	return fmt.Sprintf("bootstrap token %s until %s", c.ID, c.Expires.UTC().Format(time.RFC3339))
}

// GoString describes the credential without its secret.
func (c Credential) GoString() string { return c.String() }

// EnsureCredential returns the credential with the ID current if it belongs to the owner and is valid for at least
// MinLifetime. Otherwise it creates a new credential that is valid for ttl. The old credential then remains until it
// expires or is deleted: delete it after the new ID is recorded. owner is the PoolbootConfig, as <namespace>/<name>.
func EnsureCredential(ctx context.Context, w client.Client, owner, current string, ttl time.Duration) (Credential, error) {
	if bootstraputil.IsValidBootstrapTokenID(current) {
		secret := newTokenSecret(current)
		err := w.Get(ctx, client.ObjectKeyFromObject(secret), secret)
		if client.IgnoreNotFound(err) != nil {
			return Credential{}, fmt.Errorf("join credential of PoolbootConfig %s: %w", owner, err)
		}
		if credential, ok := readCredential(secret, owner); err == nil && ok && time.Until(credential.Expires) >= MinLifetime {
			return credential, nil
		}
	}
	token, err := bootstraputil.GenerateBootstrapToken()
	if err != nil {
		return Credential{}, fmt.Errorf("join credential of PoolbootConfig %s: %w", owner, err)
	}
	credential := newCredential(token, expiration(ttl))
	if err := createCredential(ctx, w, owner, credential); err != nil {
		return Credential{}, fmt.Errorf("join credential of PoolbootConfig %s: %w", owner, err)
	}
	return credential, nil
}

// RestoreCredential creates an expired credential again, with the ID and the secret that a host has. The credential is
// valid for ttl. RestoreCredential returns the time when it expires. The error is AlreadyExists if the credential still
// exists.
func RestoreCredential(ctx context.Context, w client.Client, owner string, credential Credential, ttl time.Duration) (time.Time, error) {
	if !bootstraputil.IsValidBootstrapToken(credential.Token()) {
		return time.Time{}, fmt.Errorf("join credential of PoolbootConfig %s: it is not a bootstrap token", owner)
	}
	credential.Expires = expiration(ttl)
	if err := createCredential(ctx, w, owner, credential); err != nil {
		return time.Time{}, fmt.Errorf("restore join credential %s of PoolbootConfig %s: %w", credential.ID, owner, err)
	}
	return credential.Expires, nil
}

func createCredential(ctx context.Context, w client.Client, owner string, credential Credential) error {
	secret := newTokenSecret(credential.ID)
	secret.Data = map[string][]byte{
		bootstrapapi.BootstrapTokenIDKey:               []byte(credential.ID),
		bootstrapapi.BootstrapTokenSecretKey:           []byte(credential.Secret),
		bootstrapapi.BootstrapTokenExpirationKey:       []byte(credential.Expires.Format(time.RFC3339)),
		bootstrapapi.BootstrapTokenDescriptionKey:      []byte(description(owner)),
		bootstrapapi.BootstrapTokenExtraGroupsKey:      []byte(Group),
		bootstrapapi.BootstrapTokenUsageAuthentication: []byte("true"),
	}
	return w.Create(ctx, secret)
}

// ExtendCredential makes a credential valid for ttl from now, and returns the time when it expires. The error is
// NotFound if the credential does not exist.
func ExtendCredential(ctx context.Context, w client.Client, id string, ttl time.Duration) (time.Time, error) {
	if !bootstraputil.IsValidBootstrapTokenID(id) {
		return time.Time{}, fmt.Errorf("join credential: %q is not the ID of a bootstrap token", id)
	}
	expires := expiration(ttl)
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{
		bootstrapapi.BootstrapTokenExpirationKey: []byte(expires.Format(time.RFC3339)),
	}})
	if err != nil {
		return time.Time{}, err
	}
	if err := w.Patch(ctx, newTokenSecret(id), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return time.Time{}, fmt.Errorf("extend join credential %s: %w", id, err)
	}
	return expires, nil
}

// DeleteCredential deletes a credential. It succeeds if the credential does not exist, and if the ID is empty.
func DeleteCredential(ctx context.Context, w client.Client, id string) error {
	if id == "" {
		return nil
	}
	if err := w.Delete(ctx, newTokenSecret(id)); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete join credential %s: %w", id, err)
	}
	return nil
}

// IsCredentialOf reports whether a Secret is a bootstrap token that was created for a PoolbootConfig. owner is the
// PoolbootConfig, as <namespace>/<name>.
func IsCredentialOf(secret *corev1.Secret, owner string) bool {
	return secret.Type == bootstrapapi.SecretTypeBootstrapToken &&
		string(secret.Data[bootstrapapi.BootstrapTokenDescriptionKey]) == description(owner)
}

// readCredential reads a bootstrap token from its Secret. ok is false if the token does not belong to the owner or is
// incomplete.
func readCredential(secret *corev1.Secret, owner string) (credential Credential, ok bool) {
	if !IsCredentialOf(secret, owner) {
		return Credential{}, false
	}
	expires, err := time.Parse(time.RFC3339, string(secret.Data[bootstrapapi.BootstrapTokenExpirationKey]))
	if err != nil {
		return Credential{}, false
	}
	credential = Credential{
		ID:      string(secret.Data[bootstrapapi.BootstrapTokenIDKey]),
		Secret:  string(secret.Data[bootstrapapi.BootstrapTokenSecretKey]),
		Expires: expires,
	}
	return credential, bootstraputil.IsValidBootstrapToken(credential.Token())
}

func newCredential(token string, expires time.Time) Credential {
	id, secret, _ := strings.Cut(token, ".")
	return Credential{ID: id, Secret: secret, Expires: expires}
}

// expiration returns the time after ttl, in whole seconds as in a bootstrap token.
func expiration(ttl time.Duration) time.Time { return time.Now().Add(ttl).UTC().Truncate(time.Second) }

func newTokenSecret(id string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: bootstraputil.BootstrapTokenSecretName(id)},
		Type:       bootstrapapi.SecretTypeBootstrapToken,
	}
}

func description(owner string) string {
	return "Poolboot's join credential for PoolbootConfig " + owner
}
