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

// isBound tells whether the hash on record is this PoolbootConfig's, and not one of an earlier object of the same name that
// clusterctl move or a backup brought along. That of a host which enrolled is bound to its Enrollment instead.
func (r *Record) isBound() bool { return r.TokenUID == r.UID }

// accepts tells whether a token is that of the record's host. A revoked record accepts none.
func (r *Record) accepts(token string) bool {
	return r.isBound() && hostaccess.Config(r.NamespacedName, r.UID).Accepts(r.TokenSHA256, token)
}

// accepts tells whether a token is the Enrollment's.
func (e *Enrollment) accepts(token string) bool {
	return e.Secret != "" && hostaccess.Enrollment(e.NamespacedName, e.Secret).Accepts(e.TokenSHA256, token)
}
