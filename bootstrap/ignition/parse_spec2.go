package ignition

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"slices"

	"github.com/coreos/ign-converter/translate/v24tov31"
	converter "github.com/coreos/ign-converter/util"
	types2_0 "github.com/coreos/ignition/config/v2_0/types"
	"github.com/coreos/ignition/config/v2_1"
	types2_1 "github.com/coreos/ignition/config/v2_1/types"
	"github.com/coreos/ignition/config/v2_2"
	types2_2 "github.com/coreos/ignition/config/v2_2/types"
	"github.com/coreos/ignition/config/v2_3"
	"github.com/coreos/ignition/config/v2_4"
	types2_4 "github.com/coreos/ignition/config/v2_4/types"
	validate2 "github.com/coreos/ignition/config/validate"
	"github.com/coreos/ignition/config/validate/report"
	types3_1 "github.com/coreos/ignition/v2/config/v3_1/types"
	"k8s.io/utils/ptr"
)

// parserOf2 has the parser of each supported spec version 2.x.
var parserOf2 = map[string]func([]byte) (Config, error){
	"2.0.0": parse2(from2_0),
	"2.1.0": parse2(from2_1),
	"2.2.0": parse2(from2_2),
	"2.3.0": parse2(v2_4.Translate),
	"2.4.0": parse2(func(c types2_4.Config) types2_4.Config { return c }),
}

func from2_0(c types2_0.Config) types2_4.Config { return from2_1(v2_1.TranslateFromV2_0(c)) }
func from2_1(c types2_1.Config) types2_4.Config { return from2_2(v2_2.TranslateFromV2_1(c)) }
func from2_2(c types2_2.Config) types2_4.Config { return v2_4.Translate(v2_3.Translate(c)) }

// rootFilesystem is the only filesystem of spec 2 that spec 3 can express: the host's root.
const rootFilesystem = "root"

// parse2 returns a parser for documents of spec 2, whose Go type is Types, which converts them by upgrade to spec 2.4
// and then to spec 3.
func parse2[Types any](upgrade func(Types) types2_4.Config) func([]byte) (Config, error) {
	return func(raw []byte) (Config, error) {
		// If a value has the wrong type, Ignition's parser of spec 2 falls back to older versions and reports their
		// errors. So types are checked first.
		var document Types
		if err := json.Unmarshal(raw, &document); err != nil {
			return Config{}, decodeError(raw, err, reflect.TypeOf(document))
		}
		upgraded := upgrade(document)
		if err := cmp.Or(checkWork(reflect.ValueOf(upgraded)), checkValues(raw)); err != nil {
			return Config{}, err
		}
		// Ignition's parser of spec 2 reads the document again for each of its values, to know their lines.
		if entries := validate2.ValidateWithoutSource(reflect.ValueOf(document)); entries.IsFatal() {
			const maxWork = 20_000_000
			if bytes.Count(raw, []byte(":"))*len(raw) <= maxWork {
				if _, located, err := v2_4.Parse(raw); err != nil {
					return Config{}, spec2Error(raw, located, err)
				}
			}
			return Config{}, spec2Error(nil, entries, errors.New("the document is not valid in its spec version"))
		}
		return convert2(upgraded)
	}
}

// convert2 converts a valid configuration of spec 2.4.
func convert2(config types2_4.Config) (Config, error) {
	if err := checkConvertible(config); err != nil {
		return Config{}, err
	}
	config = removeDuplicates(config)
	for i, unit := range config.Systemd.Units {
		if unit.Enable && unit.Enabled == nil { // the converter refuses the old field
			config.Systemd.Units[i].Enabled = &unit.Enable
		}
		config.Systemd.Units[i].Enable = false
	}
	for _, disk := range config.Storage.Disks {
		for i := range disk.Partitions { // the converter refuses them also if they are the default
			disk.Partitions[i].Start, disk.Partitions[i].Size = nil, nil
		}
	}
	config3_1, err := translate(config)
	if err != nil {
		return Config{}, conversionError(config, err)
	}
	converted, err := json.Marshal(config3_1)
	if err != nil {
		return Config{}, err
	}
	return read3(converted, config3_1.Ignition.Version)
}

