package ignition

import (
	"reflect"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Merge lays every configuration on top of those before it, by Ignition's own rules: entries of the same path, unit,
// user or device are merged field by field and the later wins; others are added. In two things it does what the Machine
// Config Operator does and Ignition alone does not:
//
//   - The contents of a file are one thing. When a later configuration has its own, nothing of the earlier one's
//     compression, verification or HTTP headers is left to describe them.
//   - A file with contents overwrites what the operating system has at its path, unless it says otherwise.
//
// No argument is changed. What comes out need not be valid: see Validate.
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
			overwrite := true
			file.Overwrite = &overwrite
		}
	}
	return merged
}

// mergeRest merges, by Ignition, what may have something to be merged with.
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

// byHalves merges in a tree instead of a row: Ignition's merge takes its time for every entry of both sides, so that
// each entry is better merged a few times than once for every configuration after it.
func byHalves(configs []Config) Config {
	if len(configs) == 1 {
		return configs[0]
	}
	half := len(configs) / 2
	return lay(byHalves(configs[:half]), byHalves(configs[half:]))
}

// keepTheirKinds says whether every path is of one kind in all configurations, and every kernel argument on one side.
// Then, and only then, merging is associative: a link that takes a file's place makes an end of all that came before
// it.
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

// lay lays over on top of base.
func lay(base, over Config) Config {
	base.Storage.Files = withoutContents(base.Storage.Files, over.Storage.Files)
	return v3_5.Merge(base, over)
}

// withoutContents returns files without the contents of those that have new ones in over.
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
