package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// NewToken returns a bearer token of 256 random bits for one host.
func NewToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand terminates the process instead
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// maxOwner is the maximum length of an owner as text, if Kubernetes generated its UID.
const maxOwner = 512

// Owner is the object that a token belongs to. The hash of a token is bound to its owner: a hash that is copied to
// another object, or to a later object with the same name, accepts no token.
type Owner struct {
	kind string
	name types.NamespacedName
	uid  types.UID
}

// Config returns the owner of the token of a machine: its PoolbootConfig.
func Config(name types.NamespacedName, uid types.UID) Owner {
	return Owner{kind: "poolbootconfig", name: name, uid: uid}
}

// Enrollment returns the owner of an enrollment token: the Enrollment and the Secret that has the token.
func Enrollment(name types.NamespacedName, secret types.UID) Owner {
	return Owner{kind: "enrollment", name: name, uid: secret}
}

// Hash returns the hash of a token that is recorded outside its Secret, in hexadecimal: the SHA-256 sum of the sums of
// the token and of the owner. Two owners never have the same text, because neither a namespace nor a name contains a
// slash.
func (o Owner) Hash(token string) string {
	sum := o.sum(token)
	return hex.EncodeToString(sum[:])
}

// Accepts reports whether a hash is that of a token of this owner, in constant time. An invalid hash accepts no token.
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

// sum returns the hash of a token. It does not allocate memory on the heap, because it runs for every request. Both
// inputs of the outer hash have a fixed length, so bytes of one cannot be taken for bytes of the other.
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

// Annotations returns the annotations that record the hash of a token of this owner.
func (o Owner) Annotations(token string) map[string]string {
	return map[string]string{bootstrapv1.TokenHashAnnotation: o.Hash(token), bootstrapv1.TokenUIDAnnotation: string(o.uid)}
}

// Rebind returns the annotations that bind a recorded token to this owner. The record is bound to an earlier owner of
// the same name, which clusterctl move or a restored backup replaced with this one. Rebind returns nil if the token is
// not the recorded one: a client that only copied annotations does not have the token. The state of the token does not
// change.
func (o Owner) Rebind(recorded record.Token, token string) map[string]string {
	earlier := o
	earlier.uid = recorded.UID
	if !earlier.Accepts(recorded.Hash, token) {
		return nil
	}
	return o.Annotations(token)
}

// configPath is the prefix of the paths from which hosts request their configuration.
const configPath = "/config/"

// Address is the path from which the host of a machine requests its configuration, relative to the URL of the config
// server. It contains the namespace and name of the PoolbootConfig, so objects in other namespaces do not affect the
// response.
type Address struct {
	// Role is the role of the pool. It is only for information.
	Role string
	types.NamespacedName
	// PointerID distinguishes the PoolbootConfig from earlier and later ones with the same name.
	PointerID string
}

// URL returns the URL for the pointer of a host.
func (a Address) URL(server string) string {
	return server + configPath + url.PathEscape(a.Role) + "/" + a.Namespace + "/" + a.Name + "/" + url.PathEscape(a.PointerID)
}

// ParseURL parses a URL that Address.URL returned.
func ParseURL(pointer string) (Address, error) {
	u, err := url.Parse(pointer)
	if err != nil {
		return Address{}, err
	}
	_, path, _ := strings.Cut(u.Path, configPath)
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[1] == "" || parts[2] == "" || parts[3] == "" {
		return Address{}, fmt.Errorf("URL %q is not <server>%s<role>/<namespace>/<name>/<pointer id>", pointer, configPath)
	}
	return Address{Role: parts[0], NamespacedName: types.NamespacedName{Namespace: parts[1], Name: parts[2]}, PointerID: parts[3]}, nil
}

// EnrollmentURL returns the URL from which hosts with the token of an Enrollment request their configuration. The host
// adds the name that it requests: <URL>?name=<name>.
func EnrollmentURL(server, role string, enrollment types.NamespacedName) string {
	return server + configPath + url.PathEscape(role) + "/" + enrollment.Namespace + "/" + enrollment.Name
}
