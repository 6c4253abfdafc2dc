package server

import (
	"net/http"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
)

// bearerToken returns the token of an Authorization header (RFC 6750), or "".
func bearerToken(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// isBound reports whether the recorded hash is bound to this PoolbootConfig, and not to an earlier object with the same
// name, as after clusterctl move or the restore of a backup. The hash of a host that enrolled is bound to its
// Enrollment.
func (r *Record) isBound() bool { return r.Token.IsBoundTo(r.UID) }

// HasSameToken reports whether two records have the same token, in the same state.
func (r *Record) HasSameToken(other *Record) bool {
	return r.Token.Hash == other.Token.Hash && r.Token.State == other.Token.State
}

// accepts reports whether a token is the current token of the host.
func (r *Record) accepts(token string) bool {
	return r.Token.IsAccepted() && r.isBound() && access.Config(r.NamespacedName, r.UID).Accepts(r.Token.Hash, token)
}

// accepts reports whether a token is the current token of the Enrollment.
func (e *Enrollment) accepts(token string) bool {
	return access.Enrollment(e.NamespacedName, e.TokenUID).Accepts(e.TokenSHA256, token)
}
