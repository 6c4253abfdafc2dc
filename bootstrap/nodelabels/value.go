package nodelabels

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// sanitize converts a string to a label value, as OnInvalidSanitize specifies. It returns "" if nothing remains.
func sanitize(text string) string {
	value := strings.Join(strings.FieldsFunc(text, isInvalidInLabel), "-")
	return strings.Trim(value[:min(len(value), validation.LabelValueMaxLength)], "-_.")
}

// isInvalidInLabel reports whether a label value cannot contain a character.
func isInvalidInLabel(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
}
