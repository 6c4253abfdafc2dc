package ignition

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/coreos/vcontext/report"
)

// ParseError lists the problems of a configuration.
type ParseError struct {
	// Problems has at least one item.
	Problems []Problem
}

// Problem is one problem of a configuration.
type Problem struct {
	// Path is the path in the document, for example storage.files[2].mode, or empty for the document itself.
	Path string
	// Line is the line in the document, counted from 1, or 0 if it is unknown.
	Line int64
	// Message is what is wrong there.
	Message string
}

// Error names every problem with its path and its line.
func (e *ParseError) Error() string {
	problems := make([]string, len(e.Problems))
	for i, problem := range e.Problems {
		problems[i] = problem.String()
	}
	return strings.Join(problems, "; ")
}

// String returns the message with its path and line.
func (p Problem) String() string {
	switch {
	case p.Path != "" && p.Line > 0:
		return fmt.Sprintf("%s (line %d): %s", p.Path, p.Line, p.Message)
	case p.Path != "":
		return p.Path + ": " + p.Message
	case p.Line > 0:
		return fmt.Sprintf("line %d: %s", p.Line, p.Message)
	}
	return p.Message
}

// newParseError returns a ParseError with one problem.
func newParseError(path, message string) *ParseError {
	return &ParseError{Problems: []Problem{{Path: path, Message: message}}}
}

// fatalProblems converts the fatal entries of a report to problems.
func fatalProblems(entries report.Report) []Problem {
	var problems []Problem
	for _, entry := range entries.Entries {
		if entry.Kind.IsFatal() {
			problems = append(problems, NewProblem(entry))
		}
	}
	return problems
}

// NewProblem returns the problem in an entry of a report.
func NewProblem(entry report.Entry) Problem {
	problem := Problem{Path: joinPath(entry.Context.Path), Message: entry.Message}
	if entry.Marker.StartP != nil {
		problem.Line = entry.Marker.StartP.Line
	}
	return problem
}

// decodeError returns a ParseError with the place where JSON is malformed or has a value of the wrong type.
func decodeError(raw []byte, err error) error {
	var wrongType *json.UnmarshalTypeError
	var broken *json.SyntaxError
	at := func(offset int64, message string) error {
		return &ParseError{Problems: []Problem{{Path: pathAt(raw, offset), Line: lineAt(raw, offset), Message: message}}}
	}
	switch {
	case errors.As(err, &wrongType):
		hint := ""
		if strings.HasSuffix(pathAt(raw, wrongType.Offset), ".mode") {
			hint = " (in JSON a file mode is decimal: 0644 is 420)"
		}
		return at(wrongType.Offset, fmt.Sprintf("must be %s%s, is JSON %s", describeType(wrongType.Type), hint, wrongType.Value))
	case errors.As(err, &broken):
		return at(broken.Offset, broken.Error())
	}
	return newParseError("", err.Error())
}

// describeType returns the name of the JSON type for a Go type.
func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	default:
		return "a " + t.Kind().String()
	}
}
