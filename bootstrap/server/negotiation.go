package server

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// ignitionType is the media type of Ignition.
const ignitionType = "application/vnd.coreos.ignition+json"

// versionFor returns the spec version of the answer to a host: the newest of ignition.VersionsWritten that the host
// reads, according to its Accept header (RFC 9110, section 12.5.1). Ignition names the newest version that it reads, as
// a parameter of its media type. It also reads the earlier versions of the same major version (internal/resource/url.go
// in the source of Ignition v2.27.0):
//
//	Accept: application/vnd.coreos.ignition+json;version=3.6.0, */*;q=0.1
//
// A client that accepts all types and names no version gets the newest version. A client that names only versions that
// are not written, or accepts neither Ignition nor all types, gets a final refusal.
func versionFor(r *http.Request) (string, error) {
	accepted := r.Header.Values("Accept")
	newest, acceptsAny, named := -1, len(accepted) == 0, []string{}
	for _, header := range accepted {
		for element := range strings.SplitSeq(header, ",") {
			media, parameters, _ := strings.Cut(element, ";")
			media, version := strings.TrimSpace(media), findParameter(parameters, "version")
			switch {
			case isZeroWeight(findParameter(parameters, "q")):
			case media == "*/*", media == "application/*", strings.EqualFold(media, ignitionType) && version == "":
				acceptsAny = true
			case strings.EqualFold(media, ignitionType):
				named = append(named, version)
				newest = max(newest, indexOfNewestRead(version))
			}
		}
	}
	switch {
	case newest >= 0:
		return ignition.VersionsWritten[newest], nil
	case acceptsAny && len(named) == 0:
		return ignition.Version, nil
	}
	oldest := ignition.VersionsWritten[0]
	return "", newRefusal(http.StatusNotAcceptable, "NotAcceptable", "this host %s, and this server writes spec %s to %s: boot an image with "+
		"Ignition %s or newer, as any Fedora CoreOS, RHEL CoreOS 4.6 or newer, or Flatcar 3185.0.0 or newer",
		describeVersions(named), oldest, ignition.Version, ignition.FirstRelease(oldest))
}

// versionPattern matches a version that can be repeated in a message to the host and in the log.
var versionPattern = regexp.MustCompile(`^\d{1,3}(\.\d{1,3}){0,2}$`)

// maxListedVersions is the maximum number of versions of an Accept header that are repeated.
const maxListedVersions = 4

// describeVersions describes the first versions that a host named, without duplicates, as part of a sentence.
func describeVersions(named []string) string {
	var versions []string
	for _, version := range named {
		if len(versions) < maxListedVersions && versionPattern.MatchString(version) && !slices.Contains(versions, version) {
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

// findParameter returns the value of a parameter of a media range, or "".
func findParameter(parameters, name string) string {
	for text := range strings.SplitSeq(parameters, ";") {
		if key, value, _ := strings.Cut(text, "="); strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// isZeroWeight reports whether a weight is 0, which means not acceptable.
func isZeroWeight(weight string) bool {
	q, err := strconv.ParseFloat(weight, 64)
	return weight != "" && err == nil && q == 0
}

// indexOfNewestRead returns the index of the newest of ignition.VersionsWritten for a host that reads a version, or -1.
func indexOfNewestRead(version string) int {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	n, err := strconv.ParseUint(minor, 10, 16)
	if major != "3" || err != nil {
		return -1
	}
	return min(int(n), len(ignition.VersionsWritten)-1)
}

// refuseTooOld returns the refusal for a host whose Ignition is too old for its configuration. The host can retry,
// because the MachineConfigs of its pool can change.
func (s *Server) refuseTooOld(what string, older *ignition.VersionError) *refusal {
	s.opts.Metrics.tooOld.WithLabelValues(older.Version).Inc()
	return newRefusal(http.StatusServiceUnavailable, "IgnitionTooOld", "%s: %s, and this host's Ignition reads nothing newer: "+
		"remove it from the MachineConfigs, or boot an image with Ignition %s or newer, which reads %s",
		what, older, ignition.FirstRelease(ignition.Version), ignition.Version)
}
