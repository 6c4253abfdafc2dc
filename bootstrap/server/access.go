package server

import "time"

// writeAccess writes a request to the access log. Its arguments contain no token and no part of an overlay.
func (s *Server) writeAccess(a *answer, refused *refusal, took time.Duration) {
	log := s.opts.Log
	if a.route.kind == kindHealth && refused == nil {
		log = log.V(5)
	}
	failed := refused != nil && refused.cause != nil
	if !failed && !log.Enabled() {
		return
	}
	values := append(make([]any, 0, 18), "method", a.request.Method, "kind", a.route.kind, "remote", a.request.RemoteAddr)
	if a.route.pointerID != "" {
		values = append(values, "pointer", a.route.pointerID)
	}
	if a.config.Name != "" {
		values = append(values, "PoolbootConfig", a.config)
	}
	values = append(values, "code", a.code, "bytes", a.bytes, "seconds", took.Seconds())
	if refused != nil {
		values = append(values, "why", refused.Message)
	}
	switch {
	case failed:
		log.Error(refused.cause, "Request refused", values...)
	case refused != nil:
		log.Info("Request refused", values...)
	default:
		log.Info("Request answered", values...)
	}
}