// translate converts a document of spec 2 to spec 3.1. It converts one certificate authority at a time: the converter
// takes the address of a loop variable, and would give all of them the source of the last.
func translate(config types2_4.Config) (types3_1.Config, error) {
	authorities := config.Ignition.Security.TLS.CertificateAuthorities
	config.Ignition.Security.TLS.CertificateAuthorities = nil
	translated, err := v24tov31.Translate(config, map[string]string{rootFilesystem: "/"})
	if err != nil {
		return translated, err
	}
	for i := range authorities {
		alone := types2_4.Config{Ignition: types2_4.Ignition{Version: config.Ignition.Version}}
		alone.Ignition.Security.TLS.CertificateAuthorities = authorities[i : i+1]
		one, err := v24tov31.Translate(alone, nil)
		if err != nil {
			return translated, err
		}
		tls := &translated.Ignition.Security.TLS
		tls.CertificateAuthorities = append(tls.CertificateAuthorities, one.Ignition.Security.TLS.CertificateAuthorities...)
	}
	return translated, nil
}

// spec2Error converts the report of spec 2's parser, which has lines and columns in a document, to problems with paths.
// Without the document, the problems have no paths.
func spec2Error(raw []byte, entries report.Report, err error) error {
	const maxLocated = 10 // each takes a scan of the document
	var problems []Problem
	for _, entry := range entries.Entries {
		if entry.Kind == report.EntryError && (raw == nil || len(problems) >= maxLocated) {
			problems = append(problems, Problem{Line: int64(entry.Line), Message: withRemedy(entry.Message)})
		} else if entry.Kind == report.EntryError {
			offset := offsetAt(raw, entry.Line, entry.Column)
			problems = append(problems, Problem{Path: pathAt(raw, offset), Line: int64(entry.Line), Message: withRemedy(entry.Message)})
		}
	}
	if len(problems) == 0 {
		return newParseError("", err.Error())
	}
	return &ParseError{Problems: LimitProblems(problems)}
}

// entry is a file, directory or link, and its place in the document.
type entry struct {
	place string
	types2_4.Node
	mode *int // nil for a link
}

// entriesOf returns all files, directories and links.
func entriesOf(config types2_4.Config) (entries []entry) {
	for i, file := range config.Storage.Files {
		entries = append(entries, entry{fmt.Sprintf("storage.files[%d]", i), file.Node, file.Mode})
	}
	for i, directory := range config.Storage.Directories {
		entries = append(entries, entry{fmt.Sprintf("storage.directories[%d]", i), directory.Node, directory.Mode})
	}
	for i, link := range config.Storage.Links {
		entries = append(entries, entry{fmt.Sprintf("storage.links[%d]", i), link.Node, nil})
	}
	return entries
}

// sectors is why the place of a partition can't be converted: the size of a sector depends on the disk.
const sectors = "is in sectors, which spec 3 does not have: set %s, and ignition.version to 2.3.0 or later"

// checkConvertible refuses entries on another filesystem than the root, because the converter would silently move them
// to the root; modes with special bits, which hosts with spec 2 ignore; and fields that the converter would drop.
func checkConvertible(config types2_4.Config) error {
	var problems []Problem
	refuse := func(path, why string, args ...any) {
		problems = append(problems, Problem{Path: path, Message: fmt.Sprintf(why, args...)})
	}
	for _, entry := range entriesOf(config) {
		if entry.Filesystem != rootFilesystem {
			refuse(entry.place+".filesystem", "filesystem %q is not supported: use %q and the full path", entry.Filesystem, rootFilesystem)
		}
		if mode := ptr.Deref(entry.mode, 0); mode > 0o777 {
			refuse(entry.place+".mode", "mode %#o is above 0777, which spec 2 ignores: use spec 3.4 or later", mode)
		}
	}
	for i, filesystem := range config.Storage.Filesystems {
		if filesystem.Name == rootFilesystem && filesystem.Mount != nil {
			refuse(fmt.Sprintf("storage.filesystems[%d].mount", i), "the mount of the root file system can't be converted: use spec 3")
		}
	}
	for i, disk := range config.Storage.Disks {
		for j, partition := range disk.Partitions {
			at := fmt.Sprintf("storage.disks[%d].partitions[%d]", i, j)
			if ptr.Deref(partition.Start, 0) != 0 {
				refuse(at+".start", sectors, "startMiB")
			}
			if ptr.Deref(partition.Size, 0) != 0 {
				refuse(at+".size", sectors, "sizeMiB")
			}
		}
	}
	for i, user := range config.Passwd.Users {
		if user.Create != nil {
			refuse(fmt.Sprintf("passwd.users[%d].create", i), "does not exist in spec 3: set uid, groups and the other fields of the user itself")
		}
	}
	if len(problems) > 0 {
		return &ParseError{Problems: LimitProblems(problems)}
	}
	return nil
}

