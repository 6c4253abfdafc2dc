package ignition

import (
	"encoding/base64"
	"net/url"
	"reflect"
	"strings"

	"github.com/vincent-petithory/dataurl"
)

// plainHeads are what commonly stands between "data:" and the comma, and whether base64 follows.
var plainHeads = map[string]bool{
	"": false, "text/plain": false, "text/plain;charset=utf-8": false, "text/plain;charset=us-ascii": false,
	";base64": true, "text/plain;base64": true, "text/plain;charset=utf-8;base64": true, "text/plain;charset=us-ascii;base64": true,
}

// decodePlain decodes a data URL of the common form, and says whether it is one. Most of what a pool renders are such
// URLs; package dataurl, which Ignition uses, gives the same bytes for them but goes from rune to rune through a
// channel.
func decodePlain(source string) ([]byte, bool) {
	rest, isData := strings.CutPrefix(source, "data:")
	head, body, _ := strings.Cut(rest, ",")
	packed, isPlain := plainHeads[head]
	switch {
	case !isData || !isPlain || len(rest) == len(head):
		return nil, false
	case packed:
		// DecodeString passes over ends of lines; a URL has none.
		data, err := base64.StdEncoding.DecodeString(body)
		return data, err == nil && strings.IndexByte(body, '\n') < 0 && strings.IndexByte(body, '\r') < 0
	}
	for i := range len(body) {
		if c := body[i]; c <= ' ' || c > '~' || strings.IndexByte("\"#<>?[\\]^`{|}", c) >= 0 {
			return nil, false
		}
	}
	text, err := url.PathUnescape(body)
	return []byte(text), err == nil
}

// decode returns what a data URL holds, as Ignition decodes it, and errRemote for any other URL.
func decode(source string) ([]byte, error) {
	if data, isPlain := decodePlain(source); isPlain {
		return data, nil
	}
	parsed, err := url.Parse(source)
	if err != nil {
		return nil, err
	}
	if parsed.Scheme != "data" {
		return nil, errRemote
	}
	decoded, err := dataurl.DecodeString(parsed.String())
	if err != nil {
		return nil, err
	}
	return decoded.Data, nil
}

// elsewhere is a source that is right in every spec version and takes no time to check.
var elsewhere = "http:"

// withoutData returns a resource, of any spec version, with another source where its own is a data URL that was found
// right.
func withoutData(resource reflect.Value) reflect.Value {
	source, _ := resource.FieldByName("Source").Interface().(*string)
	if source == nil || resource.FieldByName("HTTPHeaders").Len() > 0 {
		return resource
	}
	if _, isPlain := decodePlain(*source); !isPlain {
		return resource
	}
	light := reflect.New(resource.Type()).Elem()
	light.Set(resource)
	light.FieldByName("Source").Set(reflect.ValueOf(&elsewhere))
	return light
}
