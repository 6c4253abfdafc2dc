package ignition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/coreos/vcontext/path"
	"github.com/coreos/vcontext/report"
)

// ParseError says what is wrong with a configuration.
type ParseError struct {
	// Problems are at least one, in the order of the document.
	Problems []Problem
}

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	// Path leads to the place in the document, for example storage.files[2].mode; empty when it is the document itself.
	Path string
	// Line is the place's line, counted from 1; 0 when it is not known.
	Line int64
	// Message says what is wrong there.
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

// String is the problem with its path and its line.
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

// problem makes a ParseError of one problem.
func problem(path, message string) *ParseError {
	return &ParseError{Problems: []Problem{{Path: path, Message: message}}}
}

// problemsIn turns the fatal entries of a report into problems. Entries without a path, those of the JSON decoder, get it
// from the raw document.
func problemsIn(entries report.Report, raw []byte) []Problem {
	var problems []Problem
	for _, entry := range entries.Entries {
		if !entry.Kind.IsFatal() {
			continue
		}
		problem := Problem{Path: pathString(entry.Context), Message: entry.Message}
		if start := entry.Marker.StartP; start != nil {
			problem.Line = start.Line
			if problem.Path == "" {
				problem.Path = pathAt(raw, start.Index)
			}
		}
		problems = append(problems, problem)
	}
	return problems
}

// pathString writes a path as people do: storage.files[2].mode.
func pathString(context path.ContextPath) string {
	return joinPath(context.Path)
}

func joinPath(elements []any) string {
	var out strings.Builder
	for _, element := range elements {
		if index, ok := element.(int); ok {
			out.WriteString("[" + strconv.Itoa(index) + "]")
			continue
		}
		if out.Len() > 0 {
			out.WriteByte('.')
		}
		fmt.Fprint(&out, element)
	}
	return out.String()
}

// pathAt returns the path of the value in a JSON document that ends at or spans the byte offset. In a document that is
// broken it is the path of the last value before the break.
func pathAt(raw []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var place []any     // keys and indices that lead to the current value
	var isObject []bool // for every open container
	for decoder.InputOffset() < offset {
		depth := len(isObject)
		inObject := depth > 0 && isObject[depth-1]
		wantsKey := inObject && len(place) < depth
		if depth > 0 && !inObject && decoder.More() { // the next element of an array
			if len(place) < depth {
				place = append(place, 0)
			} else {
				place[depth-1] = place[depth-1].(int) + 1
			}
		}
		token, err := decoder.Token()
		if err != nil {
			break
		}
		if decoder.InputOffset() >= offset {
			if key, ok := token.(string); ok && wantsKey {
				place = append(place, key)
			}
			break
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			isObject = append(isObject, token == json.Delim('{'))
			continue
		case json.Delim('}'), json.Delim(']'):
			isObject = isObject[:depth-1]
			place = place[:min(len(place), depth-1)]
		default:
			if wantsKey {
				place = append(place, token)
				continue
			}
		}
		// A value is complete: an object waits for its next key.
		if depth = len(isObject); depth > 0 && isObject[depth-1] {
			place = place[:depth-1]
		}
	}
	return joinPath(place)
}