// conversionError returns the converter's error with the path of the entry that it is about.
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
		return newParseError(place, fmt.Sprintf("the file system %q has no path in spec 2: write it in spec 3, with device and path", string(noFilesystem)))
	case errors.As(err, &duplicateUnit):
		place = unitPlace(config, duplicateUnit.Name)
	case errors.As(err, &duplicateDropin):
		place = unitPlace(config, duplicateDropin.Unit) + ".dropins"
	default:
		place = duplicatePlace(config)
	}
	return newParseError(place, withRemedy(err.Error()))
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

// duplicatePlace returns the path of the first entry whose path an earlier entry has too.
func duplicatePlace(config types2_4.Config) string {
	seen := map[string]bool{}
	for _, entry := range entriesOf(config) {
		clean := path.Join("/", entry.Path)
		if seen[clean] {
			return entry.place + ".path"
		}
		seen[clean] = true
	}
	return "storage"
}

// removeDuplicates keeps the last of duplicate files, units, users and certificate authorities of a spec 2 document, as
// hosts with spec 2 do; spec 3 refuses duplicates. Like the Machine Config Operator, it keeps all drop-ins of units and
// all SSH keys of users. Files that append are left to the converter.
func removeDuplicates(config types2_4.Config) types2_4.Config {
	config.Storage.Files = keepLast(config.Storage.Files, func(file types2_4.File) (string, bool) { return file.Path, !file.Append })
	dropins, keys := map[string][][]types2_4.SystemdDropin{}, map[string][][]types2_4.SSHAuthorizedKey{}
	for _, unit := range config.Systemd.Units {
		dropins[unit.Name] = append(dropins[unit.Name], unit.Dropins)
	}
	for _, user := range config.Passwd.Users {
		keys[user.Name] = append(keys[user.Name], user.SSHAuthorizedKeys)
	}
	config.Systemd.Units = keepLast(config.Systemd.Units, func(unit types2_4.Unit) (string, bool) { return unit.Name, true })
	for i := range config.Systemd.Units {
		unit := &config.Systemd.Units[i]
		if all := dropins[unit.Name]; len(all) > 1 {
			slices.Reverse(all)
			seen := map[string]bool{}
			unit.Dropins = slices.DeleteFunc(slices.Concat(all...), func(dropin types2_4.SystemdDropin) bool {
				isEarlier := seen[dropin.Name]
				seen[dropin.Name] = true
				return isEarlier
			})
		}
	}
	config.Passwd.Users = keepLast(config.Passwd.Users, func(user types2_4.PasswdUser) (string, bool) { return user.Name, true })
	for i := range config.Passwd.Users {
		user := &config.Passwd.Users[i]
		slices.Reverse(keys[user.Name])
		user.SSHAuthorizedKeys = slices.Concat(keys[user.Name]...)
	}
	tls := &config.Ignition.Security.TLS
	tls.CertificateAuthorities = keepLast(tls.CertificateAuthorities, func(ca types2_4.CaReference) (string, bool) { return ca.Source, true })
	for i := range config.Passwd.Users {
		user := &config.Passwd.Users[i]
		user.SSHAuthorizedKeys = keepLast(user.SSHAuthorizedKeys, func(key types2_4.SSHAuthorizedKey) (string, bool) { return string(key), true })
	}
	return config
}

// keepLast keeps the last entry of each key, at the position of the first. An entry whose key does not count is always
// kept.
func keepLast[Entry any](entries []Entry, keyOf func(Entry) (key string, counts bool)) []Entry {
	var out []Entry
	at := map[string]int{}
	for _, entry := range entries {
		key, counts := keyOf(entry)
		if i, ok := at[key]; ok && counts {
			out[i] = entry
			continue
		}
		if counts {
			at[key] = len(out)
		}
		out = append(out, entry)
	}
	return out
}
