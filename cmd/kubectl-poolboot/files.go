package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// stdin is the file name that stands for standard input.
const stdin = "-"

// extensions are those of the files that are read out of a directory, as kubectl does.
var extensions = []string{".json", ".yaml", ".yml"}

// reader reads objects from files. It is not cli-runtime's resource.Builder, which also fetches URLs, and does not say
// in which document of a file a mistake is.
type reader struct {
	streams   genericiooptions.IOStreams
	recursive bool
	stdinRead bool

	// takesKubelets has OpenShift's KubeletConfigs read too.
	takesKubelets bool
}

// offerFiles defines the flag by which files and directories must be named, and --recursive.
func (r *reader) offerFiles(cmd *cobra.Command, names *[]string, flag, shorthand, usage string) {
	r.offerOptionalFiles(cmd, names, flag, shorthand, usage)
	must(cmd.MarkFlagRequired(flag))
}

// offerOptionalFiles is offerFiles for a command that can do without.
func (r *reader) offerOptionalFiles(cmd *cobra.Command, names *[]string, flag, shorthand, usage string) {
	cmd.Flags().StringSliceVarP(names, flag, shorthand, nil, usage+
		": file, directory (its *.yaml, *.yml and *.json), or - for standard input; may be repeated, and arguments are files too")
	cmd.Flags().BoolVarP(&r.recursive, "recursive", "R", false, "read directories with all that is below them")
	must(cmd.MarkFlagFilename(flag, "json", "yaml", "yml"))
}

// read reads all objects in files and directories.
func (r *reader) read(names ...string) (*objects, error) {
	found := &objects{notes: r.streams.ErrOut, takesKubelets: r.takesKubelets}
	for _, name := range names {
		paths, err := r.expand(name)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if err := r.readFile(path, found); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// expand returns the files of a directory, in the order of their names; a file is itself.
func (r *reader) expand(name string) ([]string, error) {
	if name == stdin {
		return []string{name}, nil
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		return []string{name}, err
	}
	var paths []string
	root := name + string(filepath.Separator) // follows a link to a directory
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && !r.recursive:
			return filepath.SkipDir
		case !entry.IsDir() && slices.Contains(extensions, filepath.Ext(path)):
			paths = append(paths, path)
		}
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("the directory %s holds no *.yaml, *.yml or *.json: name another, or add -R for those below it", name)
	}
	return paths, err
}

// readFile adds the objects in a file to those found. Errors name the file and the document, counted from 1; documents
// that hold nothing but comments don't count.
func (r *reader) readFile(path string, found *objects) error {
	content := r.streams.In
	if path == stdin {
		if r.stdinRead {
			return errors.New("standard input (-) can be read only once: name a file instead")
		}
		path, r.stdinRead = "standard input", true
	} else {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		content = file
	}

	chunks := utilyaml.NewYAMLReader(bufio.NewReader(content))
	number := 1
	for {
		chunk, err := chunks.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var documents []json.RawMessage
		if err == nil {
			documents, err = toJSON(chunk)
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", path, number, err)
		}
		for _, document := range documents {
			if err := found.add(place{file: path, document: number}, document); err != nil {
				return err
			}
			number++
		}
	}
}

// toJSON turns what stands between two YAML separators into JSON documents: none when it is empty, several only when it
// is JSON already.
func toJSON(chunk []byte) ([]json.RawMessage, error) {
	if utilyaml.IsJSONBuffer(chunk) {
		var documents []json.RawMessage
		for decoder := json.NewDecoder(bytes.NewReader(chunk)); ; {
			var document json.RawMessage
			err := decoder.Decode(&document)
			if errors.Is(err, io.EOF) {
				return documents, nil
			}
			if err != nil {
				break // then it must be YAML, which has braces too
			}
			documents = append(documents, document)
		}
	}
	document, err := yaml.YAMLToJSONStrict(chunk)
	if err != nil || string(document) == "null" {
		return nil, err
	}
	return []json.RawMessage{document}, nil
}
