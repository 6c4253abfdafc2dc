package nodelabels

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// sanitize converts a string to a label value, as OnInvalidSanitize specifies. It returns "" if nothing remains.
func sanitize(text string) string {
	var made strings.Builder
	gap := false
	for _, r := range text {
		if !inLabel(r) {
			gap = true
			continue
		}
		if gap && made.Len() > 0 {
			made.WriteByte('-')
		}
		gap = false
		if made.WriteRune(r); made.Len() > validation.LabelValueMaxLength {
			break
		}
	}
	value := made.String()
	return strings.Trim(value[:min(len(value), validation.LabelValueMaxLength)], "-_.")
}

// inLabel reports whether a label value can contain a character.
func inLabel(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.'
}
