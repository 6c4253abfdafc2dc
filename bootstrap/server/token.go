package server

import (
	"net/http"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
)

// bearerToken returns the token of an Authorization header (RFC 6750), or "".
func bearerToken(r *http.Request) string {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// isBound reports whether the hash on record is that of this PoolbootConfig, and not that of an earlier object of the
// same name that clusterctl move or a backup replaced. The hash of a host that enrolled is bound to its Enrollment.
func (r *Record) isBound() bool { return r.Token.IsBoundTo(r.UID) }

// HasTokenOf reports whether two records have the same token, in the same state.
func (r *Record) HasTokenOf(other *Record) bool {
	return r.Token.Hash == other.Token.Hash && r.Token.State == other.Token.State
}

// accepts reports whether a token is that of the host of the record.
func (r *Record) accepts(token string) bool {
	return r.Token.IsAccepted() && r.isBound() && hostaccess.Config(r.NamespacedName, r.UID).Accepts(r.Token.Hash, token)
}

// accepts reports whether a token is that of the Enrollment.
func (e *Enrollment) accepts(token string) bool {
	return hostaccess.Enrollment(e.NamespacedName, e.TokenUID).Accepts(e.TokenSHA256, token)
}
