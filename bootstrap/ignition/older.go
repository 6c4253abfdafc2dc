package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// VersionsWritten are the spec versions that WriteAs writes, the oldest first.
var VersionsWritten = []string{versionWithoutHeaders, "3.1.0", "3.2.0", "3.3.0", "3.4.0", Version}

// firstReleases are the releases of Ignition that first read each of VersionsWritten, as Ignition's own specs.md
// lists them.
var firstReleases = map[string]string{
	versionWithoutHeaders: "2.0.0", "3.1.0": "2.3.0", "3.2.0": "2.7.0", "3.3.0": "2.11.0", "3.4.0": "2.15.0", Version: "2.20.0",
}

// FirstRelease returns the first release of Ignition that reads one of VersionsWritten.
func FirstRelease(version string) string { return firstReleases[version] }

// versionWithoutHeaders is the one spec version 3.x whose references can carry no HTTP header, and so no token.
const versionWithoutHeaders = "3.0.0"

// VersionError says that a configuration has something which a spec version has no words for.
type VersionError struct {
	// Version is the spec version.
	Version string
	// Path is the first such thing, as a path into the document.
	Path string
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s: spec version %s can't say this", e.Path, e.Version)
}

// WriteAs writes a configuration in canonical form, in one of VersionsWritten. It fails with a *VersionError when that
// version can't say all of it; nothing is left out silently.
//
// Every version 3.x has the keys of those before it, with the same meaning. So the document is the same but for the
// version that it names, and it says the same if Ignition's own parser, which carries older versions over to newer
// ones, makes of it what it was written from.
func WriteAs(c Config, version string) ([]byte, error) {
	if !slices.Contains(VersionsWritten, version) {
		return nil, fmt.Errorf("spec version %q is not written: written are %v", version, VersionsWritten)
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
		return nil, &VersionError{Version: version, Path: firstLost(whole, back)}
	}
	return document, nil
}

// firstLost returns the path to the first thing, in the order of keys, that one document has and another has not, or
// not the same.
func firstLost(whole, back []byte) string {
	var before, after any
	if errors.Join(json.Unmarshal(whole, &before), json.Unmarshal(back, &after)) != nil {
		return ""
	}
	path, _ := lostIn(nil, before, after)
	return joinPath(path)
}

func lostIn(path []any, before, after any) (lost []any, found bool) {
	switch was := before.(type) {
	case map[string]any:
		got, _ := after.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(was)) {
			if lost, found = lostIn(append(path, key), was[key], got[key]); found {
				return lost, true
			}
		}
		return nil, false
	case []any:
		got, _ := after.([]any)
		for i := range min(len(was), len(got)) {
			if lost, found = lostIn(append(path, i), was[i], got[i]); found {
				return lost, true
			}
		}
		return path, len(got) != len(was)
	}
	return path, before != after
}
