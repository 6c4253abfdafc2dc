package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	"github.com/coreos/ign-converter/translate/v24tov31"
	converter "github.com/coreos/ign-converter/util"
	types2_2 "github.com/coreos/ignition/config/v2_2/types"
	types2_3 "github.com/coreos/ignition/config/v2_3/types"
	"github.com/coreos/ignition/config/v2_4"
	types2_4 "github.com/coreos/ignition/config/v2_4/types"
	"github.com/coreos/ignition/config/validate/report"
	"github.com/coreos/ignition/v2/config/v3_5"
)

// parserOf2 are the parsers of the spec versions 2.x that are read.
var parserOf2 = map[string]func([]byte) (Config, error){
	"2.2.0": parse2[types2_2.Config],
	"2.3.0": parse2[types2_3.Config],
	"2.4.0": parse2[types2_4.Config],
}

// rootFilesystem is the one filesystem of spec 2 that has a meaning in spec 3: the host's root.
const rootFilesystem = "root"

// parse2 reads a document of spec 2, whose types are Types, and converts it.
func parse2[Types any](raw []byte) (Config, error) {
	// Ignition's own parser of spec 2 falls back to ever older versions when a value has the wrong type, and reports what
	// those make of it. So types are checked first.
	var document Types
	if err := json.Unmarshal(raw, &document); err != nil {
		return Config{}, typeError(raw, err)
	}
	config, entries, err := v2_4.Parse(raw)
	if err != nil {
		return Config{}, spec2Error(raw, entries, err)
	}
	if err := onlyRootFilesystem(config); err != nil {
		return Config{}, err
	}
	for i, unit := range config.Systemd.Units {
		if unit.Enable && unit.Enabled == nil { // the converter refuses the field's old name
			config.Systemd.Units[i].Enabled = &unit.Enable
		}
		config.Systemd.Units[i].Enable = false
	}
	config3_1, err := v24tov31.Translate(config, map[string]string{rootFilesystem: "/"})
	if err != nil {
		return Config{}, conversionError(config, err)
	}
	converted, err := json.Marshal(config3_1)
	if err != nil {
		return Config{}, err
	}
	out, entries3, err := v3_5.ParseCompatibleVersion(converted)
	if err != nil {
		return Config{}, &ParseError{Problems: problemsIn(entries3, converted)}
	}
	return out, nil
}

// typeError is a value of the wrong type, or JSON that is broken.
func typeError(raw []byte, err error) error {
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) {
		return &ParseError{Problems: []Problem{{
			Path:    pathAt(raw, wrongType.Offset),
			Line:    lineAt(raw, wrongType.Offset),
			Message: fmt.Sprintf("a JSON %s can't be read as %s", wrongType.Value, wrongType.Type),
		}}}
	}
	return problem("", err.Error())
}

func lineAt(raw []byte, offset int64) int64 {
	return 1 + int64(bytes.Count(raw[:min(offset, int64(len(raw)))], []byte("\n")))
}

// spec2Error turns the report of spec 2's parser, which knows lines and columns, into problems with paths.
func spec2Error(raw []byte, entries report.Report, err error) error {
	var problems []Problem
	for _, entry := range entries.Entries {
		if entry.Kind == report.EntryError {
			offset := offsetOf(raw, entry.Line, entry.Column)
			problems = append(problems, Problem{Path: pathAt(raw, offset), Line: int64(entry.Line), Message: entry.Message})
		}
	}
	if len(problems) == 0 {
		return problem("", err.Error())
	}
	return &ParseError{Problems: problems}
}

// offsetOf is the byte offset of a line and a column, both counted from 1.
func offsetOf(raw []byte, line, column int) int64 {
	offset := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(raw[offset:], '\n')
		if next < 0 {
			break
		}
		offset += next + 1
	}
	return int64(min(offset+column, len(raw)))
}

// onlyRootFilesystem refuses entries on a named filesystem: the converter would put those silently on the root.
func onlyRootFilesystem(config types2_4.Config) error {
	check := func(list string, i int, node types2_4.Node) error {
		if node.Filesystem == rootFilesystem {
			return nil
		}
		return problem(fmt.Sprintf("storage.%s[%d].filesystem", list, i),
			fmt.Sprintf("filesystem %q is not known: use %q and the whole path", node.Filesystem, rootFilesystem))
	}
	var all []error
	for i, file := range config.Storage.Files {
		all = append(all, check("files", i, file.Node))
	}
	for i, directory := range config.Storage.Directories {
		all = append(all, check("directories", i, directory.Node))
	}
	for i, link := range config.Storage.Links {
		all = append(all, check("links", i, link.Node))
	}
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

// conversionError finds the place in the document that the converter's error names by its contents.
func conversionError(config types2_4.Config, err error) error {
	var noFilesystem converter.NoFilesystemError
	var duplicateUnit converter.DuplicateUnitError
	var duplicateDropin converter.DuplicateDropinError
	place := ""
	switch {
	case errors.Is(err, converter.UsesNetworkdError):
		place = "networkd.units"
	case errors.As(err, &noFilesystem):
		for i, filesystem := range config.Storage.Filesystems {
			if filesystem.Name == string(noFilesystem) {
				place = fmt.Sprintf("storage.filesystems[%d].name", i)
			}
		}
	case errors.As(err, &duplicateUnit):
		place = unitPlace(config, duplicateUnit.Name)
	case errors.As(err, &duplicateDropin):
		place = unitPlace(config, duplicateDropin.Unit) + ".dropins"
	default:
		place = duplicatePlace(config)
	}
	return problem(place, err.Error())
}

func unitPlace(config types2_4.Config, name string) string {
	place := ""
	for i, unit := range config.Systemd.Units {
		if unit.Name == name {
			place = fmt.Sprintf("systemd.units[%d]", i)
		}
	}
	return place
}

// duplicatePlace is the first entry whose path an earlier entry has too.
func duplicatePlace(config types2_4.Config) string {
	seen := map[string]bool{}
	isDuplicate := func(node types2_4.Node) bool {
		clean := path.Join("/", node.Path)
		duplicate := seen[clean]
		seen[clean] = true
		return duplicate
	}
	for i, file := range config.Storage.Files {
		if isDuplicate(file.Node) {
			return fmt.Sprintf("storage.files[%d].path", i)
		}
	}
	for i, directory := range config.Storage.Directories {
		if isDuplicate(directory.Node) {
			return fmt.Sprintf("storage.directories[%d].path", i)
		}
	}
	for i, link := range config.Storage.Links {
		if isDuplicate(link.Node) {
			return fmt.Sprintf("storage.links[%d].path", i)
		}
	}
	return "storage"
}
