package hostaccess

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Recorded is what a PoolbootConfig's annotations say of its token.
type Recorded struct {
	// Hash is what Owner.Hash returned; empty while nothing is on record, and once the token was revoked.
	Hash string
	// UID is that of the owner that the hash is bound to.
	UID types.UID
	// State is why the token is not accepted; empty while it is.
	State bootstrapv1.TokenState
}

// Read reads a PoolbootConfig's annotations. The hash of a revoked token does not count, should somebody have put it
// back.
func Read(annotations map[string]string) Recorded {
	r := Recorded{
		Hash:  annotations[bootstrapv1.TokenHashAnnotation],
		UID:   types.UID(annotations[bootstrapv1.TokenUIDAnnotation]),
		State: bootstrapv1.TokenState(annotations[bootstrapv1.TokenStateAnnotation]),
	}
	if r.State == bootstrapv1.TokenStateRevoked {
		r.Hash = ""
	}
	return r
}

// Exists says whether a token is on record, accepted or not.
func (r Recorded) Exists() bool { return r.Hash != "" || r.State == bootstrapv1.TokenStateRevoked }

// HasJoined says whether a config's host has joined: its token was revoked when its Node was Ready in its pool.
func HasJoined(config *bootstrapv1.PoolbootConfig) bool {
	return Read(config.Annotations).State == bootstrapv1.TokenStateRevoked
}

// IsExpired says whether a config's token has expired before its host joined.
func IsExpired(config *bootstrapv1.PoolbootConfig) bool {
	return Read(config.Annotations).State == bootstrapv1.TokenStateExpired
}

// Revoke puts on record that a config's host has joined. The hash goes with it, so that nobody can accept the token who
// does not know the state: both must be written in one patch.
func Revoke(config *bootstrapv1.PoolbootConfig) {
	delete(config.Annotations, bootstrapv1.TokenHashAnnotation)
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked))
}

// Expire puts on record that a config's token has expired. The hash stays, so that a rotation knows the token that it
// replaces.
func Expire(config *bootstrapv1.PoolbootConfig) {
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateExpired))
}
