package input

import (
	"fmt"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Text is a file that is one document and no object, as Ignition or Butane.
type Text struct{ at place }

// NewText returns a document with its name in messages.
func NewText(name string, text []byte) *Text {
	return &Text{at: place{file: name, in: &document{text: text, line: 1}}}
}

// Locate returns an error about a part of the document with its line: that of its path, in the notation of Ignition
// or of Butane, or the problem's own if it has no path.
func (t *Text) Locate(problem ignition.Problem) error {
	at := t.at.of(problem.Path)
	if _, snake := t.at.find(snakeCase(problem.Path)); snake > at.at {
		at.at = snake // of Butane
	}
	if problem.Line > 0 && strings.HasPrefix(problem.Message, "malformed") || problem.Path == "" || t.at.in.root == nil {
		at.at = int(problem.Line)
	}
	at.at, problem.Line = max(at.at, 1), 0
	return at.errorf("%s", problem)
}

// Errorf returns an error about the part of the document with a path.
func (t *Text) Errorf(path, text string, args ...any) error {
	return t.Locate(ignition.Problem{Path: path, Message: fmt.Sprintf(text, args...)})
}
