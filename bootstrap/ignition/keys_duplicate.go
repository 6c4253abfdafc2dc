package ignition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// container is an object or a list that duplicateKeys is in.
type container struct {
	isObject bool
	keys     map[string]string // of an object, so far, by what foldCase returns
	key      string            // the last one
	awaits   bool              // the next token is its value
	items    int               // of a list, so far
}

// duplicateKeys returns the keys of a valid JSON document that are given twice in one object. It ignores their case, as
// Ignition's parser does: that parser would keep the last value, or mix the values. It reads the text, because a
// decoded object has lost all but one of equal keys.
func duplicateKeys(raw []byte) (problems []Problem) {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var open []container
	for {
		token, err := decoder.Token()
		if err != nil {
			return problems
		}
		delimiter, _ := token.(json.Delim)
		if delimiter == '}' || delimiter == ']' {
			open = open[:len(open)-1]
			continue
		}
		if len(open) > 0 {
			in := &open[len(open)-1]
			if in.isObject && !in.awaits {
				in.key, _ = token.(string)
				in.awaits = true
				folded := foldCase(in.key)
				if first, given := in.keys[folded]; !given {
					in.keys[folded] = in.key
				} else if !isComment(in.key) {
					addProblem(&problems, func() Problem { return duplicateKey(first, open) })
				}
				continue
			}
			in.awaits = false
			in.items++
		}
		switch delimiter {
		case '{':
			open = append(open, container{isObject: true, keys: map[string]string{}})
		case '[':
			open = append(open, container{})
		}
	}
}

// foldCase returns the same text for all texts that strings.EqualFold calls equal.
func foldCase(text string) string {
	return strings.Map(func(r rune) rune {
		smallest := r
		for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
			smallest = min(smallest, other)
		}
		return smallest
	}, text)
}

// duplicateKey returns the problem of the last key of the innermost object, which has the first key too.
func duplicateKey(first string, open []container) Problem {
	var at []any
	for _, in := range open {
		if in.isObject {
			at = append(at, in.key)
		} else {
			at = append(at, in.items-1)
		}
	}
	last := open[len(open)-1].key
	message := fmt.Sprintf("%s and %s are the same key: remove one", first, last)
	if first == last {
		message = first + " is given twice: remove one"
	}
	return Problem{Path: joinPath(at), Message: message}
}
