package server

import (
	"net/http"
	"strings"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
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

// isBound tells whether the hash on record is this PoolbootConfig's, and not one of an earlier object of the same name
// that clusterctl move or a backup brought along. That of a host which enrolled is bound to its Enrollment instead.
func (r *Record) isBound() bool { return r.TokenUID == r.UID }

// isRevoked tells whether the host has joined: its token is never accepted again.
func (r *Record) isRevoked() bool { return r.TokenState == bootstrapv1.TokenStateRevoked }

// hasStateUnknown tells whether the token is in a state that this config server does not know.
func (r *Record) hasStateUnknown() bool {
	return r.TokenState != "" && r.TokenState != bootstrapv1.TokenStateExpired && !r.isRevoked()
}

// HasTokenOf tells whether two records have the same token, in the same state.
func (r *Record) HasTokenOf(other *Record) bool {
	return r.TokenSHA256 == other.TokenSHA256 && r.TokenState == other.TokenState
}

// accepts tells whether a token is that of the record's host. A record with a state of the token, whatever it is,
// accepts none.
func (r *Record) accepts(token string) bool {
	return r.TokenState == "" && r.isBound() && hostaccess.Config(r.NamespacedName, r.UID).Accepts(r.TokenSHA256, token)
}

// accepts tells whether a token is the Enrollment's.
func (e *Enrollment) accepts(token string) bool {
	return hostaccess.Enrollment(e.NamespacedName, e.TokenUID).Accepts(e.TokenSHA256, token)
}
