package server

import (
	"net/url"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// FuzzParseRoute verifies that a path that is parsed has no escapes or special characters, and as many parts as its
// kind has.
func FuzzParseRoute(f *testing.F) {
	for _, seed := range []string{
		"/config/infra/default/machine-0/0a6bd5b5-3d3c-4b66-8f0e-3c5f6a4f7f51", "/rendered/default/rendered-infra-00?config=machine-0&pointer=a", "/healthz",
		"/config/infra/default/edge?name=edge-7", "/config/%2e%2e/a/b/c", "//config/a/b/c/d", "/update/default/machine-0/0a6bd5b5-3d3c-4b66-8f0e-3c5f6a4f7f51", "/update/a/b/c%2fd", "/agent/" + strings.Repeat("0f", 64), "/agent/" + strings.Repeat("0F", 64), "/config/a/b/c/d%0a", "/config/a/b/../c", "/config/a/b/c..d/e", "/rendered/../rendered-x?config=a&pointer=b&pointer=c",
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
		words := map[string]int{kindConfig: 5, kindEnrollment: 4, kindRendered: 3, kindUpdate: 4, kindAgent: 2}[to.kind]
		if got := u.EscapedPath(); strings.Count(got, "/") != words || strings.ContainsAny(got, "%?#\\ \n") || strings.Contains(got, "..") && to.kind != kindRendered {
			t.Errorf("understood %q as %+v", got, to)
		}
		if to.kind == kindAgent {
			if len(to.sha512) != 128 || strings.Trim(to.sha512, "0123456789abcdef") != "" || to.object.Name != "" {
				t.Errorf("understood %q as %+v", raw, to)
			}
			return
		}
		if (to.pointerID == "") != (to.kind == kindEnrollment) || to.kind == kindEnrollment && to.role == "" || to.object.Namespace == "" || to.object.Name == "" ||
			len(validation.IsDNS1123Subdomain(to.object.Name)) > 0 || to.kind == kindRendered && !strings.HasPrefix(to.name, "rendered-") {
			t.Errorf("understood %q as %+v", raw, to)
		}
	})
}
