package ignition

import (
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
