package outlook

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

const root = "../.."

var _ = Describe("The pages about problems", func() {
	It("have every event that controllers send as a Warning", func() {
		var sent []string
		for _, file := range parseFolder("controllers") {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n.(type) {
				case *ast.CallExpr, *ast.AssignStmt:
					if names := selectorsIn(n); slices.Contains(names, "EventTypeWarning") || slices.Contains(names, "NewObstacle") {
						sent = append(sent, names...)
					}
				}
				return true
			})
		}
		found := 0
		for _, event := range constants() {
			if strings.HasPrefix(event.name, "Event") && slices.Contains(sent, event.name) {
				found++
				Expect(event.comment).To(HavePrefix("Warning: "), "the comment of %s", event.name)
			}
		}
		Expect(found).To(BeNumerically(">", 10))
	})

	It("have every reason of an Enrollment", func() {
		page, err := os.ReadFile(filepath.Join(root, "docs", "enroll.md"))
		Expect(err).NotTo(HaveOccurred())
		for _, reason := range constants() {
			if strings.HasPrefix(reason.name, "Enrollment") && strings.HasSuffix(reason.name, "Reason") {
				Expect(string(page)).To(ContainSubstring("`"+reason.value+"`"), "docs/enroll.md")
			}
		}
	})
})

// parseFolder parses the Go files in a folder and the folders in it, in the order of their paths, except tests.
func parseFolder(folder string) (files []*ast.File) {
	GinkgoHelper()
	Expect(filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		files = append(files, file)
		return err
	})).To(Succeed())
	return files
}

// selectorsIn returns the names of the selectors in a call or an assignment, except those in functions in it.
func selectorsIn(n ast.Node) (names []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if selector, is := n.(*ast.SelectorExpr); is {
			names = append(names, selector.Sel.Name)
		}
		_, is := n.(*ast.FuncLit)
		return !is
	})
	return names
}

// constant is a string constant of the API.
type constant struct{ name, value, comment string }

func constants() (found []constant) {
	GinkgoHelper()
	for _, file := range parseFolder("api") {
		ast.Inspect(file, func(n ast.Node) bool {
			declaration, is := n.(*ast.GenDecl)
			if !is || declaration.Tok != token.CONST {
				return true
			}
			for _, spec := range declaration.Specs {
				of := spec.(*ast.ValueSpec)
				if len(of.Values) == 1 {
					found = append(found, constant{of.Names[0].Name, literal(of.Values[0]), strings.Join(strings.Fields(of.Doc.Text()), " ")})
				}
			}
			return false
		})
	}
	return found
}

// warnings returns the rows of the table of events. The others have the reason of a condition.
func warnings() (rows []string) {
	for _, event := range constants() {
		if meaning, is := strings.CutPrefix(event.comment, "Warning: "); is && table[event.value] == "" {
			rows = append(rows, fmt.Sprintf("| `%s` | %s |", event.value, asMarkdown(meaning)))
		}
	}
	return rows
}

// answers are the beginnings of the rows of the refusals that functions of the config server create.
var answers = map[string]string{"unauthorized": "401 `Unauthorized`", "forbidden": "403 `Forbidden`", "notReady": "503 `NotReady`"}

// statuses are the codes by which newRefusal creates a refusal.
var statuses = map[string]int{
	"StatusBadRequest": http.StatusBadRequest, "StatusUnauthorized": http.StatusUnauthorized, "StatusForbidden": http.StatusForbidden,
	"StatusNotFound": http.StatusNotFound, "StatusMethodNotAllowed": http.StatusMethodNotAllowed, "StatusNotAcceptable": http.StatusNotAcceptable,
	"StatusGone": http.StatusGone, "StatusRequestEntityTooLarge": http.StatusRequestEntityTooLarge,
	"StatusTooManyRequests": http.StatusTooManyRequests, "StatusServiceUnavailable": http.StatusServiceUnavailable,
}

var verb = regexp.MustCompile(`%[a-z]`)

// refusals returns the rows of the table of refusals: all that the config server creates, except those after which the
// host only tries again.
func refusals() (rows []string) {
	GinkgoHelper()
	messages := map[string][]string{}
	for _, file := range parseFolder("bootstrap/server") {
		ast.Inspect(file, func(n ast.Node) bool {
			call, is := n.(*ast.CallExpr)
			if !is {
				return true
			}
			function, _ := call.Fun.(*ast.Ident)
			if function == nil || answers[function.Name] == "" && function.Name != "newRefusal" {
				return true
			}
			answer, text := answers[function.Name], call.Args[0]
			if answer == "" {
				status, is := call.Args[0].(*ast.SelectorExpr)
				if !is {
					return true
				}
				Expect(statuses).To(HaveKey(status.Sel.Name))
				answer, text = fmt.Sprintf("%d `%s`", statuses[status.Sel.Name], literal(call.Args[1])), call.Args[2]
			}
			message := verb.ReplaceAllString(literal(text), "…")
			if message != "…" && (answer != answers["notReady"] || !strings.HasSuffix(message, ". Try again")) {
				messages[answer] = append(messages[answer], message)
			}
			return true
		})
	}
	for _, answer := range slices.Sorted(maps.Keys(messages)) {
		slices.Sort(messages[answer])
		rows = append(rows, fmt.Sprintf("| %s | %s |", answer, strings.Join(slices.Compact(messages[answer]), "<br>")))
	}
	return rows
}

// literal returns the text of an expression, with … for each part that is no literal.
func literal(expression ast.Expr) string {
	GinkgoHelper()
	switch expression := expression.(type) {
	case *ast.BasicLit:
		if expression.Kind == token.STRING {
			text, err := strconv.Unquote(expression.Value)
			Expect(err).NotTo(HaveOccurred())
			return text
		}
	case *ast.BinaryExpr:
		return literal(expression.X) + literal(expression.Y)
	}
	return "…"
}
