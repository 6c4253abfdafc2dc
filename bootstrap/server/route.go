package server

import (
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Kinds of paths, as metrics and the access log name them.
const (
	kindConfig     = "config"
	kindEnrollment = "enrollment"
	kindRendered   = "rendered"
	kindHealth     = "health"
	kindUnknown    = "unknown"
)

// configParameter and pointerParameter, in this order, carry the name of the PoolbootConfig and the pointer id in the
// URL of a rendered config, so that a wrong token (never succeeds) can be told from an unknown machine (may still be
// restored).
const (
	configParameter  = "config"
	pointerParameter = "pointer"
)

// nameParameter carries the name that a host without a Machine wants to have.
const nameParameter = "name"

// route is a parsed URL of the server.
type route struct {
	kind string
	// object is the PoolbootConfig of the host that asks or, for kindEnrollment, the Enrollment. Only what is in its
	// namespace is looked at for the answer.
	object    types.NamespacedName
	pointerID string
	role      string // enrollments only
	name      string // of the rendered config, or what a host wants to be called
	// Not of the URL:
	version string     // the spec version in which the host is answered
	from    netip.Addr // where a machine's token comes from
}

var (
	labelPattern     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	renderedPattern  = regexp.MustCompile(`^` + poolv1.RenderedNamePrefix + `[a-z0-9]([-.a-z0-9]{0,242}[a-z0-9])?$`)
	namePattern      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	pointerIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
)

// parseRoute reads a URL. Nothing is cleaned or decoded on the way: what is not written exactly as the server
// itself writes it is unknown, but for the query of an enrollment, which people write.
func parseRoute(u *url.URL) route {
	if u.EscapedPath() != u.Path {
		return route{kind: kindUnknown}
	}
	var all [7]string // more than any path has
	parts := all[:0]
	for rest, more := u.Path, true; more && len(parts) < len(all); {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		parts = append(parts, part)
	}
	switch {
	case u.Path == "/healthz" || u.Path == "/readyz":
		return route{kind: kindHealth}
	case len(parts) == 5 && parts[1] == kindConfig && labelPattern.MatchString(parts[2]) && isObject(parts[3], parts[4]):
		return route{kind: kindEnrollment, role: parts[2], object: types.NamespacedName{Namespace: parts[3], Name: parts[4]}, name: u.Query().Get(nameParameter)}
	case len(parts) == 6 && parts[1] == kindConfig && labelPattern.MatchString(parts[2]) && isObject(parts[3], parts[4]) && pointerIDPattern.MatchString(parts[5]):
		return route{kind: kindConfig, object: types.NamespacedName{Namespace: parts[3], Name: parts[4]}, pointerID: parts[5]}
	case len(parts) == 4 && parts[1] == kindRendered && renderedPattern.MatchString(parts[3]):
		config, id, _ := strings.Cut(u.RawQuery, "&")
		config, isConfig := strings.CutPrefix(config, configParameter+"=")
		id, isID := strings.CutPrefix(id, pointerParameter+"=")
		if isConfig && isID && isObject(parts[2], config) && pointerIDPattern.MatchString(id) {
			return route{kind: kindRendered, object: types.NamespacedName{Namespace: parts[2], Name: config}, name: parts[3], pointerID: id}
		}
	}
	return route{kind: kindUnknown}
}

// isObject tells whether these may be an object's namespace and name.
func isObject(namespace, name string) bool {
	return labelPattern.MatchString(namespace) && len(name) <= validation.DNS1123SubdomainMaxLength && namePattern.MatchString(name)
}

// renderedBase is what the URLs of rendered configs begin with, below the server's external URL.
func renderedBase(external *url.URL) string {
	if external == nil {
		return ""
	}
	return external.JoinPath(kindRendered).String() + "/"
}

// renderedURL is the URL of a rendered config for the host of one record. What it is put together from needs no
// escapes: see the patterns.
func (s *Server) renderedURL(record *Record, name string) string {
	return s.base + record.Namespace + "/" + name + "?" + configParameter + "=" + record.Name + "&" + pointerParameter + "=" + record.PointerID
}
