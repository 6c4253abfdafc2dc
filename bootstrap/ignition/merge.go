package ignition

import (
	"reflect"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Merge merges configurations by Ignition's own rules: entries with the same path, unit, user or device are merged
// field by field, and the later one wins; others are added. Like the Machine Config Operator, it differs from Ignition
// in two ways:
//
//   - The contents of a file are replaced as a whole. If a later configuration has contents, the compression,
//     verification and HTTP headers of the earlier one are dropped.
//   - A file with contents overwrites that of the operating system, unless overwrite is set.
//
// The arguments are not modified. The result can be invalid: see ValidateMerged.
func Merge(configs ...Config) Config {
	nodes, units := tally{keys: map[string]*counted{}}, tally{keys: map[string]*counted{}}
	for _, config := range configs {
		count(&nodes, "files", config.Storage.Files)
		count(&nodes, "directories", config.Storage.Directories)
		count(&nodes, "links", config.Storage.Links)
		count(&units, "units", config.Systemd.Units)
	}
	var alone Config
	var rest []Config
	for _, config := range configs {
		setAside(&nodes, &config.Storage.Files, &alone.Storage.Files)
		setAside(&nodes, &config.Storage.Directories, &alone.Storage.Directories)
		setAside(&nodes, &config.Storage.Links, &alone.Storage.Links)
		setAside(&units, &config.Systemd.Units, &alone.Systemd.Units)
		config.Ignition.Version = Version
		if !reflect.DeepEqual(config, New()) {
			rest = append(rest, config)
		}
	}
	merged := mergeRest(rest)
	merged.Storage.Files = putBack(&nodes, merged.Storage.Files, alone.Storage.Files)
	merged.Storage.Directories = putBack(&nodes, merged.Storage.Directories, alone.Storage.Directories)
	merged.Storage.Links = putBack(&nodes, merged.Storage.Links, alone.Storage.Links)
	merged.Systemd.Units = putBack(&units, merged.Systemd.Units, alone.Systemd.Units)
	merged.Ignition.Version = Version
	for i := range merged.Storage.Files {
		file := &merged.Storage.Files[i]
		if file.Overwrite == nil && file.Contents.Source != nil {
			file.Overwrite = new(true)
		}
	}
	return merged
}

// mergeRest merges, with Ignition's merge, the entries that occur several times.
func mergeRest(configs []Config) Config {
	switch {
	case len(configs) == 0:
		return New()
	case keepTheirKinds(configs):
		return byHalves(configs)
	}
	merged := New()
	for _, config := range configs {
		merged = lay(merged, config)
	}
	return merged
}

// byHalves merges in a tree instead of one by one: the time of Ignition's merge depends on the entries of both sides,
// and in a tree each entry is merged fewer times.
func byHalves(configs []Config) Config {
	if len(configs) == 1 {
		return configs[0]
	}
	half := len(configs) / 2
	return lay(byHalves(configs[:half]), byHalves(configs[half:]))
}

// keepTheirKinds reports whether every path has the same kind in all configurations, and every kernel argument is in
// the same list. Only then is the merge associative: a link that replaces a file removes everything that was merged
// before it.
func keepTheirKinds(configs []Config) bool {
	type entry struct{ list, name string }
	kinds := map[entry]string{}
	keep := true
	note := func(list, name, kind string) {
		if known, has := kinds[entry{list, name}]; has && known != kind {
			keep = false
		}
		kinds[entry{list, name}] = kind
	}
	for _, config := range configs {
		for _, file := range config.Storage.Files {
			note("storage", file.Path, "file")
		}
		for _, directory := range config.Storage.Directories {
			note("storage", directory.Path, "directory")
		}
		for _, link := range config.Storage.Links {
			note("storage", link.Path, "link")
		}
		for _, argument := range config.KernelArguments.ShouldExist {
			note("kernelArguments", string(argument), "shouldExist")
		}
		for _, argument := range config.KernelArguments.ShouldNotExist {
			note("kernelArguments", string(argument), "shouldNotExist")
		}
	}
	return keep
}

// lay merges over into base.
func lay(base, over Config) Config {
	base.Storage.Files = withoutContents(base.Storage.Files, over.Storage.Files)
	return v3_5.Merge(base, over)
}

// withoutContents returns files without the contents that over replaces.
func withoutContents(files, over []types.File) []types.File {
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
