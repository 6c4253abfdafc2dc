package ignition

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// splitWords splits a text as systemd does with quotes and C escapes (extract_first_word with UNQUOTE and CUNESCAPE),
// into at most limit words and the rest. With limit 0 there is no maximum. It is not ok if systemd would refuse the
// text because of an unclosed quote or an invalid escape.
func splitWords(text string, limit int) (all []string, rest string, ok bool) {
	var word []byte
	inWord, quote := false, byte(0)
	for i := 0; i < len(text); i++ {
		if limit > 0 && len(all) == limit {
			return all, strings.TrimLeft(text[i:], " \t"), true
		}
		switch c := text[i]; {
		case c == '\\':
			plain, length := decodeEscape(text[i:])
			if length == 0 {
				return all, "", false
			}
			word, inWord = append(word, plain...), true
			i += length - 1
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, inWord = c, true
		case quote == 0 && strings.IndexByte(" \t\n\r", c) >= 0:
			if inWord {
				all = append(all, string(word))
			}
			word, inWord = word[:0], false
		default:
			word, inWord = append(word, c), true
		}
	}
	if inWord {
		all = append(all, string(word))
	}
	return all, "", quote == 0
}

// plainEscapes are the escapes of one letter.
var plainEscapes = map[byte]string{'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t", 'v': "\v",
	'\\': "\\", '"': "\"", '\'': "'", 's': " "}

// decodeEscape decodes the C escape at the beginning of a text, and returns its length, or 0 if the escape is invalid.
func decodeEscape(text string) (plain string, length int) {
	if len(text) < 2 {
		return "", 0
	}
	if plain, ok := plainEscapes[text[1]]; ok {
		return plain, 2
	}
	digits, base, start := 0, 16, 2
	switch c := text[1]; {
	case c == 'x':
		digits = 2
	case c == 'u':
		digits = 4
	case c == 'U':
		digits = 8
	case c >= '0' && c <= '7':
		digits, base, start = 3, 8, 1
	}
	if digits == 0 || len(text) < start+digits {
		return "", 0
	}
	code, err := strconv.ParseUint(text[start:start+digits], base, 32)
	switch {
	case err != nil || code == 0:
		return "", 0
	case digits >= 4:
		return string(utf8.AppendRune(nil, rune(code))), start + digits
	case code > 0xff:
		return "", 0
	default:
		return string([]byte{byte(code)}), start + digits
	}
}

// directorySpecifiers are the specifiers of systemd for directories, with their values for the system manager.
var directorySpecifiers = map[string]string{
	"t": "/run", "S": "/var/lib", "C": "/var/cache", "L": "/var/log", "E": "/etc", "T": "/tmp", "V": "/var/tmp", "h": "/root", "%": "%",
}

// specifier matches a specifier of systemd.
var specifier = regexp.MustCompile(`(?s)%.`)

// unknownValue replaces a specifier with an unknown value. Unlike a star, it can't occur in a text.
const unknownValue = "\x00"

// expandSpecifiers replaces systemd's specifiers with their values, or with unknownValue.
func expandSpecifiers(text string) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return specifier.ReplaceAllStringFunc(text, func(specifier string) string {
		if value, ok := directorySpecifiers[specifier[1:]]; ok {
			return value
		}
		return unknownValue
	})
}

// canBeNamed reports whether a text with specifiers can have the value name, in which a star matches any ending.
func canBeNamed(text, name string) bool {
	pattern := expandSpecifiers(text)
	if pattern == text {
		fits, _ := path.Match(name, text)
		return fits
	}
	name, isPrefix := strings.CutSuffix(name, "*")
	parts := strings.Split(pattern, unknownValue)
	if !strings.HasPrefix(name, parts[0]) && (!isPrefix || !strings.HasPrefix(parts[0], name)) {
		return false
	}
	return isPrefix || strings.HasSuffix(name, parts[len(parts)-1])
}
