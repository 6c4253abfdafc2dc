// Package excerpt cleans and shortens texts for people, such as the reasons of conditions. It cuts between words: half
// a name, such as that of a unit or an image, is another name.
package excerpt

import (
	"fmt"
	"slices"
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

// Printable returns text that a host or a program wrote without what could control a terminal: everything that does not
// print becomes a blank, but line feeds and tabs stay.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r': // before a line feed, as a rule
			return -1
		case r == '\n', r == '\t', unicode.IsPrint(r):
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// Line returns text that a host or a program wrote in one line that prints, as Of does.
func Line(text string, size int) string {
	text = text[:min(len(text), 2*size)] // bounds the work
	return Of(strings.Join(strings.Fields(Printable(text)), " "), size)
}

// Names is List of sorted names.
func Names(most int, names []string) string { return List(most, slices.Sorted(slices.Values(names))) }

// List returns the first of some names, and how many more there are.
func List(most int, names []string) string {
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
