package prose

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

const (
	root = "../.."

	// commentWidth is the last column that a comment can reach. A tab counts as four columns.
	commentWidth = 120
)

func TestCommentsFitBesideADiff(t *testing.T) {
	files := 0
	for _, file := range filesOf(t, ".go") {
		if strings.HasPrefix(filepath.Base(file), "zz_generated") {
			continue
		}
		files++
		lines := bufio.NewScanner(bytes.NewReader(read(t, file)))
		lines.Buffer(nil, 1<<20)
		for number := 1; lines.Scan(); number++ {
			if isTooWide(lines.Text()) {
				t.Errorf("%s:%d: the comment is wider than %d columns: wrap it", file, number, commentWidth)
			}
		}
	}
	if files < 100 {
		t.Errorf("found %d Go files, expected those of the whole repository", files)
	}
}

func TestIsTooWide(t *testing.T) {
	long := strings.Repeat("word ", 30)
	for line, want := range map[string]bool{
		"// " + long:                       true,
		"\t// " + long:                     true,
		"\t\t// - " + long:                 true,
		"// +kubebuilder:rbac:" + long:     false,
		"//go:generate " + long:            false,
		"x := 1 // " + long:                false,
		"// " + strings.Repeat("x", 200):   false,
		"// " + strings.Repeat("ä ", 50):   false,
		"\t// " + strings.Repeat("a ", 58): true,
	} {
		if got := isTooWide(line); got != want {
			t.Errorf("isTooWide(%q) = %t, want %t", line, got, want)
		}
	}
}

// isTooWide reports whether a line is a comment that can be wrapped and is wider than commentWidth. Markers and
// directives can't be wrapped, and neither can a single word, such as a URL.
func isTooWide(line string) bool {
	comment, ok := strings.CutPrefix(strings.TrimSpace(line), "// ")
	if !ok || strings.HasPrefix(comment, "+") || !strings.ContainsFunc(strings.TrimSpace(comment), unicode.IsSpace) {
		return false
	}
	return utf8.RuneCountInString(strings.ReplaceAll(strings.TrimRight(line, " "), "\t", "    ")) > commentWidth
}

func TestLinksLeadSomewhere(t *testing.T) {
	anchors := map[string][]string{}
	links := map[string][]string{}
	for _, file := range filesOf(t, ".md") {
		anchors[file], links[file] = anchorsAndLinks(read(t, file))
	}
	// Messages of the programs name pages as paths from the root.
	page := regexp.MustCompile(`(?m)(?:^|[^\w/])(docs/(?:dev/)?[a-z-]+\.md(?:#[\w-]+)?)`)
	for _, file := range filesOf(t, ".go") {
		for _, link := range page.FindAllSubmatch(read(t, file), -1) {
			links[file] = append(links[file], "/"+string(link[1]))
		}
	}
	checked := 0
	for file, targets := range links {
		for _, target := range targets {
			link, err := url.Parse(target)
			if err != nil {
				t.Errorf("%s: link %q: %v", file, target, err)
				continue
			}
			if link.IsAbs() {
				continue
			}
			checked++
			to := file
			switch {
			case strings.HasPrefix(link.Path, "/"):
				to = filepath.Join(root, link.Path)
			case link.Path != "":
				to = filepath.Join(filepath.Dir(file), link.Path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: link %q: no such file", file, target)
			} else if found, ok := anchors[to]; ok && link.Fragment != "" && !slices.Contains(found, link.Fragment) {
				t.Errorf("%s: link %q: %s has no heading with this anchor", file, target, to)
			}
		}
	}
	if checked < 100 {
		t.Errorf("checked %d links, expected those of the whole documentation", checked)
	}
}

func TestAnchorsAreThoseOfGitHub(t *testing.T) {
	anchors, links := anchorsAndLinks([]byte("# Nodes & `spec.host`\n\n## A_b, c's\n\n## A_b, c's\n\n```\n[no](link)\n```\n\n[one](two.md#three) <a id=\"four\"></a>\n"))
	if want := []string{"nodes--spechost", "a_b-cs", "a_b-cs-1", "four"}; !slices.Equal(anchors, want) {
		t.Errorf("anchors %q, want %q", anchors, want)
	}
	if want := []string{"two.md#three"}; !slices.Equal(links, want) {
		t.Errorf("links %q, want %q", links, want)
	}
}

// anchorsAndLinks returns the anchors that GitHub gives to the headings of a document, its explicit anchors, and the
// targets of its links and images.
func anchorsAndLinks(document []byte) (anchors, links []string) {
	html := regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	parser := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()
	_ = ast.Walk(parser.Parse(text.NewReader(document)), func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.Heading:
			base := slug(textOf(node, document))
			anchor := base
			for again := 1; slices.Contains(anchors, anchor); again++ {
				anchor = fmt.Sprintf("%s-%d", base, again)
			}
			anchors = append(anchors, anchor)
		case *ast.Link:
			links = append(links, string(node.Destination))
		case *ast.Image:
			links = append(links, string(node.Destination))
		case *ast.RawHTML:
			for i := range node.Segments.Len() {
				segment := node.Segments.At(i)
				for _, match := range html.FindAllSubmatch(segment.Value(document), -1) {
					anchors = append(anchors, string(match[1]))
				}
			}
		}
		return ast.WalkContinue, nil
	})
	return anchors, links
}

// slug returns the anchor of a heading: lower case, without punctuation other than "-" and "_", and with "-" for each
// space.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// textOf returns the text of a heading without its markup.
func textOf(node ast.Node, document []byte) string {
	var b strings.Builder
	_ = ast.Walk(node, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(document))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

func TestNamedTestsExist(t *testing.T) {
	// A reference is a test file in backticks, followed by titles in quotes: `a/b_test.go` "is so", "is not".
	reference := regexp.MustCompile("`([\\w./-]+_test\\.go)`((?:[ ,]*(?:and )?\"[^\"]+\")*)")
	title := regexp.MustCompile(`"([^"]+)"`)
	checked := 0
	for _, file := range filesOf(t, ".md") {
		for _, match := range reference.FindAllSubmatch(read(t, file), -1) {
			source, err := os.ReadFile(filepath.Join(root, string(match[1])))
			if err != nil {
				t.Errorf("%s names the test %s: no such file", file, match[1])
				continue
			}
			for _, quoted := range title.FindAllSubmatch(match[2], -1) {
				checked++
				if !bytes.Contains(source, bytes.Join(bytes.Fields(quoted[1]), []byte(" "))) {
					t.Errorf("%s names the test %q in %s: no such title", file, quoted[1], match[1])
				}
			}
		}
	}
	if checked < 100 {
		t.Errorf("checked %d titles, expected those of the whole documentation", checked)
	}
}

// filesOf returns the files of the repository with a suffix, except build output and test data.
func filesOf(t *testing.T, ending string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			switch entry.Name() {
			case "bin", "out", ".git", "testdata":
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(path, ending) {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
