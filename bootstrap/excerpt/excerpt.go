// Package excerpt shortens texts for people, such as the reasons of conditions. It cuts between words: half a name,
// such as that of a unit or an image, is another name.
package excerpt

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// More stands for what is left out.
const More = " …"

// Of returns a text, or its beginning if it has more than size bytes. The result is valid UTF-8 and has at most size
// bytes. A word is cut only if it takes more than half of them.
func Of(text string, size int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= size {
		return text
	}
	end := max(size-len(More), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if next, _ := utf8.DecodeRuneInString(text[end:]); !unicode.IsSpace(next) {
		if space := strings.LastIndexFunc(text[:end], unicode.IsSpace); space >= size/2 {
			end = space
		}
	}
	if size < len(More) {
		return text[:end]
	}
	return strings.TrimRightFunc(text[:end], unicode.IsSpace) + More
}
