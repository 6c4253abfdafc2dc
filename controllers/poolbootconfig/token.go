package poolbootconfig

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"strings"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// newToken returns 256 random bits as the bearer token of one host.
func newToken() string {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(bits[:])
}

// tokenHash returns what is kept of a token outside the data Secret.
func tokenHash(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// recordedHash is the hash of a config's token, whether that has expired or not; "" while none is on record.
func recordedHash(config *bootstrapv1.PoolbootConfig) string {
	return strings.TrimPrefix(config.Annotations[bootstrapv1.TokenHashAnnotation], bootstrapv1.TokenExpiredPrefix)
}

// pointerURL is where a host asks for its configuration. The role in it is for people to read.
func pointerURL(server, role, pointerID string) string {
	return server + "/config/" + url.PathEscape(role) + "/" + url.PathEscape(pointerID)
}

// pointerID returns the last part of a pointer's URL.
func pointerID(pointer string) (string, error) {
	u, err := url.Parse(pointer)
	if err != nil {
		return "", err
	}
	id := path.Base(u.Path)
	if id == "/" || id == "." {
		return "", fmt.Errorf("URL %q has no path", pointer)
	}
	return id, nil
}

// pointerRole returns the role in a pointer's URL; "" when there is none.
func pointerRole(pointer string) string {
	u, err := url.Parse(pointer)
	if err != nil {
		return ""
	}
	if parts := strings.Split(u.Path, "/"); len(parts) > 2 {
		return parts[len(parts)-2]
	}
	return ""
}
