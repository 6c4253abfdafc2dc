// Package hostaccess knows what a host holds to ask for its configuration, a URL and a token, and what is kept of the
// token outside its Secret. Manager and config server both use it, so that they agree. It is pure: no client, no I/O.
package hostaccess

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// NewToken returns 256 random bits as the bearer token of one host.
func NewToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// maxOwner is as long as a written owner is at most, its UID being one that Kubernetes makes.
const maxOwner = 512

// Owner is the object whose token it is. A token's hash is bound to its owner: copied to another object, or to a later
// one of the same name, it accepts no token.
type Owner struct {
	kind string
	name types.NamespacedName
	uid  types.UID
}

// Config is the owner of a machine's token: its PoolbootConfig.
func Config(name types.NamespacedName, uid types.UID) Owner {
	return Owner{kind: "poolbootconfig", name: name, uid: uid}
}

// Enrollment is the owner of an enrollment token: the Enrollment, and the Secret that holds the token.
func Enrollment(name types.NamespacedName, secret types.UID) Owner {
	return Owner{kind: "enrollment", name: name, uid: secret}
}

// Hash returns what is kept of a token outside its Secret, in hex: the SHA-256 of the token's SHA-256 and the owner's.
// No two owners are written alike, because neither a namespace nor a name has a slash.
func (o Owner) Hash(token string) string {
	sum := o.sum(token)
	return hex.EncodeToString(sum[:])
}

// Accepts tells whether a hash is that of a token of this owner, in constant time. What is no hash accepts no token.
func (o Owner) Accepts(hash, token string) bool {
	var want [sha256.Size]byte
	if len(hash) != hex.EncodedLen(len(want)) || token == "" {
		return false
	}
	if _, err := hex.Decode(want[:], []byte(hash)); err != nil {
		return false
	}
	sum := o.sum(token)
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}

// sum is made without garbage, for it is made for every request. What goes into the outer hash has a fixed length, so
// neither half can be shifted into the other.
func (o Owner) sum(token string) [sha256.Size]byte {
	var text [maxOwner]byte
	owner := append(text[:0], o.kind...)
	for _, part := range [...]string{o.name.Namespace, o.name.Name, string(o.uid)} {
		owner = append(append(owner, '/'), part...)
	}
	var both [2 * sha256.Size]byte
	half := sha256.Sum256([]byte(token))
	copy(both[:], half[:])
	half = sha256.Sum256(owner)
	copy(both[sha256.Size:], half[:])
	return sha256.Sum256(both[:])
}

// Annotations returns the annotations that put the hash of an owner's token on record.
func (o Owner) Annotations(token string) map[string]string {
	return map[string]string{bootstrapv1.TokenHashAnnotation: o.Hash(token), bootstrapv1.TokenUIDAnnotation: string(o.uid)}
}

// Rebind returns the annotations that bind to this owner what is on record of a token, and is bound to an earlier owner
// of the same name: one that clusterctl move or a restored backup replaced by this one. It returns nil unless the token
// is the one on record: who only copied annotations does not have it. The token's state stays as it is.
func (o Owner) Rebind(recorded record.Token, token string) map[string]string {
	earlier := o
	earlier.uid = recorded.UID
	if !earlier.Accepts(recorded.Hash, token) {
		return nil
	}
	return o.Annotations(token)
}
