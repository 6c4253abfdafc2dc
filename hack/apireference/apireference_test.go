// Package apireference_test verifies that the table of labels, annotations, taints and finalizers in docs/reference.md
// matches the constants in api/.
package apireference_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

// kept matches the names of constants whose values are keys in the table.
var kept = regexp.MustCompile(`(Annotation|Label|Taint)$|^Finalizer$`)

// row matches a row of the table: key, kind, objects, writer, value, move.
var row = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (annotation|label|taint|finalizer) \\| ([^|]+) \\| ([^|]+) \\|([^|]*)\\| ([^|]+) \\|$")

// parse parses the Go files in folders, without tests, and calls each for every file.
func parse(t *testing.T, folders []string, each func(path string, file *ast.File)) {
	t.Helper()
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				each(filepath.ToSlash(path), file)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// constants returns the values of the API's string constants by name, and the values of those of each named type.
func constants(t *testing.T) (values map[string]string, ofType map[string][]string) {
	t.Helper()
	values, ofType = map[string]string{}, map[string][]string{}
	parse(t, []string{"api"}, func(_ string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) == 0 {
				return true
			}
			literal, ok := spec.Values[0].(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			value, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			values[spec.Names[0].Name] = value
			if of, ok := spec.Type.(*ast.Ident); ok {
				ofType[of.Name] = append(ofType[of.Name], value)
			}
			return true
		})
	})
	return values, ofType
}

func TestTableHasEveryKeyOfTheAPI(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference.md"))
	if err != nil {
		t.Fatal(err)
	}
	values, ofType := constants(t)
	constantOf := map[string]string{}
	for name, key := range values {
		if !kept.MatchString(name) {
			continue
		}
		if other, twice := constantOf[key]; twice {
			t.Errorf("%s and %s are the same key %s: each key has one meaning", name, other, key)
		}
		constantOf[key] = name
	}
	described := map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(string(page), -1) {
		key, kind, value := cells[1], cells[2], cells[5]
		if _, twice := described[key]; twice {
			t.Errorf("%s is in the table twice", key)
		}
		described[key] = value
		if name := constantOf[key]; name != "Finalizer" && !strings.HasSuffix(strings.ToLower(name), kind) {
			t.Errorf("%s is no %s", name, kind)
		}
	}
	if got, want := slices.Sorted(maps.Keys(described)), slices.Sorted(maps.Keys(constantOf)); !slices.Equal(got, want) {
		t.Errorf("docs/reference.md has the keys\n%v\nand api/ has\n%v\nCorrect hack/api-reference-metadata.md and run make generate", got, want)
	}
	states := ofType["TokenState"]
	if len(states) == 0 {
		t.Fatal("no TokenState was found")
	}
	for _, state := range states {
		if !strings.Contains(described[values["TokenStateAnnotation"]], "`"+state+"`") {
			t.Errorf("the value %s of token-state is not in the table", state)
		}
	}
}

func TestNoKeyIsWrittenOutsideOfTheAPI(t *testing.T) {
	values, _ := constants(t)
	keys := slices.Collect(maps.Values(values))
	parse(t, []string{"bootstrap", "controllers", "cmd"}, func(path string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if value, err := strconv.Unquote(literal.Value); err == nil && strings.Contains(value, ".cluster.x-k8s.io/") && slices.Contains(keys, value) ||
					regexp.MustCompile(`^poolboot\.io/[a-z0-9-]+$`).MatchString(value) {
					t.Errorf("%s: %q: use a constant of api/", path, value)
				}
			}
			return true
		})
	})
}
