package input

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"
)

// Stdin is the file name for standard input.
const Stdin = "-"

// templateMark begins an action in the templates of Helm and of Go.
const templateMark = "{{"

// extensions are those of the files that are read from a directory, as kubectl does.
var extensions = []string{".json", ".yaml", ".yml"}

// Files reads objects from the files of a command line. It is not cli-runtime's resource.Builder, which also fetches
// URLs and does not report in which document of a file a mistake is.
type Files struct {
	// Streams has standard input, and standard error for notes about objects of other kinds.
	Streams genericiooptions.IOStreams
	// Names are the values of the flag.
	Names []string
	// Settings are the kinds of OpenShift with settings that are read too.
	Settings []schema.GroupVersionKind
	// SkipRefused has documents that can't be read listed in Objects.Refused, and the others read. An object of
	// OpenShift's that is the same as one before is left out.
	SkipRefused bool
	// Validate has Poolboot's objects refused that the API server or a webhook would refuse.
	Validate bool

	recursive bool
	stdinRead bool
}

// AddRequiredFlag defines the flag for files and directories, which must be set, and --recursive.
func (f *Files) AddRequiredFlag(cmd *cobra.Command, flag, shorthand, usage string) {
	f.AddFlag(cmd, flag, shorthand, usage)
	utilruntime.Must(cmd.MarkFlagRequired(flag))
}

// AddFlag defines the flag for files and directories, and --recursive.
func (f *Files) AddFlag(cmd *cobra.Command, flag, shorthand, usage string) {
	cmd.Flags().StringSliceVarP(&f.Names, flag, shorthand, nil, "files with "+usage+
		": file, directory (its *.yaml, *.yml and *.json), or - for standard input; may be repeated, and arguments are files too")
	f.AddRecursiveFlag(cmd)
	cmd.PreRunE = func(*cobra.Command, []string) error { // before cobra refuses that other flags are not set
		for _, name := range f.Names {
			if _, err := stat(name); err != nil {
				return err
			}
		}
		return nil
	}
	utilruntime.Must(cmd.MarkFlagFilename(flag, "json", "yaml", "yml"))
}

// AddRecursiveFlag defines --recursive, for a command whose flags for files are its own.
func (f *Files) AddRecursiveFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.recursive, "recursive", "R", false, "read the subdirectories of directories too")
}

// Objects reads all objects in the files of the flag and of arguments.
func (f *Files) Objects(args []string) (*Objects, error) {
	return f.Read(append(slices.Clone(f.Names), args...)...)
}

// Read reads all objects in files and directories. It reads each file once, also if a link leads to it.
func (f *Files) Read(names ...string) (*Objects, error) {
	objects := &Objects{notes: f.Streams.ErrOut, settings: f.Settings, skipCopies: f.SkipRefused, validate: f.Validate}
	read := map[string]fs.FileInfo{}
	for _, name := range names {
		paths, err := f.expand(name)
		if err != nil {
			return nil, err
		}
		objects.inDirectory = name != Stdin && !slices.Equal(paths, []string{name})
		for _, path := range paths {
			if same := findSame(path, read); same != "" {
				fmt.Fprintf(objects.notes, "note: %s is left out: it is the same file as %s\n", path, same)
				continue
			}
			if err := f.readFile(path, objects); err != nil {
				return nil, err
			}
		}
	}
	if f.Validate {
		objects.Refused = append(objects.Refused, objects.validatePools())
	}
	objects.Refused = InOrder(objects.Refused...)
	if f.SkipRefused {
		return objects, nil
	}
	return objects, errors.Join(objects.Refused...)
}

// CheckNotEmpty returns an error if the files contain no object of any kind.
func (o *Objects) CheckNotEmpty() error {
	if o.objects > 0 || len(o.Refused) > 0 {
		return nil
	}
	return fmt.Errorf("%s: contains no object: if a command wrote it, it failed or found nothing: write the file again", strings.Join(o.files, ", "))
}

// stat returns what a name of the command line is, and nil for standard input.
func stat(name string) (fs.FileInfo, error) {
	if name == Stdin {
		return nil, nil
	}
	info, err := os.Stat(name)
	switch {
	case err != nil && strings.Contains(name, "://"):
		err = fmt.Errorf("%s: URLs are not read: download the file, and name it", name)
	case errors.Is(err, fs.ErrNotExist):
		err = fmt.Errorf("%s: no such file or directory: correct the name", name)
	}
	return info, err
}

