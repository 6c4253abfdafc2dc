package ignition

import (
	"path"
	"slices"
	"strings"
)

// maxUnitName is the maximum length of the name of a unit, in bytes.
const maxUnitName = 255

// unitTypes are the types of units, with the dot.
var unitTypes = []string{".service", ".socket", ".target", ".device", ".mount", ".automount", ".swap", ".timer", ".path", ".slice", ".scope"}

// isUnitName reports whether systemd accepts a name of a unit, an instance or a template.
func isUnitName(name string) bool {
	kind := path.Ext(name)
	stem := strings.TrimSuffix(name, kind)
	return len(name) <= maxUnitName && slices.Contains(unitTypes, kind) && stem != "" && stem[0] != '@' && isInstanceName(stem)
}

// isInstanceName reports whether systemd accepts the name of an instance.
func isInstanceName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(`:-_.\@`, r)
	})
}

// splitUnitName returns the parts of the name of a unit. Only an instance has an instance, and only an instance and a
// template have an @.
func splitUnitName(name string) (prefix, instance, kind string, hasAt bool) {
	kind = path.Ext(name)
	prefix, instance, hasAt = strings.Cut(strings.TrimSuffix(name, kind), "@")
	return prefix, instance, kind, hasAt
}
