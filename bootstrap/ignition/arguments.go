package ignition

import (
	"regexp"
	"strings"
)

// argumentPattern matches one argument of a kernel command line. It has no space outside of quotes.
var argumentPattern = regexp.MustCompile(`(?:[^\s"]|"[^"]*"?)+`)

// SplitArguments returns the single arguments of a kernel command line with these parts: it is split at spaces outside
// of quotes.
func SplitArguments(parts []string) []string {
	return argumentPattern.FindAllString(strings.Join(parts, " "), -1)
}
