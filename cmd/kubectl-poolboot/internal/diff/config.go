package diff

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// item is one thing that a rendered config configures on a host.
type item struct {
	// kind is that of an Ignition entry, or a field of a MachineConfig, which has no name.
	kind, name string
}

func (i item) String() string { return strings.TrimSpace(i.kind + " " + i.name) }

// Kinds of items.
const (
	kernelArguments = "kernelArguments"
	extensionsKind  = "extensions"
	kernelType      = "kernelType"
	fips            = "fips"
	osImageURL      = "osImageURL"
	extensionsImage = "baseOSExtensionsContainerImage"
)

// kinds are all kinds of items in the order in which they are shown.
var kinds = []string{
	kernelArguments, extensionsKind, kernelType, fips, osImageURL, extensionsImage,
	"file", "directory", "link", "unit", "drop-in", "user", "group", "disk", "RAID", "filesystem", "LUKS volume", "ignition",
}

// entry is what a rendered config has for one item.
type entry struct {
	// compared is everything, and text what is shown of it, line by line: without secrets.
	compared, text string
}

// change is an item that would be added, removed or changed.
type change struct {
	item
	// before and after are nil when there is no such item.
	before, after *entry
}

// isOwn reports whether an item is a script or unit of Poolboot, which contains nothing that a user wrote.
func (i item) isOwn() bool {
	const ofKubelet = " of unit " + ignition.KubeletUnit
	return ignition.IsOwnFile(i.name) || i.kind == "unit" && strings.HasPrefix(i.name, ignition.OwnUnitPrefix) ||
		i.kind == "drop-in" && (i.name == ignition.OwnDropin+ofKubelet || i.name == ignition.ReservedDropin+ofKubelet)
}

// compare returns the items that differ between two rendered configs, by kind and name.
func compare(before, after poolv1.MachineConfigSpec) ([]change, error) {
	from, err := listItems(before)
	if err != nil {
		return nil, err
	}
	to, err := listItems(after)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(from)
	maps.Copy(all, to)
	var changes []change
	for i := range all {
		if !ptr.Equal(from[i], to[i]) {
			changes = append(changes, change{item: i, before: from[i], after: to[i]})
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(slices.Index(kinds, a.kind)-slices.Index(kinds, b.kind), strings.Compare(a.name, b.name))
	})
	return changes, nil
}

// lists are the lists of entries in Ignition, with the kind of their items and the field that has their name.
var lists = []struct{ section, list, kind, key string }{
	{"storage", "files", "file", "path"},
	{"storage", "directories", "directory", "path"},
	{"storage", "links", "link", "path"},
	{"storage", "disks", "disk", "device"},
	{"storage", "raid", "RAID", "name"},
	{"storage", "filesystems", "filesystem", "device"},
	{"storage", "luks", "LUKS volume", "name"},
	{"systemd", "units", "unit", "name"},
	{"passwd", "users", "user", "name"},
	{"passwd", "groups", "group", "name"},
}

// listItems returns all items of a rendered config.
func listItems(spec poolv1.MachineConfigSpec) (map[item]*entry, error) {
	items := map[item]*entry{}
	for kind, value := range map[string]string{
		kernelArguments: strings.Join(spec.KernelArguments, "\n"), extensionsKind: strings.Join(spec.Extensions, "\n"),
		kernelType: cmp.Or(spec.KernelType, poolv1.KernelTypeDefault), fips: strconv.FormatBool(ptr.Deref(spec.FIPS, false)),
		osImageURL: spec.OSImageURL, extensionsImage: spec.BaseOSExtensionsContainerImage,
	} {
		if value != "" {
			items[item{kind: kind}] = &entry{value, value + "\n"}
		}
	}
	if spec.Config == nil {
		return items, nil
	}
	config, err := ignition.Parse(spec.Config.Raw)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(config)
	utilruntime.Must(err)
	var document map[string]any
	utilruntime.Must(kjson.UnmarshalCaseSensitivePreserveInts(raw, &document))
	for _, of := range lists {
		found, _, _ := unstructured.NestedSlice(document, of.section, of.list)
		for _, one := range found {
			fields := one.(map[string]any)
			name, _ := fields[of.key].(string)
			dropins, _, _ := unstructured.NestedSlice(fields, "dropins")
			if len(dropins) == 0 || len(fields) > 2 { // more than its name and drop-ins
				items[item{of.kind, name}] = newEntry(fields, of.kind == "LUKS volume", of.key, "dropins")
			}
			for _, dropin := range dropins {
				fields := dropin.(map[string]any)
				items[item{"drop-in", fmt.Sprintf("%s of unit %s", fields["name"], name)}] = newEntry(fields, false, "name")
			}
		}
	}
	for kind, fields := range map[item]*entry{
		{kernelArguments, "of Ignition"}: newEntry(mapAt(document, "kernelArguments"), false),
		{kind: "ignition"}:               newEntry(mapAt(document, "ignition"), true, "version", "config"), // proxies and headers can contain credentials
	} {
		if fields.compared != "" {
			items[kind] = fields
		}
	}
	return items, nil
}

