package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// ignitionType is the media type of Ignition.
const ignitionType = "application/vnd.coreos.ignition+json"

// versionFor returns the spec version in which a host is answered, by its Accept header (RFC 9110, section 12.5.1): the newest of
// ignition.VersionsWritten that it reads. Ignition names the newest version that it reads, as a parameter of its media type, and
// reads those before it of the same major version too (its source, v2.27.0, internal/resource/url.go):
//
//	Accept: application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1
//
// Who says nothing about Ignition gets the newest. Who names versions and none that is written, or accepts neither Ignition nor
// everything, can never be answered.
func versionFor(r *http.Request) (string, error) {
	accepted := r.Header.Values("Accept")
	newest, anything, named := -1, len(accepted) == 0, false
	for _, header := range accepted {
		for element := range strings.SplitSeq(header, ",") {
			media, parameters, _ := strings.Cut(element, ";")
			media, version := strings.TrimSpace(media), parameter(parameters, "version")
			switch {
			case refused(parameter(parameters, "q")):
			case media == "*/*", media == "application/*", strings.EqualFold(media, ignitionType) && version == "":
				anything = true
			case strings.EqualFold(media, ignitionType):
				named = true
				newest = max(newest, indexOf(version))
			}
		}
	}
	switch {
	case newest >= 0:
		return ignition.VersionsWritten[newest], nil
	case anything && !named:
		return ignition.Version, nil
	}
	return "", &refusal{code: http.StatusNotAcceptable, Word: "NotAcceptable", Message: fmt.Sprintf(
		"the Accept header names no Ignition version that this server writes, which are 3.0.0 to %s: boot an image with Ignition 2", ignition.Version)}
}

// parameter returns the value of a media range's parameter, or "".
func parameter(parameters, name string) string {
	for each := range strings.SplitSeq(parameters, ";") {
		if key, value, _ := strings.Cut(each, "="); strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// refused says whether a weight is that of what is not acceptable.
func refused(weight string) bool {
	q, err := strconv.ParseFloat(weight, 64)
	return weight != "" && err == nil && q == 0
}

// indexOf returns which of ignition.VersionsWritten is the newest for a host that reads a version, or -1.
func indexOf(version string) int {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(minor, 10, 16)
	if major != "3" || err != nil {
		return -1
	}
	return min(int(n), len(ignition.VersionsWritten)-1)
}

// tooOld tells a host that its Ignition is too old for what it is to boot with. It is told to try again: its pool's
// MachineConfigs may still change.
func (s *Server) tooOld(what string, older *ignition.VersionError) *refusal {
	s.opts.Metrics.tooOld.WithLabelValues(older.Version).Inc()
	return &refusal{code: http.StatusServiceUnavailable, Word: "IgnitionTooOld", Message: fmt.Sprintf(
		"%s: %s, and this host's Ignition reads nothing newer: take it out of the MachineConfigs, or boot an image whose Ignition reads %s",
		what, older, ignition.Version)}
}
