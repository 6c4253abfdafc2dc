package server

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// ignitionType is the media type of Ignition.
const ignitionType = "application/vnd.coreos.ignition+json"

// versionFor returns the spec version in which a host is answered, by its Accept header (RFC 9110, section 12.5.1): the
// newest of ignition.VersionsWritten that it reads. Ignition names the newest version that it reads, as a parameter of
// its media type, and reads those before it of the same major version too (its source, v2.27.0,
// internal/resource/url.go):
//
//	Accept: application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1
//
// Who says nothing about Ignition gets the newest. Who names versions and none that is written, or accepts neither
// Ignition nor everything, can never be answered.
func versionFor(r *http.Request) (string, error) {
	accepted := r.Header.Values("Accept")
	newest, anything, named := -1, len(accepted) == 0, []string{}
	for _, header := range accepted {
		for element := range strings.SplitSeq(header, ",") {
			media, parameters, _ := strings.Cut(element, ";")
			media, version := strings.TrimSpace(media), parameter(parameters, "version")
			switch {
			case refused(parameter(parameters, "q")):
			case media == "*/*", media == "application/*", strings.EqualFold(media, ignitionType) && version == "":
				anything = true
			case strings.EqualFold(media, ignitionType):
				named = append(named, version)
				newest = max(newest, indexOf(version))
			}
		}
	}
	switch {
	case newest >= 0:
		return ignition.VersionsWritten[newest], nil
	case anything && len(named) == 0:
		return ignition.Version, nil
	}
	return "", &refusal{code: http.StatusNotAcceptable, Word: "NotAcceptable", Message: fmt.Sprintf(
		"this host %s, and this server writes spec %s to %s: boot an image with Ignition %s or newer, as any Fedora CoreOS, RHEL CoreOS 4.6 or newer, "+
			"or Flatcar 3185.0.0 or newer", reads(named), ignition.VersionsWritten[0], ignition.Version, ignition.FirstRelease(ignition.VersionsWritten[0]))}
}

// versionPattern is what may be repeated of what a host says.
var versionPattern = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){0,2}$`)

// maxNamed is how many versions of an Accept header are repeated.
const maxNamed = 4

// reads says which versions a host named, the first ones, each once.
func reads(named []string) string {
	var versions []string
	for _, version := range named {
		if len(versions) < maxNamed && versionPattern.MatchString(version) && !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	switch last := len(versions) - 1; last {
	case -1:
		return "names no version of Ignition's spec in its Accept header"
	case 0:
		return "reads Ignition spec " + versions[0]
	default:
		return "reads Ignition spec " + strings.Join(versions[:last], ", ") + " and " + versions[last]
	}
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
		"%s: %s, and this host's Ignition reads nothing newer: take it out of the MachineConfigs, or boot an image with Ignition %s or newer, which reads %s",
		what, older, ignition.FirstRelease(ignition.Version), ignition.Version)}
}
