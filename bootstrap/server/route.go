package server

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Kinds of paths, as metrics and the access log name them.
const (
	kindConfig    = "config"
	kindEnrolment = "enrolment"
	kindRendered  = "rendered"
	kindHealth    = "health"
	kindUnknown   = "unknown"
)

// pointerParameter carries the pointer id in the URL of a rendered config, so that a wrong token (never succeeds) can be
// told from an unknown machine (may still be restored).
const pointerParameter = "pointer"

// nameParameter carries the name that a host without a Machine wants to have.
const nameParameter = "name"

// route is a parsed URL of the server.
type route struct {
	kind      string
	pointerID string
	role      string // enrolments only
	namespace string // rendered configs only
	name      string // of the rendered config, or what a host wants to be called
	// Not of the URL:
	version string     // the spec version in which the host is answered
	from    netip.Addr // where a machine's token comes from
}

var (
	labelPattern     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	renderedPattern  = regexp.MustCompile(`^` + poolv1.RenderedNamePrefix + `[a-z0-9]([-.a-z0-9]{0,242}[a-z0-9])?$`)
	pointerIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
)

// parseRoute reads a URL. Nothing is cleaned or decoded on the way: what is not written exactly as the server
// itself writes it is unknown, but for the query of an enrolment, which people write.
func parseRoute(u *url.URL) route {
	if u.EscapedPath() != u.Path {
		return route{kind: kindUnknown}
	}
	var all [5]string // more than any path has
	parts := all[:0]
	for rest, more := u.Path, true; more && len(parts) < len(all); {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		parts = append(parts, part)
	}
	switch {
	case u.Path == "/healthz" || u.Path == "/readyz":
		return route{kind: kindHealth}
	case len(parts) == 3 && parts[1] == kindConfig && labelPattern.MatchString(parts[2]):
		return route{kind: kindEnrolment, role: parts[2], name: u.Query().Get(nameParameter)}
	case len(parts) == 4 && parts[1] == kindConfig && labelPattern.MatchString(parts[2]) && pointerIDPattern.MatchString(parts[3]):
		return route{kind: kindConfig, pointerID: parts[3]}
	case len(parts) == 4 && parts[1] == kindRendered && labelPattern.MatchString(parts[2]) && renderedPattern.MatchString(parts[3]):
		id, _ := strings.CutPrefix(u.RawQuery, pointerParameter+"=")
		if pointerIDPattern.MatchString(id) {
			return route{kind: kindRendered, namespace: parts[2], name: parts[3], pointerID: id}
		}
	}
	return route{kind: kindUnknown}
}

// renderedBase is what the URLs of rendered configs begin with, below the server's external URL.
func renderedBase(external *url.URL) string {
	if external == nil {
		return ""
	}
	return external.JoinPath(kindRendered).String() + "/"
}

// renderedURL is the URL of a rendered config for one machine. What it is put together from needs no escapes: see the patterns.
func (s *Server) renderedURL(namespace, name, pointerID string) string {
	return s.base + namespace + "/" + name + "?" + pointerParameter + "=" + pointerID
}
