package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"
)

// bearerToken returns the token of an Authorization header (RFC 6750), or "".
func bearerToken(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// accepts tells whether a token is that of the record's host, in constant time. A revoked record accepts none.
func (r *Record) accepts(token string) bool {
	if len(r.TokenSHA256) != hex.EncodedLen(sha256.Size) || token == "" {
		return false
	}
	var want [sha256.Size]byte
	if _, err := hex.Decode(want[:], []byte(r.TokenSHA256)); err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], want[:]) == 1
}
