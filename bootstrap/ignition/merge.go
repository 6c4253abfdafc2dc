package ignition

import (
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Merge lays over on top of base, by Ignition's own rules: entries of the same path, unit, user or device are merged field
// by field and over wins; others are added. In two things it does what the Machine Config Operator does and Ignition alone
// does not:
//
//   - The contents of a file are one thing. When over has its own, nothing of base's compression, verification or HTTP
//     headers is left to describe them.
//   - A file with contents overwrites what the operating system has at its path, unless it says otherwise.
//
// Neither argument is changed. What comes out need not be valid: see Validate.
func Merge(base, over Config) Config {
	base.Storage.Files = withoutContents(base.Storage.Files, over.Storage.Files)
	merged := v3_5.Merge(base, over)
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
