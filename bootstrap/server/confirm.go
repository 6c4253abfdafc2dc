package server

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// confirmTimeout bounds how long a refusal takes that ends a boot. The API server is asked for two objects at most.
const confirmTimeout = 2 * time.Second

// final tells whether an answer ends the boot of a host that has a token. What is known here may be behind, for as long
// as this replica does not reach the API server; another one may have answered the host a moment ago by what is so now.
func (s *Server) final(err error, r *http.Request) bool {
	refused := (*refusal)(nil)
	return s.live != nil && errors.As(err, &refused) && bearerToken(r) != "" &&
		(refused.code == http.StatusUnauthorized || refused.code == http.StatusForbidden)
}

// confirm answers once more, by what is so now; 503 when that can't be told.
func (s *Server) confirm(ctx context.Context, w *answer, r *http.Request) error {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	return s.live.answer(ctx, w, r, w.to)
}
