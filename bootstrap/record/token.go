package record

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Token is the record of the token of a host, from the annotations of its PoolbootConfig.
type Token struct {
	// Hash is the result of access.Owner.Hash. It is empty while no token is on record, and after the token was
	// revoked.
	Hash string
	// UID is the UID of the owner that the hash is bound to.
	UID types.UID
	// State is the reason why the token is not accepted. It is empty while the token is accepted.
	State bootstrapv1.TokenState
}

// TokenOf returns the record of the token of a PoolbootConfig's host. It ignores the hash of a revoked token, because
// the annotation can have been restored.
func TokenOf(config *bootstrapv1.PoolbootConfig) Token {
	t := Token{
		Hash:  config.Annotations[bootstrapv1.TokenHashAnnotation],
		UID:   types.UID(config.Annotations[bootstrapv1.TokenUIDAnnotation]),
		State: bootstrapv1.TokenState(config.Annotations[bootstrapv1.TokenStateAnnotation]),
	}
	if t.IsRevoked() {
		t.Hash = ""
	}
	return t
}

// Exists reports whether a token is on record, accepted or not.
func (t Token) Exists() bool { return t.Hash != "" || t.IsRevoked() }

// IsAccepted reports whether the config server accepts the token. It never accepts a token that has a state, not even
// an unknown state.
func (t Token) IsAccepted() bool { return t.State == "" }

// IsRevoked reports whether the token was revoked because its host joined. A revoked token is never accepted again.
func (t Token) IsRevoked() bool { return t.State == bootstrapv1.TokenStateRevoked }

// IsExpired reports whether the token expired before its host joined. A rotation replaces it.
func (t Token) IsExpired() bool { return t.State == bootstrapv1.TokenStateExpired }

// IsStateUnknown reports whether the token has a state that this program does not know.
func (t Token) IsStateUnknown() bool { return !t.IsAccepted() && !t.IsRevoked() && !t.IsExpired() }

// IsBoundTo reports whether the hash is bound to the object with a UID, and not to an earlier object of the same name
// that clusterctl move or a restored backup replaced.
func (t Token) IsBoundTo(uid types.UID) bool { return t.UID == uid }

// HasJoined reports whether the host of a PoolbootConfig has joined: its token was revoked when its Node was Ready in
// its pool. The answer survives clusterctl move.
func HasJoined(config *bootstrapv1.PoolbootConfig) bool { return TokenOf(config).IsRevoked() }

// IsTokenExpired reports whether the token of a PoolbootConfig's host expired before the host joined.
func IsTokenExpired(config *bootstrapv1.PoolbootConfig) bool { return TokenOf(config).IsExpired() }

// RevokeToken records that the host has joined. It also removes the hash, for programs that do not know the state. Both
// changes must be in one patch.
func RevokeToken(config *bootstrapv1.PoolbootConfig) {
	delete(config.Annotations, bootstrapv1.TokenHashAnnotation)
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked))
}

// ExpireToken records that the token has expired. It keeps the hash, because a rotation compares it with the token that
// it replaces.
func ExpireToken(config *bootstrapv1.PoolbootConfig) {
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateExpired))
}

// IsRotationRequested reports whether a user has requested a new token.
func IsRotationRequested(config *bootstrapv1.PoolbootConfig) bool {
	return metav1.HasAnnotation(config.ObjectMeta, bootstrapv1.RotateTokenAnnotation)
}