// expand returns the files of a directory, in the order of their names; a file is itself. Hidden directories, such as
// that of Git, are left out.
func (f *Files) expand(name string) ([]string, error) {
	if info, err := stat(name); err != nil || info == nil || !info.IsDir() {
		return []string{name}, err
	}
	var paths []string
	root := name + string(filepath.Separator) // follows a link to a directory
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (!f.recursive || strings.HasPrefix(entry.Name(), ".")):
			return filepath.SkipDir
		case entry.IsDir() || !slices.Contains(extensions, filepath.Ext(path)):
			return nil
		}
		// Opening a pipe waits, and opening some devices has an effect.
		if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			_, err := fmt.Fprintf(f.Streams.ErrOut, "note: %s is left out: it is no regular file, and no link to one\n", path)
			return err
		}
		paths = append(paths, path)
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("the directory %s contains no *.yaml, *.yml or *.json: name another directory, or add -R to read its subdirectories", name)
	}
	return paths, err
}

// findSame returns the file, of those that were read, that is the same, and adds the file otherwise. Pipes are never
// the same: each has more to read.
func findSame(path string, read map[string]fs.FileInfo) string {
	info, err := os.Stat(path)
	if path == Stdin || err != nil || !info.Mode().IsRegular() {
		return "" // opening it returns the error
	}
	for _, known := range slices.Sorted(maps.Keys(read)) {
		if os.SameFile(read[known], info) {
			return known
		}
	}
	read[path] = info
	return ""
}

// readFile adds the objects in a file. Errors name the file and the document, counted from 1; documents that hold only
// comments don't count.
func (f *Files) readFile(path string, objects *Objects) error {
	content := f.Streams.In
	if path == Stdin {
		if f.stdinRead {
			return errors.New("standard input (-) can be read only once: name a file instead")
		}
		path, f.stdinRead = "standard input", true
	} else {
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		content = file
	}

	text, err := io.ReadAll(content)
	if err == nil {
		text, err = Normalize(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	objects.files = append(objects.files, path)
	chunks := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	number, end := 1, position{line: 1}
	for {
		chunk, err := chunks.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		whole := document{text: chunk}
		whole.line, end = findChunk(text, chunk, end)
		objects.documents++
		at := place{file: path, read: objects.documents, number: number, in: &whole}
		var documents []jsonDocument
		if err == nil {
			documents, err = toJSON(chunk)
		}
		if err != nil {
			objects.refuseMalformed(at, chunk, err)
			if chunk == nil { // the rest of the file can't be read
				return nil
			}
			number++
		}
		for _, one := range documents {
			at.number, at.in = number, one.within(whole)
			objects.add(schema.GroupVersionKind{}, at, one.json)
			number++
		}
	}
}

// refuseMalformed refuses a document that is not YAML. In directories, templates are only noted.
func (o *Objects) refuseMalformed(at place, text []byte, err error) {
	o.objects++
	i := bytes.Index(text, []byte(templateMark))
	if i >= 0 && strings.Contains(err.Error(), "map[interface {}]") { // what {{a}} is in YAML
		at.at = at.in.line + bytes.Count(text[:i], []byte("\n"))
		err = at.errorf("%w", errTemplate)
	} else if err = at.ofYAML(err); i >= 0 {
		err = fmt.Errorf("%w: if it is a template, render it, and convert the result", err)
	}
	if i >= 0 && o.inDirectory {
		fmt.Fprintf(o.notes, "note: %v: it is left out\n", err)
		return
	}
	o.Refused = append(o.Refused, err)
}

// jsonDocument is a document in JSON, and where it is in a text if it is JSON there too.
type jsonDocument struct {
	json json.RawMessage
	from int // -1 if it is the whole text
}

// within returns the document of a text.
func (d jsonDocument) within(whole document) *document {
	if d.from < 0 || whole.line == 0 {
		return &whole
	}
	return &document{text: d.json, line: whole.line + bytes.Count(whole.text[:d.from], []byte("\n"))}
}

// toJSON converts the text between two YAML separators to JSON documents: none when it is empty, several only when it
// is JSON already.
func toJSON(chunk []byte) ([]jsonDocument, error) {
	if utilyaml.IsJSONBuffer(chunk) {
		var documents []jsonDocument
		for decoder := json.NewDecoder(bytes.NewReader(chunk)); ; {
			var text json.RawMessage
			err := decoder.Decode(&text)
			if errors.Is(err, io.EOF) {
				return documents, nil
			}
			if err != nil {
				break // it must be YAML, which has braces too
			}
			documents = append(documents, jsonDocument{json: text, from: int(decoder.InputOffset()) - len(text)})
		}
	}
	text, err := yaml.YAMLToJSONStrict(chunk)
	if err != nil && strings.Contains(err.Error(), keyTwice) {
		if err = explainMergeKeys(chunk, err); err == nil {
			text, err = yaml.YAMLToJSON(chunk)
		}
	}
	if err != nil || string(text) == "null" {
		return nil, err
	}
	return []jsonDocument{{json: text, from: -1}}, nil
}
