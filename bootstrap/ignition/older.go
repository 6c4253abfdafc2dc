package ignition

import (
	"fmt"
	"reflect"
	"slices"
)

// VersionsWritten are the spec versions that WriteAs can write, oldest first.
var VersionsWritten = []string{versionWithoutHeaders, "3.1.0", "3.2.0", "3.3.0", "3.4.0", Version}

// firstReleases are the first releases of Ignition that read each of VersionsWritten, from Ignition's specs.md.
var firstReleases = map[string]string{
	versionWithoutHeaders: "2.0.0", "3.1.0": "2.3.0", "3.2.0": "2.7.0", "3.3.0": "2.11.0", "3.4.0": "2.15.0", Version: "2.20.0",
}

// FirstRelease returns the first release of Ignition that reads one of VersionsWritten.
func FirstRelease(version string) string { return firstReleases[version] }

// versionWithoutHeaders is the only spec version 3.x whose references have no HTTP headers, and so no token.
const versionWithoutHeaders = "3.0.0"

// VersionError is the error for a configuration that a spec version can't express.
type VersionError struct {
	// Version is the spec version.
	Version string
	// Path is the path of the first field that the version does not have.
	Path string
}

// Error names the field and the version.
func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: spec version %s does not have this field or value", e.Path, e.Version)
}

// WriteAs writes a configuration in canonical form, in one of VersionsWritten. If that version can't express all of it,
// the error is a *VersionError; nothing is dropped silently.
func WriteAs(c Config, version string) ([]byte, error) {
	if !slices.Contains(VersionsWritten, version) {
		return nil, fmt.Errorf("spec version %q is not supported: use one of %v", version, VersionsWritten)
	}
	c.Ignition.Version = version
	if version == Version {
		return Marshal(c)
	}
	older := reflect.New(typeOf(version)).Elem()
	if lost := convert(older, reflect.ValueOf(c)); lost != nil {
		return nil, &VersionError{Version: version, Path: joinPath(lost)}
	}
	if problems := (rules{}).problemsIn(older); len(problems) > 0 {
		return nil, &VersionError{Version: version, Path: problems[0].Path}
	}
	return Marshal(c)
}
