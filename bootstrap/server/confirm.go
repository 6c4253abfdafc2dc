package server

import (
	"context"
	"net/http"
	"time"
)

// confirmTimeout limits the time to confirm a refusal that ends a boot. It takes at most two requests to the API
// server.
const confirmTimeout = 2 * time.Second

// isFinal reports whether an answer tells a host with a token, or with a certificate where one is accepted, that its
// request can never succeed. The caches of this replica can be stale, for example while it does not reach the API
// server, and another replica can have newer state.
func (s *Server) isFinal(err error, r *http.Request, kind string) bool {
	refused := refusalOf(err)
	return s.live != nil && refused != nil && (refused.code == http.StatusUnauthorized || refused.code == http.StatusForbidden) &&
		(bearerToken(r) != "" || len(chainOf(r)) > 0 && (kind == kindUpdate || kind == kindRendered))
}

// confirm answers the request again from the API server, or with 503 if that fails.
func (s *Server) confirm(ctx context.Context, w *answer, r *http.Request) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	return s.live.answer(ctx, w, r, w.route)
}
