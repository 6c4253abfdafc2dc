package server

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzParseReport verifies that a report that is accepted fits the status, is printable, and does not contain the
// token.
func FuzzParseReport(f *testing.F) {
	const token = "a-token-that-nobody-guesses"
	for _, seed := range []string{"files\nno space left", "disks", "files\n" + token, "files\n\xff\x00\x1b[1m", "\n", "Files\nx", "files\n" + strings.Repeat("ü", 3000)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		failure, err := parseReport(body, token)
		if err != nil {
			return
		}
		if !stagePattern.MatchString(failure.Stage) || len(failure.Log) > maxReport || !utf8.ValidString(failure.Log) || strings.Contains(failure.Log, token) {
			t.Errorf("accepted %q as %+v", body, failure)
		}
		if i := strings.IndexFunc(failure.Log, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("accepted %q as %+v, which is not printable at %d", body, failure, i)
		}
	})
}
