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

// Kinds of paths, as in metrics and the access log.
const (
	kindConfig     = "config"
	kindEnrollment = "enrollment"
	kindRendered   = "rendered"
	kindUpdate     = "update"
	kindAgent      = "agent"
	kindHealth     = "health"
	kindUnknown    = "unknown"
)

// configParameter and pointerParameter, in this order, are the name of the PoolbootConfig and the pointer ID in the URL
// of a rendered config. They distinguish a wrong token, which can never succeed, from an unknown machine, which can
// still be restored.
const (
	configParameter  = "config"
	pointerParameter = "pointer"
)

// nameParameter is the name that a host without a Machine requests.
const nameParameter = "name"

// route is a parsed URL of the server.
type route struct {
	kind string
	// object is the PoolbootConfig of the requesting host or, for kindEnrollment, the Enrollment. Only objects in its
	// namespace are read for the answer. It is empty for kindAgent, which is the same for all hosts.
	object    types.NamespacedName
	pointerID string
	role      string // enrollments only
	name      string // of the rendered config, or the name that a host requests
	sha512    string // of the agent
	// Not from the URL:
	version string     // the spec version in which the host is answered
	from    netip.Addr // the address from which a machine's token is used
}

var (
	labelPattern     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	renderedPattern  = regexp.MustCompile(`^` + poolv1.RenderedNamePrefix + `[a-z0-9]([-.a-z0-9]{0,242}[a-z0-9])?$`)
	namePattern      = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	sha512Pattern    = regexp.MustCompile(`^[0-9a-f]{128}$`)
	pointerIDPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,62}$`)
)

// parseRoute parses a URL. It does not clean or decode it: a URL that differs from those that the server writes is
// unknown, except the query of an enrollment, which users write.
func parseRoute(u *url.URL) route {
	if u.EscapedPath() != u.Path {
		return route{kind: kindUnknown}
	}
	parts := strings.SplitN(u.Path, "/", 7) // no path has more than 6
	switch {
	case u.Path == "/healthz" || u.Path == "/readyz":
		return route{kind: kindHealth}
	case len(parts) == 5 && parts[1] == kindConfig && labelPattern.MatchString(parts[2]) && isObject(parts[3], parts[4]):
		return route{kind: kindEnrollment, role: parts[2], object: types.NamespacedName{Namespace: parts[3], Name: parts[4]}, name: u.Query().Get(nameParameter)}
	case len(parts) == 6 && parts[1] == kindConfig && labelPattern.MatchString(parts[2]) && isObject(parts[3], parts[4]) && pointerIDPattern.MatchString(parts[5]):
		return route{kind: kindConfig, object: types.NamespacedName{Namespace: parts[3], Name: parts[4]}, pointerID: parts[5]}
	case len(parts) == 5 && parts[1] == kindUpdate && isObject(parts[2], parts[3]) && pointerIDPattern.MatchString(parts[4]):
		return route{kind: kindUpdate, object: types.NamespacedName{Namespace: parts[2], Name: parts[3]}, pointerID: parts[4]}
	case len(parts) == 3 && parts[1] == kindAgent && sha512Pattern.MatchString(parts[2]):
		return route{kind: kindAgent, sha512: parts[2]}
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

// isObject reports whether these are a valid namespace and name of an object.
func isObject(namespace, name string) bool {
	return labelPattern.MatchString(namespace) && len(name) <= validation.DNS1123SubdomainMaxLength && namePattern.MatchString(name)
}

// renderedBase returns the common prefix of the URLs of rendered configs, below the server's external URL.
func renderedBase(external *url.URL) string {
	if external == nil {
		return ""
	}
	return external.JoinPath(kindRendered).String() + "/"
}

// renderedURL returns the URL of a rendered config for the host of one record. Its parts need no escapes: see the
// patterns.
func (s *Server) renderedURL(record *Record, name string) string {
	return s.base + record.Namespace + "/" + name + "?" + configParameter + "=" + record.Name + "&" + pointerParameter + "=" + record.PointerID
}
