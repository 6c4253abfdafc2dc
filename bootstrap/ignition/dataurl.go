package ignition

import (
	"encoding/base64"
	"net/url"
	"strings"

	"github.com/vincent-petithory/dataurl"
)

// commonMediaTypes are the common texts between "data:" and the comma. The value is true if base64 follows.
var commonMediaTypes = map[string]bool{
	"": false, "text/plain": false, "text/plain;charset=utf-8": false, "text/plain;charset=us-ascii": false,
	";base64": true, "text/plain;base64": true, "text/plain;charset=utf-8;base64": true, "text/plain;charset=us-ascii;base64": true,
}

// decodeCommonDataURL decodes a data URL of a common form, and reports whether it has such a form. Most contents that a
// pool renders have one. Package dataurl, which Ignition uses, returns the same bytes but is slow: it sends every rune
// through a channel.
func decodeCommonDataURL(source string) ([]byte, bool) {
	rest, isData := strings.CutPrefix(source, "data:")
	head, body, _ := strings.Cut(rest, ",")
	packed, isPlain := commonMediaTypes[head]
	switch {
	case !isData || !isPlain || len(rest) == len(head):
		return nil, false
	case packed:
		// DecodeString ignores line breaks, which a URL must not have.
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

// isCommonDataURL reports whether decodeCommonDataURL decodes a URL.
func isCommonDataURL(source string) bool {
	rest, isData := strings.CutPrefix(source, "data:")
	head, body, hasBody := strings.Cut(rest, ",")
	if !isData || !hasBody || !commonMediaTypes[head] {
		_, isPlain := decodeCommonDataURL(source)
		return isPlain
	}
	digits := strings.TrimSuffix(strings.TrimSuffix(body, "="), "=")
	for i := range len(digits) {
		if !isBase64[digits[i]] {
			return false
		}
	}
	return len(body)%4 == 0
}

// isBase64 has for each byte whether it is a digit of base64.
var isBase64 = func() (bytes [256]bool) {
	for c := range bytes {
		bytes[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/'
	}
	return bytes
}()

// decodeDataURL decodes a data URL as Ignition does. For any other URL it returns errRemote.
func decodeDataURL(source string) ([]byte, error) {
	if data, isPlain := decodeCommonDataURL(source); isPlain {
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
