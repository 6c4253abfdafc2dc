package server

import (
	"net/url"
	"strings"
	"testing"
)

// FuzzParseRoute promises that whatever path is understood consists of plain words, in the number that its kind has.
func FuzzParseRoute(f *testing.F) {
	for _, seed := range []string{
		"/config/infra/0a6bd5b5-3d3c-4b66-8f0e-3c5f6a4f7f51", "/rendered/default/rendered-infra-00?pointer=a", "/healthz",
		"/config/infra?name=edge-7", "/config/%2e%2e/a", "//config/a/b", "/config/a/b%0a", "/rendered/../rendered-x?pointer=a&pointer=b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil {
			return
		}
		to := parseRoute(u)
		if to.kind == kindUnknown || to.kind == kindHealth {
			return
		}
		words := 3
		if to.kind == kindEnrolment {
			words = 2
		}
		if got := u.EscapedPath(); strings.Count(got, "/") != words || strings.ContainsAny(got, "%?#\\ \n") || strings.Contains(got, "..") && to.kind == kindConfig {
			t.Errorf("understood %q as %+v", got, to)
		}
		if (to.pointerID == "") != (to.kind == kindEnrolment) || to.kind == kindEnrolment && to.role == "" || to.kind == kindRendered && (to.namespace == "" || !strings.HasPrefix(to.name, "rendered-")) {
			t.Errorf("understood %q as %+v", raw, to)
		}
	})
}
