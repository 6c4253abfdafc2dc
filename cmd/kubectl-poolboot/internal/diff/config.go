package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/utils/ptr"

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
	userKind        = "user"
)

// kinds are all kinds of items in the order in which they are shown.
var kinds = []string{
	kernelArguments, extensionsKind, kernelType, fips, osImageURL, extensionsImage,
	"file", "directory", "link", "unit", "drop-in", userKind, "group", "disk", "RAID", "filesystem", "LUKS volume", "ignition",
}

// change is an item that would be added, removed or changed.
type change struct {
	item
	// before and after are its properties by name; nil when there is no such item.
	before, after properties
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
		if !maps.Equal(from[i], to[i]) || (from[i] == nil) != (to[i] == nil) {
			changes = append(changes, change{item: i, before: from[i], after: to[i]})
		}
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(slices.Index(kinds, a.kind)-slices.Index(kinds, b.kind), strings.Compare(a.name, b.name))
	})
	return changes, nil
}

// listItems returns all items of a rendered config.
func listItems(spec poolv1.MachineConfigSpec) (map[item]properties, error) {
	items := map[item]properties{}
	for kind, list := range map[string][]string{kernelArguments: spec.KernelArguments, extensionsKind: spec.Extensions} {
		if len(list) > 0 {
			items[item{kind: kind}] = properties{"": newContents(strings.Join(list, "\n") + "\n")}
		}
	}
	for kind, value := range map[string]string{
		kernelType: cmp.Or(spec.KernelType, poolv1.KernelTypeDefault), osImageURL: spec.OSImageURL,
		extensionsImage: spec.BaseOSExtensionsContainerImage, fips: strconv.FormatBool(ptr.Deref(spec.FIPS, false)),
	} {
		if value != "" {
			items[item{kind: kind}] = properties{"": newProperty(value)}
		}
	}
	if spec.Config == nil {
		return items, nil
	}
	config, err := ignition.Parse(spec.Config.Raw)
	if err != nil {
		return nil, err
	}
	addStorage(items, config.Storage)
	addUnits(items, config.Systemd)
	addUsers(items, config.Passwd)
	if own := newProperties(config.KernelArguments); len(own) > 0 {
		items[item{kernelArguments, "of Ignition"}] = own
	}
	if rest := newProperties(config.Ignition, "version", "config"); len(rest) > 0 {
		items[item{kind: "ignition"}] = rest.hide() // proxies and headers can contain credentials
	}
	return items, nil
}

func addStorage(items map[item]properties, storage types.Storage) {
	for _, file := range storage.Files {
		of := newProperties(file, "path", "contents", "append")
		isSecret := file.Mode != nil && *file.Mode&0o004 == 0
		of.addResource("contents", file.Contents, isSecret)
		for i, part := range file.Append {
			of.addResource(fmt.Sprintf("append[%d]", i), part, isSecret)
		}
		items[item{"file", file.Path}] = of
	}
	addEntries(items, "directory", "path", storage.Directories)
	addEntries(items, "link", "path", storage.Links)
	addEntries(items, "disk", "device", storage.Disks)
	addEntries(items, "RAID", "name", storage.Raid)
	addEntries(items, "filesystem", "device", storage.Filesystems)
	for _, volume := range storage.Luks {
		items[item{"LUKS volume", volume.Name}] = newProperties(volume, "name").hide()
	}
}

// addEntries adds entries of Ignition by their key, which is the value of keyField.
func addEntries[T interface{ Key() string }](items map[item]properties, kind, keyField string, entries []T) {
	for _, entry := range entries {
		items[item{kind, entry.Key()}] = newProperties(entry, keyField)
	}
}

func addUnits(items map[item]properties, systemd types.Systemd) {
	for _, unit := range systemd.Units {
		of := newProperties(unit, "name", "contents", "dropins")
		of.addText("contents", unit.Contents)
		items[item{"unit", unit.Name}] = of
		for _, dropin := range unit.Dropins {
			of := properties{}
			of.addText("contents", dropin.Contents)
			items[item{"drop-in", unit.Name + ".d/" + dropin.Name}] = of
		}
	}
}

func addUsers(items map[item]properties, passwd types.Passwd) {
	for _, user := range passwd.Users {
		of := newProperties(user, "name", "passwordHash", "sshAuthorizedKeys")
		of.addSecret("passwordHash", user.PasswordHash)
		var keys strings.Builder
		for _, key := range user.SSHAuthorizedKeys {
			keys.WriteString(strings.TrimSuffix(string(key), "\n") + "\n")
		}
		if keys.Len() > 0 {
			of["sshAuthorizedKeys"] = newContents(keys.String())
		}
		items[item{userKind, user.Name}] = of
	}
	for _, group := range passwd.Groups {
		of := newProperties(group, "name", "passwordHash")
		of.addSecret("passwordHash", group.PasswordHash)
		items[item{"group", group.Name}] = of
	}
}

// newProperties returns the fields of an Ignition entry, in JSON, without empty ones.
func newProperties(entry any, except ...string) properties {
	raw, err := json.Marshal(entry)
	utilruntime.Must(err)
	var fields map[string]json.RawMessage
	utilruntime.Must(json.Unmarshal(raw, &fields))
	of := properties{}
	for name, value := range fields {
		shown := string(value)
		if slices.Contains(except, name) || slices.Contains([]string{"null", "{}", "[]"}, shown) {
			continue
		}
		if mode, err := strconv.Atoi(shown); err == nil && name == "mode" {
			shown = fmt.Sprintf("%04o", mode)
		}
		of[name] = property{value: string(value), shown: shown}
	}
	return of
}
