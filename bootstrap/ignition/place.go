package ignition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// joinPath formats a path like storage.files[2].mode.
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

// walker reads a JSON document token by token, and knows the place of the latest token.
type walker struct {
	*json.Decoder
	open  []container // those that the latest token is in
	isKey bool        // the latest token is a key
	isEnd bool        // a value ends with it
}

// container is an object or a list.
type container struct {
	isObject bool
	at       []any             // the latest key or index, or nothing
	keys     map[string]string // of an object, so far, by what foldCase returns
}

func newWalker(raw []byte) *walker {
	w := &walker{Decoder: json.NewDecoder(bytes.NewReader(raw))}
	w.UseNumber()
	return w
}

// next reads the next token, and reports whether there is one.
func (w *walker) next() bool {
	if last := len(w.open) - 1; last >= 0 && w.isEnd && w.open[last].isObject {
		w.open[last].at = nil
	}
	if last := len(w.open) - 1; last >= 0 && !w.open[last].isObject && w.More() {
		index := -1
		if len(w.open[last].at) > 0 {
			index, _ = w.open[last].at[0].(int)
		}
		w.open[last].at = []any{index + 1}
	}
	token, err := w.Token()
	if err != nil {
		return false
	}
	last := len(w.open) - 1
	w.isKey, w.isEnd = false, true
	switch token {
	case json.Delim('{'), json.Delim('['):
		w.open = append(w.open, container{isObject: token == json.Delim('{'), keys: map[string]string{}})
		w.isEnd = false
	case json.Delim('}'), json.Delim(']'):
		w.open = w.open[:last]
	default:
		if last >= 0 && w.open[last].isObject && w.open[last].at == nil {
			w.open[last].at = []any{token}
			w.isKey, w.isEnd = true, false
		}
	}
	return true
}

// place returns the path of the latest token.
func (w *walker) place() string {
	var path []any
	for _, in := range w.open {
		path = append(path, in.at...)
	}
	return joinPath(path)
}

// pathAt returns the path of the value that contains a byte offset of a JSON document or ends there. In a malformed
// document it is the path of the last value before the error.
func pathAt(raw []byte, offset int64) string {
	w := newWalker(raw)
	for more := true; more && w.InputOffset() < offset; {
		more = w.next()
	}
	return w.place()
}

// duplicateKeys returns the keys of a valid JSON document that are given twice in one object. It ignores their case, as
// Ignition's parser does: that parser would keep the last value, or mix the values. It reads the text, because a
// decoded object has lost all but one of equal keys.
func duplicateKeys(raw []byte) (problems []Problem) {
	for w := newWalker(raw); w.next(); {
		if !w.isKey {
			continue
		}
		in := w.open[len(w.open)-1]
		key, _ := in.at[0].(string)
		folded := foldCase(key)
		first, given := in.keys[folded]
		switch {
		case !given:
			in.keys[folded] = key
		case !isComment(key):
			addProblem(&problems, func() Problem {
				message := fmt.Sprintf("%s and %s are the same key: remove one", first, key)
				if first == key {
					message = key + " is given twice: remove one"
				}
				return Problem{Path: w.place(), Message: message}
			})
		}
	}
	return problems
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

// lineAt returns the line, counted from 1, of a byte offset.
func lineAt(raw []byte, offset int64) int64 {
	return 1 + int64(bytes.Count(raw[:min(offset, int64(len(raw)))], []byte("\n")))
}

// offsetAt returns the byte offset of a line and a column, both counted from 1.
func offsetAt(raw []byte, line, column int) int64 {
	offset := 0
	for ; line > 1; line-- {
		next := bytes.IndexByte(raw[offset:], '\n')
		if next < 0 {
			break
		}
		offset += next + 1
	}
	return int64(min(offset+column, len(raw)))
}
