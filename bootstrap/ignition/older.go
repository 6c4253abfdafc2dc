package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
//
// Every version 3.x has the keys of the earlier ones, with the same meaning. So only the version in the document
// changes. The document is correct if Ignition's own parser, which converts older versions to later ones, returns the
// original configuration from it.
func WriteAs(c Config, version string) ([]byte, error) {
	if !slices.Contains(VersionsWritten, version) {
		return nil, fmt.Errorf("spec version %q is not supported: use one of %v", version, VersionsWritten)
	}
	whole, err := Marshal(c)
	if err != nil || version == Version {
		return whole, err
	}
	c.Ignition.Version = version
	document, err := Marshal(c)
	if err != nil {
		return nil, err
	}
	read, err := Parse(document)
	if wrong := (*ParseError)(nil); errors.As(err, &wrong) {
		return nil, &VersionError{Version: version, Path: wrong.Problems[0].Path}
	}
	if err != nil {
		return nil, err
	}
	back, err := Marshal(read)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(back, whole) {
		return nil, &VersionError{Version: version, Path: findFirstLoss(whole, back)}
	}
	return document, nil
}

// findFirstLoss returns the path of the first value, in the order of keys, that is missing or different in back.
func findFirstLoss(whole, back []byte) string {
	var before, after any
	if errors.Join(json.Unmarshal(whole, &before), json.Unmarshal(back, &after)) != nil {
		return ""
	}
	path, _ := findLoss(nil, before, after)
	return joinPath(path)
}

func findLoss(path []any, before, after any) (lost []any, found bool) {
	switch value := before.(type) {
	case map[string]any:
		other, _ := after.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if lost, found = findLoss(append(path, key), value[key], other[key]); found {
				return lost, true
			}
		}
		return nil, false
	case []any:
		other, _ := after.([]any)
		for i := range min(len(value), len(other)) {
			if lost, found = findLoss(append(path, i), value[i], other[i]); found {
				return lost, true
			}
		}
		return path, len(other) != len(value)
	}
	return path, before != after
}
