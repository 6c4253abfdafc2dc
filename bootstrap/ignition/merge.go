package ignition

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Merge merges configurations by Ignition's own rules: entries with the same path, unit, user or device are merged
// field by field, and the later one wins; others are added. It differs from Ignition in three ways, the first two of
// which are those of the Machine Config Operator:
//
//   - The contents of a file are replaced as a whole. If a later configuration has contents, the compression,
//     verification and HTTP headers of the earlier one are dropped.
//   - A file with contents overwrites that of the operating system, unless overwrite is set.
//   - A hard link overwrites too, unless overwrite is set. Otherwise a first boot that is interrupted can't start over:
//     Ignition writes the target again, as another file, and then refuses the link to the previous one.
//
// The arguments are not modified. The result can be invalid: see ValidateMerged.
func Merge(configs ...Config) Config {
	nodes, units := tally{keys: map[string]*keyCount{}}, tally{keys: map[string]*keyCount{}}
	for _, config := range configs {
		countKeys(&nodes, "files", config.Storage.Files)
		countKeys(&nodes, "directories", config.Storage.Directories)
		countKeys(&nodes, "links", config.Storage.Links)
		countKeys(&units, "units", config.Systemd.Units)
	}
	var alone Config
	var rest []Config
	for _, config := range configs {
		extractUnique(&nodes, &config.Storage.Files, &alone.Storage.Files)
		extractUnique(&nodes, &config.Storage.Directories, &alone.Storage.Directories)
		extractUnique(&nodes, &config.Storage.Links, &alone.Storage.Links)
		extractUnique(&units, &config.Systemd.Units, &alone.Systemd.Units)
		config.Ignition.Version = Version
		if !reflect.DeepEqual(config, New()) {
			rest = append(rest, config)
		}
	}
	merged := mergeRepeated(rest)
	merged.Storage.Files = restoreUnique(&nodes, merged.Storage.Files, alone.Storage.Files)
	merged.Storage.Directories = restoreUnique(&nodes, merged.Storage.Directories, alone.Storage.Directories)
	merged.Storage.Links = restoreUnique(&nodes, merged.Storage.Links, alone.Storage.Links)
	merged.Systemd.Units = restoreUnique(&units, merged.Systemd.Units, alone.Systemd.Units)
	merged.Ignition.Version = Version
	for i := range merged.Storage.Files {
		file := &merged.Storage.Files[i]
		if file.Overwrite == nil && file.Contents.Source != nil {
			file.Overwrite = new(true)
		}
	}
	for i := range merged.Storage.Links {
		link := &merged.Storage.Links[i]
		if link.Overwrite == nil && link.Hard != nil && *link.Hard {
			link.Overwrite = new(true)
		}
	}
	return merged
}

// mergeRepeated merges, with Ignition's merge, the entries that occur several times.
func mergeRepeated(configs []Config) Config {
	switch {
	case len(configs) == 0:
		return New()
	case isMergeAssociative(configs):
		return mergeTree(configs)
	}
	merged := New()
	for _, config := range configs {
		merged = mergeOver(merged, config)
	}
	return merged
}

// mergeTree merges in a tree instead of one by one: the time of Ignition's merge depends on the entries of both sides,
// and in a tree each entry is merged fewer times.
func mergeTree(configs []Config) Config {
	if len(configs) == 1 {
		return configs[0]
	}
	half := len(configs) / 2
	return mergeOver(mergeTree(configs[:half]), mergeTree(configs[half:]))
}

// isMergeAssociative reports whether every path has the same kind in all configurations, and every kernel argument is
// in the same list. Only then is the merge associative: a link that replaces a file removes everything that was merged
// before it.
func isMergeAssociative(configs []Config) bool {
	type entry struct{ list, name string }
	kinds := map[entry]string{}
	keep := true
	record := func(list, name, kind string) {
		if earlier, ok := kinds[entry{list, name}]; ok && earlier != kind {
			keep = false
		}
		kinds[entry{list, name}] = kind
	}
	for _, config := range configs {
		for _, file := range config.Storage.Files {
			record("storage", file.Path, "file")
		}
		for _, directory := range config.Storage.Directories {
			record("storage", directory.Path, "directory")
		}
		for _, link := range config.Storage.Links {
			record("storage", link.Path, "link")
		}
		for _, argument := range config.KernelArguments.ShouldExist {
			record("kernelArguments", string(argument), "shouldExist")
		}
		for _, argument := range config.KernelArguments.ShouldNotExist {
			record("kernelArguments", string(argument), "shouldNotExist")
		}
	}
	return keep
}

// mergeOver merges over into base.
func mergeOver(base, over Config) Config {
	base.Storage.Files = dropReplacedContents(base.Storage.Files, over.Storage.Files)
	return v3_5.Merge(base, over)
}

// dropReplacedContents returns files without the contents that over replaces.
func dropReplacedContents(files, over []types.File) []types.File {
	hasNew := make(map[string]bool, len(over))
	for _, file := range over {
		hasNew[file.Path] = file.Contents.Source != nil
	}
	files = slices.Clone(files)
	for i := range files {
		if hasNew[files[i].Path] {
			files[i].Contents = types.Resource{}
		}
	}
	return files
}

// tally counts the entries of every key in lists that share their keys, and records their order after the merge.
// Ignition's merge takes time for every entry of both sides, but an entry whose key occurs once needs no merge: it is
// set aside, and added again at its position.
type tally struct {
	keys         map[string]*keyCount
	lastPosition int
}

type keyCount struct {
	entries  int
	list     string // the list that the latest entry is in
	position int    // the position of the key in that list
}

// keyed is an entry of a list; Ignition merges entries of the same key.
type keyed interface{ Key() string }

// countKeys counts the entries of one list. A key that moves to another list, such as a link that replaces a file, gets
// a position at the end.
func countKeys[Entry keyed](t *tally, list string, entries []Entry) {
	for _, entry := range entries {
		counted, ok := t.keys[entry.Key()]
		if !ok {
			counted = &keyCount{}
			t.keys[entry.Key()] = counted
		}
		if counted.list != list {
			t.lastPosition++
			counted.list, counted.position = list, t.lastPosition
		}
		counted.entries++
	}
}

// extractUnique moves the entries whose key occurs once from a list to aside.
func extractUnique[Entry keyed](t *tally, entries, aside *[]Entry) {
	var rest []Entry
	for _, entry := range *entries {
		if t.keys[entry.Key()].entries == 1 {
			*aside = append(*aside, entry)
		} else {
			rest = append(rest, entry)
		}
	}
	*entries = rest
}

// restoreUnique combines merged entries with those that were set aside, in order. An entry has another key than all
// others.
func restoreUnique[Entry keyed](t *tally, merged, aside []Entry) []Entry {
	all := slices.Concat(aside, merged)
	slices.SortStableFunc(all, func(a, b Entry) int { return cmp.Compare(t.keys[a.Key()].position, t.keys[b.Key()].position) })
	return all
}
