package input

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// problem is an error with its place.
type problem struct {
	at  place
	err error
}

func (p *problem) Error() string { return fmt.Sprintf("%s: %v", p.at, p.err) }

// Unwrap returns the error without its place.
func (p *problem) Unwrap() error { return p.err }

// errorf returns an error with its place. Texts in it stay on its line.
func (p place) errorf(text string, args ...any) error {
	args = slices.Clone(args)
	for i, arg := range args {
		switch arg := arg.(type) {
		case string:
			args[i] = onOneLine(arg)
		case ignition.Problem:
			args[i] = onOneLine(arg.String())
		}
	}
	return &problem{p, fmt.Errorf(text, args...)}
}

// onOneLine escapes the ends of lines in a text, which could look like another message.
func onOneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}

// before orders places as a reader of the files comes across them.
func (p place) before(other place) int {
	return cmp.Or(cmp.Compare(p.read, other.read), slices.Compare(p.items, other.items), cmp.Compare(p.at, other.at))
}

// InOrder returns errors one by one in the order of their places, and each text once. Those without a place are first.
func InOrder(errs ...error) (ordered []error) {
	seen := map[string]bool{}
	var flatten func(errs []error)
	flatten = func(errs []error) {
		for _, err := range errs {
			joined, isJoined := err.(interface{ Unwrap() []error })
			switch {
			case err == nil:
			case isJoined && errors.Join(joined.Unwrap()...).Error() == err.Error():
				flatten(joined.Unwrap())
			case !seen[err.Error()]:
				seen[err.Error()] = true
				ordered = append(ordered, err)
			}
		}
	}
	flatten(errs)
	placeOf := func(err error) place {
		if located := (*problem)(nil); errors.As(err, &located) {
			return located.at
		}
		return place{read: -1}
	}
	slices.SortStableFunc(ordered, func(a, b error) int { return placeOf(a).before(placeOf(b)) })
	return ordered
}

// CountObjects returns how many documents and items errors are about.
func CountObjects(errs []error) int {
	objects, others := map[string]bool{}, 0
	for _, err := range errs {
		if located := (*problem)(nil); errors.As(err, &located) {
			at := located.at
			at.at = 0
			objects[at.String()] = true
		} else {
			others++
		}
	}
	return len(objects) + others
}

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
