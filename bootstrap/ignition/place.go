package ignition

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
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

// pathAt returns the path of the value that contains a byte offset of a JSON document or ends there. In a malformed
// document it is the path of the last value before the error.
func pathAt(raw []byte, offset int64) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var place []any    // keys and indices of the current value, at most one for every open container
	var objects []bool // for every open container, whether it is an object
	for decoder.InputOffset() < offset {
		depth := len(objects)
		inObject := depth > 0 && objects[depth-1]
		expectsKey := inObject && len(place) < depth
		if depth > 0 && !inObject && decoder.More() {
			place = nextElement(place, depth)
		}
		token, err := decoder.Token()
		if err != nil {
			break
		}
		_, isDelimiter := token.(json.Delim)
		switch {
		case expectsKey && !isDelimiter:
			place = append(place, token)
			continue
		case decoder.InputOffset() >= offset:
			return joinPath(place)
		case token == json.Delim('{') || token == json.Delim('['):
			objects = append(objects, token == json.Delim('{'))
			continue
		case isDelimiter:
			objects = objects[:depth-1]
			place = place[:min(len(place), depth-1)]
		}
		// A value is complete; its object continues with the next key.
		if depth = len(objects); depth > 0 && objects[depth-1] {
			place = place[:depth-1]
		}
	}
	return joinPath(place)
}

// nextElement moves to the next, or first, element of the list at the given depth.
func nextElement(place []any, depth int) []any {
	if len(place) < depth {
		return append(place, 0)
	}
	index, _ := place[depth-1].(int)
	place[depth-1] = index + 1
	return place
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