func mapAt(document map[string]any, field string) map[string]any {
	value, _ := document[field].(map[string]any)
	return value
}

const (
	// notShown replaces a value that may be secret.
	notShown = "(not shown)"
	// maxText is how many bytes of text are shown line by line.
	maxText = 16 << 10
	// maxContents is how many bytes of contents are decompressed for a comparison.
	maxContents = 16 << 20
)

// newEntry returns the fields of an Ignition entry, without empty ones. Contents are decoded.
func newEntry(fields map[string]any, isHidden bool, except ...string) *entry {
	of := &entry{}
	mode, hasMode := fields["mode"].(int64)
	isSecret := hasMode && mode&0o004 == 0
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		raw, err := json.Marshal(fields[name])
		utilruntime.Must(err)
		value, shown := string(raw), string(raw)
		if slices.Contains(except, name) || slices.Contains([]string{"null", "{}", "[]", `{"verification":{}}`, `{"tls":{}}`}, value) {
			continue
		}
		switch {
		case isHidden || name == "passwordHash":
			shown = notShown
		case name == "mode":
			shown = fmt.Sprintf("%04o", mode)
		case name == "append":
			value, shown = "", ""
			for _, part := range fields[name].([]any) {
				partValue, partShown := describeResource(part, isSecret)
				value, shown = value+partValue+"\x00", shown+"\n-"+indent(partShown)
			}
		case name == "contents":
			if text, isText := fields[name].(string); isText { // of a unit, which every user on the host can read
				value, shown = text, describeContents(text)
			} else {
				value, shown = describeResource(fields[name], isSecret)
			}
		case name == "sshAuthorizedKeys":
			value = ""
			for _, key := range fields[name].([]any) {
				value += strings.TrimSuffix(fmt.Sprint(key), "\n") + "\n"
			}
			shown = describeContents(value)
		}
		of.compared += name + "\x00" + value + "\x00"
		of.text += name + ":" + indent(shown) + "\n"
	}
	return of
}

// indent returns a value for behind its name: texts with several lines are below it.
func indent(shown string) string {
	if !strings.Contains(shown, "\n") {
		return " " + shown
	}
	return strings.TrimSuffix(strings.ReplaceAll("\n"+strings.TrimPrefix(shown, "\n"), "\n", "\n  "), "\n  ")
}

// describeResource returns the contents of a file, and what is shown of them: only the size of a secret.
func describeResource(raw any, isSecret bool) (value, shown string) {
	text, err := json.Marshal(raw)
	utilruntime.Must(err)
	var resource types.Resource
	utilruntime.Must(json.Unmarshal(text, &resource))
	data, err := ignition.Contents(resource, maxContents)
	switch {
	case err != nil:
		return string(text), describeRemote(resource)
	case isSecret:
		return string(data), fmt.Sprintf("%d bytes (not shown: the file is not world-readable)", len(data))
	}
	return string(data), describeContents(string(data))
}

// describeContents returns a text that a terminal can show as lines, and other contents as size and hash.
func describeContents(value string) string {
	if value == "" {
		return "empty"
	}
	isControl := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if len(value) > maxText || !utf8.ValidString(value) || strings.ContainsFunc(value, isControl) {
		hash := sha256.Sum256([]byte(value))
		return fmt.Sprintf("%d bytes, sha256 %x", len(value), hash[:6])
	}
	if !strings.HasSuffix(value, "\n") {
		value += "\n(no newline at the end)"
	}
	return value
}

// describeRemote returns contents that are not in the document, as their URL without the parts that can contain
// credentials.
func describeRemote(resource types.Resource) string {
	source, err := url.Parse(*resource.Source)
	if err != nil || source.Scheme == "data" {
		return "contents that can't be decoded"
	}
	shown := "from " + (&url.URL{Scheme: source.Scheme, Host: source.Host, Path: source.Path}).String()
	if hash := resource.Verification.Hash; hash != nil {
		shown += ", " + *hash
	}
	return shown
}
