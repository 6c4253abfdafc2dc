package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

// maxProblems is the maximum number of problems of one configuration that are described.
const maxProblems = 100

// LimitProblems returns the first 100 problems, and in the last of these how many more there are. The API server joins
// the errors of an object in more than the time that is proportional to their number.
func LimitProblems(problems []Problem) []Problem {
	if more := len(problems) - maxProblems; more > 0 {
		problems = slices.Clone(problems[:maxProblems])
		problems[maxProblems-1].Message += fmt.Sprintf("; and %d more", more)
	}
	return problems
}

// addProblem adds a problem, which is only counted if there are many.
func addProblem(problems *[]Problem, describe func() Problem) {
	problem := Problem{}
	if len(*problems) < maxProblems {
		problem = describe()
	}
	*problems = append(*problems, problem)
}

// allProblems converts the fatal entries of a report to problems. Those after maxProblems are empty.
func allProblems(entries report.Report) (problems []Problem) {
	for _, entry := range entries.Entries {
		if entry.Kind.IsFatal() {
			addProblem(&problems, func() Problem { return NewProblem(entry) })
		}
	}
	return problems
}

// NewProblem returns the problem in an entry of a report, with what to do about it.
func NewProblem(entry report.Entry) Problem {
	problem := Problem{Path: joinPath(entry.Context.Path), Message: withRemedy(entry.Message)}
	if entry.Marker.StartP != nil {
		problem.Line = entry.Marker.StartP.Line
	}
	return problem
}

// decodeError returns a ParseError with the place where JSON is malformed, or with every value that a type of the spec
// can't hold.
func decodeError(raw []byte, err error, of reflect.Type) error {
	if broken, ok := errors.AsType[*json.SyntaxError](err); ok {
		return &ParseError{Problems: []Problem{{Path: pathAt(raw, broken.Offset), Line: lineAt(raw, broken.Offset),
			Message: "malformed JSON: " + broken.Error() + ": correct it"}}}
	}
	var document any
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	if decoder.Decode(&document) == nil {
		var problems []Problem
		for _, mistake := range FindMistakes(document, of, true) {
			if mistake.Unknown {
				continue // see CheckKeys
			}
			hint := ""
			if strings.HasSuffix(mistake.Path, ".mode") {
				hint = " (in JSON a file mode is decimal: 0644 is 420)"
			}
			problems = append(problems, Problem{Path: mistake.Path, Message: mistake.Message + hint})
		}
		if len(problems) > 0 {
			return &ParseError{Problems: LimitProblems(problems)}
		}
	}
	return newParseError("", err.Error())
}
